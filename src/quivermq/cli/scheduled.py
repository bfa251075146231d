"""`quiver scheduled`: the delayed messages of a topic, and calling one off."""

from typing import Annotated

import typer
from typer import Argument, Option

from quivermq.cli.command import on_queue
from quivermq.cli.connecting import open_queue, open_to_look
from quivermq.cli.durations import moment_text
from quivermq.cli.options import TopicArgument
from quivermq.cli.output import CommandResult, TextTable, counted, shown
from quivermq.errors import NotFound
from quivermq.model.json import listed_json
from quivermq.model.messages import Scheduled
from quivermq.queue.connection import Connection

app = typer.Typer(help="Look at delayed messages and cancel them.", no_args_is_help=True)

IdsArgument = Annotated[list[str], Argument(metavar="ID...", help="What `quiver put` called them.")]

_LISTED = ("id", "deliver_at", "partition", "priority", "timestamp")


@app.command("list")
@on_queue(open_to_look)
def list_scheduled(
    topic: TopicArgument,
    limit: Annotated[int, Option(help="How many at most.", min=1)] = 100,
    *,
    mq: Connection,
) -> CommandResult:
    """List the messages that wait for their time, the next one first."""
    mq.topic(topic)
    waiting = mq.queue(topic).scheduled(limit)
    return CommandResult(
        {"scheduled": [listed_json(message, _LISTED) for message in waiting]},
        TextTable(
            ("id", "due", "partition", "priority", "key", "value"), [_row(message) for message in waiting]
        ),
    )


@app.command()
@on_queue(open_queue)
def cancel(topic: TopicArgument, scheduled_ids: IdsArgument, mq: Connection) -> CommandResult:
    """Call delayed messages off. Exits with 3 when none of them waits, or no longer."""
    mq.topic(topic)
    return _result("cancelled", topic, scheduled_ids, mq.queue(topic).cancel_many(scheduled_ids))


@app.command()
@on_queue(open_queue)
def deliver(topic: TopicArgument, scheduled_ids: IdsArgument, mq: Connection) -> CommandResult:
    """Let delayed messages come now. Exits with 3 when none of them waits, or no longer."""
    mq.topic(topic)
    delivered = sum(map(mq.queue(topic).deliver_now, scheduled_ids))
    return _result("delivered", topic, scheduled_ids, delivered)


def _result(done: str, topic: str, scheduled_ids: list[str], count: int) -> CommandResult:
    if not count:
        is_one = len(scheduled_ids) == 1
        wait, they = ("does not wait", "it never was") if is_one else ("do not wait", "they never were")
        raise NotFound(
            f"{', '.join(scheduled_ids)[:300]} {wait} in {topic}:"
            f" delivered or cancelled before, or {they} there"
        )
    return CommandResult({done: count}, f"{done} {counted(count, 'message')}")


def _row(message: Scheduled) -> tuple[object, ...]:
    return (
        message.id,
        moment_text(message.deliver_at),
        message.partition,
        message.priority,
        shown(message.key, 30),
        shown(message.value),
    )
