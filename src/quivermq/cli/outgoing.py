"""How messages are written to standard output, one after the other, so that they fit into a pipe."""

import json
import select
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from typer import Option

from quivermq.model.json import listed_json

# What is written of each message.
OutputFormat = Literal["value", "null", "raw", "ndjson"]
FormatOption = Annotated[
    OutputFormat,
    Option(
        "--format",
        help="`value`: one value a line; `null`: each ended by a zero byte; `raw`: the bytes alone;"
        " `ndjson`: all of a message as a line of JSON.",
    ),
]

_ENDS: dict[OutputFormat, bytes] = {"value": b"\n", "null": b"\0", "raw": b""}


def encoder(shape: OutputFormat, names: Iterable[str]) -> Callable[[Iterable[Any]], bytes]:
    """A function that turns messages into what is written. `names` are the attributes that JSON tells."""
    if shape == "ndjson":
        fields = tuple(names)
        return lambda messages: b"".join([_line(listed_json(message, fields)) for message in messages])
    end = _ENDS[shape]
    return lambda messages: b"".join([message.value + end for message in messages])


def writer(shape: OutputFormat, names: Iterable[str]) -> Callable[[Iterable[Any]], None]:
    """A function that writes messages and returns once they are flushed.

    It raises BrokenPipeError when nobody reads any more.
    """
    encode = encoder(shape, names)
    return lambda messages: write_all(encode(messages))


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
    number = output_number()
    if number is None:
        return
    poll = select.poll()
    poll.register(number, 0)
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError


def output_number() -> int | None:
    """The descriptor of standard output; None where that is no file of the system but in memory."""
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError):
        return None
