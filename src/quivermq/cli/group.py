"""`quiver group`: how far the groups of a topic have come, and from where they go on."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Literal, cast

import typer
from typer import Argument, Option

from quivermq.cli.command import on_queue
from quivermq.cli.connecting import open_queue, open_to_look
from quivermq.cli.durations import moment_text, parse_moment
from quivermq.cli.options import TopicArgument, YesOption, complete_topics
from quivermq.cli.output import CommandResult, TextTable, confirm
from quivermq.errors import GroupNotFound, InvalidRequest
from quivermq.model.deliveries import InFlight
from quivermq.model.lanes import priority_of
from quivermq.model.stats import QueueStats
from quivermq.queue.connection import Connection

app = typer.Typer(help="Look at groups and move them.", no_args_is_help=True)

GroupArgument = Annotated[str, Argument(help="The group.")]

COUNT_COLUMNS = ("pending", "in flight", "retrying", "waiting for key")
_HELD_COLUMNS = ("partition", "priority", "offset", "attempt", "first", "last", "until", "holder")


@app.command("list")
@on_queue(open_to_look)
def list_groups(
    topic: Annotated[
        str | None, Argument(help="Only the groups of this topic.", autocompletion=complete_topics)
    ] = None,
    *,
    mq: Connection,
) -> CommandResult:
    """List the groups of a topic, or of all topics."""
    if topic is not None:
        mq.topic(topic)
    topics = mq.stats().topics
    found = [
        group for name, each in topics.items() if topic in (None, name) for group in each.groups.values()
    ]
    return CommandResult({"groups": [group.as_dict() for group in found]}, _table(found))


@app.command()
@on_queue(open_to_look)
def show(topic: TopicArgument, group: GroupArgument, mq: Connection) -> CommandResult:
    """Show what a group still has to do with a topic."""
    _check_exists(mq, topic, group)
    return _result(mq, topic, group)


@app.command()
@on_queue(open_to_look)
def deliveries(
    topic: TopicArgument,
    group: GroupArgument,
    limit: Annotated[int, Option(help="How many at most.", min=1, max=10_000)] = 100,
    *,
    mq: Connection,
) -> CommandResult:
    """List what is in flight: who has which message, since when, and until when."""
    _check_exists(mq, topic, group)
    found = mq.queue(topic, group).deliveries(limit)
    return CommandResult(
        {"deliveries": [asdict(each) for each in found]},
        TextTable(_HELD_COLUMNS, [_held_row(each) for each in found]),
    )


@app.command()
@on_queue(open_queue)
def pause(topic: TopicArgument, group: GroupArgument, mq: Connection) -> CommandResult:
    """Give a group nothing more of a topic until `quiver group resume`, also after a restart."""
    mq.queue(topic, group).pause()
    return _result(mq, topic, group)


@app.command()
@on_queue(open_queue)
def resume(topic: TopicArgument, group: GroupArgument, mq: Connection) -> CommandResult:
    """Let a group go on that was paused."""
    mq.queue(topic, group).resume()
    return _result(mq, topic, group)


@app.command()
@on_queue(open_queue)
def retry(topic: TopicArgument, group: GroupArgument, mq: Connection) -> CommandResult:
    """Let everything that failed and waits for its next attempt have it now."""
    retried = mq.queue(topic, group).retry_now()
    return CommandResult({"retried": retried}, f"retried {retried}")


@app.command()
@on_queue(open_queue)
def seek(
    topic: TopicArgument,
    group: GroupArgument,
    to: Annotated[str | None, Option(help="earliest or latest.")] = None,
    offset: Annotated[int | None, Option(help="To an offset.", min=0)] = None,
    timestamp: Annotated[
        str | None, Option(help="To a moment, as 2026-01-31T12:00:00Z or unix seconds.")
    ] = None,
    partition: Annotated[int | None, Option(help="Only in this partition.", min=0)] = None,
    priority: Annotated[str | None, Option(help="Only among high, normal or low ones.")] = None,
    *,
    mq: Connection,
) -> CommandResult:
    """Let a group go on from elsewhere. What lies before is done with, what lies behind comes again.

    A group that is not there yet is made, so it can be told where to begin.
    """
    if sum(given is not None for given in (to, offset, timestamp)) != 1:
        raise InvalidRequest("say where to: one of --to earliest, --to latest, --offset and --timestamp")
    if to not in (None, "earliest", "latest"):
        raise InvalidRequest(f"--to is earliest or latest, not {to!r:.80}")
    mq.queue(topic, group).seek(
        cast(Literal["earliest", "latest"] | None, to),
        offset=offset,
        timestamp=None if timestamp is None else parse_moment(timestamp),
        partition=partition,
        priority=None if priority is None else priority_of(priority),
    )
    return _result(mq, topic, group)


@app.command()
@on_queue(open_queue)
def reset(
    topic: TopicArgument, group: GroupArgument, yes: YesOption = False, *, mq: Connection, as_json: bool
) -> CommandResult:
    """Let a group begin anew: every message that is there comes again, as if for the first time."""
    _check_exists(mq, topic, group)
    confirm(f"Deliver all of {topic} to {group} once more?", yes=yes, as_json=as_json)
    mq.delete_group(topic, group)
    mq.queue(topic, group).seek("earliest")
    return _result(mq, topic, group)


@app.command()
@on_queue(open_queue)
def delete(
    topic: TopicArgument, group: GroupArgument, yes: YesOption = False, *, mq: Connection, as_json: bool
) -> CommandResult:
    """Forget what a group knows of a topic. When it comes back, it begins with the earliest message."""
    _check_exists(mq, topic, group)
    confirm(f"Forget how far {group} has come in {topic}?", yes=yes, as_json=as_json)
    mq.delete_group(topic, group)
    return CommandResult({"deleted": group, "topic": topic}, f"deleted {group} from {topic}")


def _check_exists(mq: Connection, topic: str, group: str) -> None:
    if group not in mq.groups(topic):
        raise GroupNotFound(
            f"{topic} has no group {group}: `quiver group list {topic}` shows those there are"
        )


def _result(mq: Connection, topic: str, group: str) -> CommandResult:
    stats = mq.queue(topic, group).stats()
    return CommandResult(stats.as_dict(), _table([stats]))


def _table(groups: Iterable[QueueStats]) -> TextTable:
    return TextTable(
        ("topic", "group", *COUNT_COLUMNS, "backlog", "state"),
        [(each.topic, each.group, *counts(each), each.backlog, state_text(each)) for each in groups],
    )


def counts(group: QueueStats) -> tuple[int, ...]:
    """What a group has before it, as cells under COUNT_COLUMNS."""
    return group.pending, group.in_flight, group.retrying, group.waiting_for_key


def state_text(group: QueueStats) -> str:
    """The state of a group for people."""
    return group.state.replace("_", " ")


def _held_row(held: InFlight) -> tuple[object, ...]:
    times = (held.first_delivered_at, held.last_delivered_at, held.deadline)
    moments = ("" if time is None else moment_text(time) for time in times)
    return (held.partition, held.priority, held.offset, held.attempt, *moments, held.holder or "")
