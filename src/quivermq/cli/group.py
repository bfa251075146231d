"""`quiver group`: how far the groups of a topic have come, and from where they go on."""

from dataclasses import asdict
from typing import Annotated

import typer

from quivermq.cli.completion import complete_topics
from quivermq.cli.durations import moment_text, parse_moment
from quivermq.cli.output import JsonOption, YesOption, confirm, print_json, print_table, state_text
from quivermq.cli.place import AnyEngine, DataOption, ServerOption, TopicArgument, open_queue, open_to_look
from quivermq.errors import GroupNotFound, InvalidRequest
from quivermq.model.deliveries import InFlight
from quivermq.model.stats import QueueStats

app = typer.Typer(help="Look at groups and move them.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(help="The group.")]

_COLUMNS = ("topic", "group", "pending", "in flight", "retrying", "waiting for key", "backlog", "state")

_HELD_COLUMNS = ("partition", "priority", "offset", "attempt", "first", "last", "until", "holder")


@app.command("list")
def list_groups(
    topic: Annotated[
        str | None, typer.Argument(help="Only the groups of this topic.", autocompletion=complete_topics)
    ] = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the groups of a topic, or of all topics."""
    with open_to_look(data, server) as mq:
        if topic is not None:
            mq.topic(topic)
        topics = mq.stats().topics
    found = [
        group for name, each in topics.items() if topic in (None, name) for group in each.groups.values()
    ]
    if as_json:
        print_json({"groups": [group.as_dict() for group in found]})
    else:
        print_table(_COLUMNS, [_row(group) for group in found])


@app.command()
def show(
    topic: TopicArgument,
    group: GroupArgument,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a group still has to do with a topic."""
    with open_to_look(data, server) as mq:
        _check_exists(mq, topic, group)
        _print(mq, topic, group, as_json=as_json)


@app.command()
def deliveries(
    topic: TopicArgument,
    group: GroupArgument,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=10_000)] = 100,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what is in flight: who has which message, since when, and until when."""
    with open_to_look(data, server) as mq:
        _check_exists(mq, topic, group)
        found = mq.queue(topic, group).deliveries(limit)
    if as_json:
        print_json({"deliveries": [asdict(each) for each in found]})
    else:
        print_table(_HELD_COLUMNS, [_held_row(each) for each in found])


@app.command()
def pause(
    topic: TopicArgument,
    group: GroupArgument,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a group nothing more of a topic until `quiver group resume`, also after a restart."""
    with open_queue(data, server) as mq:
        mq.queue(topic, group=group).pause()
        _print(mq, topic, group, as_json=as_json)


@app.command()
def resume(
    topic: TopicArgument,
    group: GroupArgument,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a group go on that was paused."""
    with open_queue(data, server) as mq:
        mq.queue(topic, group=group).resume()
        _print(mq, topic, group, as_json=as_json)


@app.command()
def retry(
    topic: TopicArgument,
    group: GroupArgument,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let everything that failed and waits for its next attempt have it now."""
    with open_queue(data, server) as mq:
        retried = mq.queue(topic, group=group).retry_now()
    if as_json:
        print_json({"retried": retried})
    else:
        print(f"retried {retried}")


@app.command()
def seek(
    topic: TopicArgument,
    group: GroupArgument,
    to: Annotated[str | None, typer.Option(help="earliest or latest.")] = None,
    offset: Annotated[int | None, typer.Option(help="To an offset.", min=0)] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="To a moment, as 2026-01-31T12:00:00Z or unix seconds.")
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Only in this partition.", min=0)] = None,
    priority: Annotated[str | None, typer.Option(help="Only among high, normal or low ones.")] = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a group go on from elsewhere. What lies before is done with, what lies behind comes again.

    A group that is not there yet is made, so it can be told where to begin.
    """
    if sum(given is not None for given in (to, offset, timestamp)) != 1:
        raise InvalidRequest("say where to: one of --to earliest, --to latest, --offset and --timestamp")
    if to not in (None, "earliest", "latest"):
        raise InvalidRequest(f"--to is earliest or latest, not {to!r:.80}")
    moment = None if timestamp is None else parse_moment(timestamp)
    with open_queue(data, server) as mq:
        queue = mq.queue(topic, group)
        queue.seek(to, offset=offset, timestamp=moment, partition=partition, priority=priority)
        _print(mq, topic, group, as_json=as_json)


@app.command()
def reset(
    topic: TopicArgument,
    group: GroupArgument,
    yes: YesOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a group begin anew: every message that is there comes again, as if for the first time."""
    with open_queue(data, server) as mq:
        _check_exists(mq, topic, group)
        confirm(f"Deliver all of {topic} to {group} once more?", yes=yes, as_json=as_json)
        mq.delete_group(topic, group)
        mq.queue(topic, group).seek("earliest")
        _print(mq, topic, group, as_json=as_json)


@app.command()
def delete(
    topic: TopicArgument,
    group: GroupArgument,
    yes: YesOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget what a group knows of a topic. When it comes back, it begins with the earliest message."""
    with open_queue(data, server) as mq:
        _check_exists(mq, topic, group)
        confirm(f"Forget how far {group} has come in {topic}?", yes=yes, as_json=as_json)
        mq.delete_group(topic, group)
    if as_json:
        print_json({"deleted": group, "topic": topic})
    else:
        print(f"deleted {group} from {topic}")


def _check_exists(mq: AnyEngine, topic: str, group: str) -> None:
    if group not in mq.groups(topic):
        raise GroupNotFound(
            f"{topic} has no group {group}: `quiver group list {topic}` shows those there are"
        )


def _print(mq: AnyEngine, topic: str, group: str, *, as_json: bool) -> None:
    stats = mq.queue(topic, group).stats()
    if as_json:
        print_json(stats.as_dict())
    else:
        print_table(_COLUMNS, [_row(stats)])


def _held_row(held: InFlight) -> tuple[str, ...]:
    times = (held.first_delivered_at, held.last_delivered_at, held.deadline)
    told = ("" if time is None else moment_text(time) for time in times)
    place = (str(held.partition), held.priority, str(held.offset), str(held.attempt))
    return (*place, *told, held.holder or "")


def _row(stats: QueueStats) -> tuple[str, ...]:
    counts = (stats.pending, stats.in_flight, stats.retrying, stats.waiting_for_key, stats.backlog)
    return (stats.topic, stats.group, *map(str, counts), state_text(stats.state))
