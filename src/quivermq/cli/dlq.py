"""`quiver dlq`: look through dead letters, send them back, or throw them away."""

from collections.abc import Callable
from typing import Annotated

import typer
from typer import Option

from quivermq.cli.command import on_queue
from quivermq.cli.connecting import open_queue, open_to_look
from quivermq.cli.durations import moment_text
from quivermq.cli.options import TopicArgument, YesOption
from quivermq.cli.output import CommandResult, TextTable, confirm, counted, shown
from quivermq.model.dead_letters import DLQ_HEADER_NAMES, DeadLetter
from quivermq.model.json import listed_json
from quivermq.queue.connection import Connection

app = typer.Typer(help="Look after dead letters.", no_args_is_help=True)

LimitOption = Annotated[int | None, Option("--limit", help="How many at most.", min=1)]
ReasonOption = Annotated[str | None, Option("--reason", help="Only those given up for this reason.")]
GroupOption = Annotated[str | None, Option("--group", help="Only those that this group gave up.")]
IdOption = Annotated[
    list[str] | None,
    Option("--id", help="Only the one of this id, as `quiver dlq list` shows it. May be repeated."),
]

# But for the last, the time, which JSON calls `died_at`.
_LISTED = ("id", *DLQ_HEADER_NAMES[:-1])


@app.command("list")
@on_queue(open_to_look)
def list_letters(
    topic: TopicArgument,
    limit: LimitOption = 100,
    reason: ReasonOption = None,
    group: GroupOption = None,
    *,
    mq: Connection,
) -> CommandResult:
    """List the messages of a topic that were given up, oldest first."""
    wanted = _filter(reason, group, None)
    mq.topic(topic)
    # The limit is about those that are wanted, so it cannot be left to the queue.
    letters = mq.queue(topic).dead_letters(limit if wanted is None else None)
    letters = [letter for letter in letters if wanted is None or wanted(letter)][:limit]
    return CommandResult(
        {"messages": [{**listed_json(letter, _LISTED), "died_at": letter.time} for letter in letters]},
        TextTable(
            ("id", "died", "group", "attempts", "reason", "error", "key", "value"),
            [_row(letter) for letter in letters],
        ),
    )


@app.command()
@on_queue(open_queue)
def redrive(
    topic: TopicArgument,
    limit: LimitOption = None,
    reason: ReasonOption = None,
    group: GroupOption = None,
    ids: IdOption = None,
    *,
    mq: Connection,
) -> CommandResult:
    """Send dead letters back to the topic they came from, all or those that the options name."""
    mq.topic(topic)
    moved = mq.queue(topic).redrive(_filter(reason, group, ids), limit)
    return CommandResult({"moved": moved}, f"sent {counted(moved, 'dead letter')} back")


@app.command()
@on_queue(open_queue)
def discard(
    topic: TopicArgument,
    limit: LimitOption = None,
    reason: ReasonOption = None,
    group: GroupOption = None,
    ids: IdOption = None,
    yes: YesOption = False,
    *,
    mq: Connection,
    as_json: bool,
) -> CommandResult:
    """Throw dead letters away, all or those that the options name."""
    mq.topic(topic)
    confirm(f"Throw dead letters of {topic} away?", yes=yes, as_json=as_json)
    discarded = mq.queue(topic).discard(_filter(reason, group, ids), limit)
    return CommandResult({"discarded": discarded}, f"threw {counted(discarded, 'dead letter')} away")


def _filter(
    reason: str | None, group: str | None, ids: list[str] | None
) -> Callable[[DeadLetter], bool] | None:
    if reason is None and group is None and not ids:
        return None
    return lambda letter: (
        reason in (None, letter.reason) and group in (None, letter.group) and (not ids or letter.id in ids)
    )


def _row(letter: DeadLetter) -> tuple[object, ...]:
    return (
        letter.id,
        moment_text(letter.time),
        letter.group or "-",
        letter.attempts,
        letter.reason or "-",
        shown(letter.error.encode()) if letter.error else "-",
        shown(letter.key, 30),
        shown(letter.value),
    )
