"""`quiver read`: look at the messages of a log without taking them."""

from collections.abc import Iterator
from typing import Annotated

from typer import Option

from quivermq.cli.connecting import open_to_look
from quivermq.cli.durations import moment_text
from quivermq.cli.options import DataOption, NdjsonOption, ServerOption, TopicArgument
from quivermq.cli.outgoing import OutputFormat, writer
from quivermq.cli.output import TextTable, shown
from quivermq.model.json import STORED
from quivermq.model.lanes import Priority, priority_of
from quivermq.model.messages import StoredMessage
from quivermq.queue.queue import Queue

_PAGE_MESSAGES = 1000


def command(
    topic: TopicArgument,
    partition: Annotated[int, Option(help="The partition.", min=0)] = 0,
    start: Annotated[
        int | None, Option(help="The first offset. Without it, the earliest there is.", min=0)
    ] = None,
    limit: Annotated[int, Option(help="How many messages at most.", min=1)] = 100,
    priority: Annotated[str, Option(help="high, normal or low.")] = "normal",
    shape: Annotated[
        OutputFormat | None,
        Option(
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
    lane_priority = priority_of(priority)
    with open_to_look(data, server, is_quiet=True) as mq:
        mq.topic(topic)  # One that is not there is told now, not when something is read.
        pages = _pages(mq.queue(topic), partition, start, limit, lane_priority)
        if shape is None and not as_json:
            rows = [_row(message) for page in pages for message in page]
            TextTable(("offset", "time", "key", "value", "headers"), rows).print()
            return
        write = writer("ndjson" if as_json or shape is None else shape, STORED)
        for page in pages:
            write(page)


def _pages(
    queue: Queue, partition: int, start: int | None, limit: int, priority: Priority
) -> Iterator[list[StoredMessage]]:
    """Up to `limit` messages of one lane, page by page."""
    while limit > 0:
        page = queue.read(partition, start, min(limit, _PAGE_MESSAGES), priority=priority)
        if not page:
            return
        yield page
        start = page[-1].offset + 1
        limit -= len(page)


def _row(message: StoredMessage) -> tuple[object, ...]:
    headers = ", ".join(f"{name}={shown(content, 30)}" for name, content in message.headers.items())
    return (
        message.offset,
        moment_text(message.timestamp),
        shown(message.key, 30),
        shown(message.value),
        headers or "-",
    )
