"""`quiver read`: look at the messages of a log without taking them."""

from typing import Annotated

import typer

from quivermq.cli.durations import moment_text
from quivermq.cli.looking import Sight, open_sight
from quivermq.cli.messages import STORED, shown
from quivermq.cli.outgoing import NdjsonOption, OutputFormat, writer
from quivermq.cli.output import print_table
from quivermq.cli.place import DataOption, ServerOption, TopicArgument
from quivermq.model.messages import StoredMessage

PartitionOption = Annotated[int, typer.Option("--partition", help="The partition.", min=0)]
PriorityOption = Annotated[str, typer.Option("--priority", help="high, normal or low.")]


def command(
    topic: TopicArgument,
    partition: PartitionOption = 0,
    start: Annotated[
        int | None, typer.Option(help="The first offset. Without it, the earliest there is.", min=0)
    ] = None,
    limit: Annotated[int, typer.Option(help="How many messages at most.", min=1)] = 100,
    priority: PriorityOption = "normal",
    shape: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format",
            help="In place of the table: `value`, `null`, `raw` or `ndjson`, as in `quiver get`.",
        ),
    ] = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: NdjsonOption = False,
) -> None:
    """Show messages of one partition and priority, from an offset on. Nothing is consumed.

    A directory that another process has open is read beside it, as far as it has written.
    """
    with open_sight(data, server, topic, beside=False) as sight:
        if shape is None and not as_json:
            _print(sight, partition, start, limit, priority)
            return
        write = writer(OutputFormat.ndjson if as_json or shape is None else shape, STORED)
        for page in sight.pages(partition, start, limit, priority):
            write(page)


def _print(sight: Sight, partition: int, start: int | None, limit: int, priority: str) -> None:
    messages = [each for page in sight.pages(partition, start, limit, priority) for each in page]
    print_table(("offset", "time", "key", "value", "headers"), [_row(message) for message in messages])


def _row(message: StoredMessage) -> tuple[str, ...]:
    headers = ", ".join(f"{name}={shown(content, 30)}" for name, content in message.headers.items())
    return (
        str(message.offset),
        moment_text(message.timestamp),
        shown(message.key, 30),
        shown(message.value),
        headers or "-",
    )
