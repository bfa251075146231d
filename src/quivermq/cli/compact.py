"""`quiver compact`: remove now what the settings no longer keep."""

from dataclasses import asdict

from quivermq.cli.output import JsonOption, counted, print_json, size_text
from quivermq.cli.place import DataOption, ServerOption, open_queue


def command(data: DataOption = None, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Remove what the settings of the topics no longer keep, and shorten the journals of the groups.

    A queue that is open does this by itself from time to time.
    """
    with open_queue(data, server) as mq:
        removed = mq.compact()
    if as_json:
        print_json(asdict(removed))
    else:
        parts = counted(removed.segments, "segment"), counted(removed.messages, "message")
        print(f"removed {', '.join(parts)}, {size_text(removed.bytes)}")
