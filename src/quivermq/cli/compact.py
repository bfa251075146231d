"""`quiver compact`: remove now what the settings no longer keep."""

from dataclasses import asdict
from typing import Annotated

import typer

from quivermq.cli.output import JsonOption, counted, print_json, size_text
from quivermq.cli.place import DataOption, ServerOption, open_queue

ArchivedOption = Annotated[
    bool,
    typer.Option("--archived", help="Also what is archived, once all groups have finished with it."),
]


def command(
    data: DataOption = None,
    server: ServerOption = None,
    archived: ArchivedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what the settings of the topics no longer keep, and shorten the journals of the groups.

    A queue that is open does this by itself from time to time.
    """
    with open_queue(data, server) as mq:
        removed = mq.compact(archived=archived)
    if as_json:
        print_json(asdict(removed))
    else:
        parts = counted(removed.segments, "segment"), counted(removed.messages, "message")
        print(f"removed {', '.join(parts)}, {size_text(removed.bytes)}")
