"""`quiver dlq`: look through dead letters, send them back, or throw them away."""

from collections.abc import Callable
from typing import Annotated

import typer

from quivermq.cli.durations import moment_text
from quivermq.cli.messages import message_as_json, shown
from quivermq.cli.output import JsonOption, YesOption, confirm, counted, print_json, print_table
from quivermq.cli.place import DataOption, ServerOption, TopicArgument, open_queue, open_to_look
from quivermq.model.dead_letters import DeadLetter

app = typer.Typer(help="Look after dead letters.", no_args_is_help=True)

LimitOption = Annotated[int | None, typer.Option("--limit", help="How many at most.", min=1)]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Only those given up for this reason.")]
GroupOption = Annotated[str | None, typer.Option("--group", help="Only those that this group gave up.")]
IdOption = Annotated[
    list[str] | None,
    typer.Option("--id", help="Only the one of this id, as `quiver dlq list` shows it. May be repeated."),
]

_TOLD = (
    "id",
    "topic",
    "partition",
    "priority",
    "offset",
    "timestamp",
    "attempts",
    "reason",
    "error",
    "group",
)


@app.command("list")
def list_letters(
    topic: TopicArgument,
    limit: LimitOption = 100,
    reason: ReasonOption = None,
    group: GroupOption = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the messages of a topic that were given up, oldest first."""
    wanted = _filter(reason, group, None)
    with open_to_look(data, server) as mq:
        mq.topic(topic)
        # The limit is about those that are wanted, so it cannot be left to the queue.
        letters = mq.queue(topic).dead_letters(limit if wanted is None else None)
    letters = [letter for letter in letters if wanted is None or wanted(letter)][:limit]
    if as_json:
        print_json({"messages": [_as_json(letter) for letter in letters]})
        return
    print_table(
        ("id", "died", "group", "attempts", "reason", "error", "key", "value"),
        [_row(letter) for letter in letters],
    )


@app.command()
def redrive(
    topic: TopicArgument,
    limit: LimitOption = None,
    reason: ReasonOption = None,
    group: GroupOption = None,
    ids: IdOption = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters back to the topic they came from, all or those that the options name."""
    with open_queue(data, server) as mq:
        mq.topic(topic)
        moved = mq.queue(topic).redrive(_filter(reason, group, ids), limit)
    if as_json:
        print_json({"moved": moved})
    else:
        print(f"sent {counted(moved, 'dead letter')} back")


@app.command()
def discard(
    topic: TopicArgument,
    limit: LimitOption = None,
    reason: ReasonOption = None,
    group: GroupOption = None,
    ids: IdOption = None,
    yes: YesOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Throw dead letters away, all or those that the options name."""
    with open_queue(data, server) as mq:
        mq.topic(topic)
        confirm(f"Throw dead letters of {topic} away?", yes=yes, as_json=as_json)
        discarded = mq.queue(topic).discard(_filter(reason, group, ids), limit)
    if as_json:
        print_json({"discarded": discarded})
    else:
        print(f"threw {counted(discarded, 'dead letter')} away")


def _filter(
    reason: str | None, group: str | None, ids: list[str] | None
) -> Callable[[DeadLetter], bool] | None:
    if reason is None and group is None and not ids:
        return None
    return lambda letter: (
        reason in (None, letter.reason) and group in (None, letter.group) and (not ids or letter.id in ids)
    )


def _as_json(letter: DeadLetter) -> dict[str, object]:
    return {**message_as_json(letter, _TOLD), "died_at": letter.time}


def _row(letter: DeadLetter) -> tuple[str, ...]:
    return (
        letter.id,
        moment_text(letter.time),
        letter.group or "-",
        str(letter.attempts),
        letter.reason or "-",
        shown(letter.error.encode()) if letter.error else "-",
        shown(letter.key, 30),
        shown(letter.value),
    )
