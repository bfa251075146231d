"""`quiver compact`: remove now what the settings no longer keep."""

from dataclasses import asdict
from typing import Annotated

from typer import Option

from quivermq.cli.command import on_queue
from quivermq.cli.connecting import open_queue
from quivermq.cli.output import CommandResult, counted, size_text
from quivermq.queue.connection import Connection


@on_queue(open_queue)
def command(
    mq: Connection,
    archived: Annotated[
        bool, Option("--archived", help="Also what is archived, once all groups have finished with it.")
    ] = False,
) -> CommandResult:
    """Remove what the settings of the topics no longer keep, and shorten the journals of the groups.

    A queue that is open does this by itself from time to time.
    """
    removed = mq.compact(archived=archived)
    parts = counted(removed.segments, "segment"), counted(removed.messages, "message")
    return CommandResult(asdict(removed), f"removed {', '.join(parts)}, {size_text(removed.bytes)}")
