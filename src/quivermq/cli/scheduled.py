"""`quiver scheduled`: the delayed messages of a topic, and calling one off."""

from typing import Annotated

import typer

from quivermq.cli.durations import moment_text
from quivermq.cli.messages import message_as_json, shown
from quivermq.cli.output import JsonOption, counted, print_json, print_table
from quivermq.cli.place import DataOption, ServerOption, TopicArgument, open_queue, open_to_look
from quivermq.errors import NotFound
from quivermq.model.messages import Scheduled

app = typer.Typer(help="Look at delayed messages and cancel them.", no_args_is_help=True)

_TOLD = ("id", "deliver_at", "partition", "priority", "timestamp")


@app.command("list")
def list_scheduled(
    topic: TopicArgument,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 100,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the messages that wait for their time, the next one first."""
    with open_to_look(data, server) as mq:
        mq.topic(topic)
        waiting = mq.queue(topic).scheduled(limit)
    if as_json:
        print_json({"scheduled": [message_as_json(message, _TOLD) for message in waiting]})
    else:
        print_table(
            ("id", "due", "partition", "priority", "key", "value"), [_row(message) for message in waiting]
        )


IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="What `quiver put` called them.")]


@app.command()
def cancel(
    topic: TopicArgument,
    scheduled_ids: IdsArgument,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call delayed messages off. Exits with 3 when none of them waits, or no longer."""
    with open_queue(data, server) as mq:
        mq.topic(topic)
        cancelled = mq.queue(topic).cancel_many(scheduled_ids)
    _tell("cancelled", topic, scheduled_ids, cancelled, as_json=as_json)


@app.command()
def deliver(
    topic: TopicArgument,
    scheduled_ids: IdsArgument,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let delayed messages come now. Exits with 3 when none of them waits, or no longer."""
    with open_queue(data, server) as mq:
        mq.topic(topic)
        delivered = sum(map(mq.queue(topic).deliver_now, scheduled_ids))
    _tell("delivered", topic, scheduled_ids, delivered, as_json=as_json)


def _tell(done: str, topic: str, scheduled_ids: list[str], count: int, *, as_json: bool) -> None:
    if not count:
        is_one = len(scheduled_ids) == 1
        wait, they = ("does not wait", "it never was") if is_one else ("do not wait", "they never were")
        raise NotFound(
            f"{', '.join(scheduled_ids)[:300]} {wait} in {topic}:"
            f" delivered or cancelled before, or {they} there"
        )
    if as_json:
        print_json({done: count})
    else:
        print(f"{done} {counted(count, 'message')}")


def _row(message: Scheduled) -> tuple[str, ...]:
    return (
        message.id,
        moment_text(message.deliver_at),
        str(message.partition),
        message.priority,
        shown(message.key, 30),
        shown(message.value),
    )
