"""`quiver scheduled`: the delayed messages of a topic, and calling one off."""

from typing import Annotated

import typer

from quivermq.cli.durations import moment_text
from quivermq.cli.messages import message_as_json, shown
from quivermq.cli.output import JsonOption, print_json, print_table
from quivermq.cli.place import DataOption, ServerOption, TopicArgument, open_queue
from quivermq.errors import NotFound
from quivermq.topic.delay import Scheduled

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
    with open_queue(data, server) as mq:
        mq.topic(topic)
        waiting = mq.queue(topic).scheduled(limit)
    if as_json:
        print_json({"scheduled": [message_as_json(message, _TOLD) for message in waiting]})
    else:
        print_table(
            ("id", "due", "partition", "priority", "key", "value"), [_row(message) for message in waiting]
        )


@app.command()
def cancel(
    topic: TopicArgument,
    scheduled_id: Annotated[str, typer.Argument(metavar="ID", help="What `quiver put` called it.")],
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a delayed message off. Exits with 3 when it does not wait, or no longer."""
    with open_queue(data, server) as mq:
        mq.topic(topic)
        if not mq.queue(topic).cancel(scheduled_id):
            raise NotFound(
                f"{scheduled_id} does not wait in {topic}: it was delivered or cancelled, or never was"
            )
    if as_json:
        print_json({"cancelled": scheduled_id})
    else:
        print(f"cancelled {scheduled_id}")


def _row(message: Scheduled) -> tuple[str, ...]:
    return (
        message.id,
        moment_text(message.deliver_at),
        str(message.partition),
        message.priority,
        shown(message.key, 30),
        shown(message.value),
    )
