"""How messages are written to standard output, one after the other, so that they fit into a pipe."""

import json
import select
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from quivermq.cli.messages import message_as_json


class OutputFormat(StrEnum):
    """What is written of each message."""

    value = "value"
    null = "null"
    raw = "raw"
    ndjson = "ndjson"


FormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--format",
        help="`value`: one value a line; `null`: each ended by a zero byte; `raw`: the bytes alone;"
        " `ndjson`: all of a message as a line of JSON.",
    ),
]
NdjsonOption = Annotated[bool, typer.Option("--json", help="The same as `--format ndjson`.")]

_ENDS = {OutputFormat.value: b"\n", OutputFormat.null: b"\0", OutputFormat.raw: b""}


def encoder(shape: OutputFormat, names: Iterable[str]) -> Callable[[Iterable[Any]], bytes]:
    """A function that turns messages into what is written. `names` are the attributes that JSON tells."""
    told = tuple(names)

    def encode(messages: Iterable[Any]) -> bytes:
        if shape is OutputFormat.ndjson:
            return b"".join([_line(message_as_json(message, told)) for message in messages])
        end = _ENDS[shape]
        return b"".join([message.value + end for message in messages])

    return encode


def writer(shape: OutputFormat, names: Iterable[str]) -> Callable[[Iterable[Any]], None]:
    """A function that writes messages and returns once they are flushed.

    It raises BrokenPipeError when nobody reads any more.
    """
    encode = encoder(shape, names)

    def write(messages: Iterable[Any]) -> None:
        write_all(encode(messages))

    return write


def write_all(data: bytes) -> None:
    """Write to standard output and flush it."""
    # Without a buffer, as with PYTHONUNBUFFERED, a write may take a part and say so. What is left out would
    # be acked all the same.
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def check_reader() -> None:
    """Raise BrokenPipeError when whoever read the output is gone, also while there is nothing to write."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # Not a file of the system, but something in memory.
    poll = select.poll()
    poll.register(number, 0)
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError
