"""A request as plain bytes. Generators of load import this, so it loads nothing that takes long."""

from dataclasses import dataclass

from benchmarks.shape import MESSAGE_BYTES, TIME_US, TRACE, TYPE, TYPES

# Stands in a request for the number of its connection.
CONNECTION = b"{connection}"

# A message in ASCII without a brace or a line break, so that the marks below are found in answers only.
VALUE = (b"0123456789abcdef" * 7)[:MESSAGE_BYTES]
# And what a real one has besides. All of it is in ASCII, because protocols have it in their text.
KEY = b"customer-0000042"
HEADERS = {TRACE: b"4bf92f3577b34da6", TYPE: TYPES[0]}
# A key and a time are headers like others where messages have only these.
FIELDS = {"key": KEY, **HEADERS, "time": b"%d" % TIME_US}


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes to send, and how the end of the answer is seen: by counting one byte in what comes."""

    data: bytes
    mark: bytes
    marks: int = 1
    messages: int = 1
    greeting: bytes = b""
    """Sent once when a connection is made."""
    greeted: bytes = b""
    """How the answer to the greeting ends."""
    depth: int = 1
    """How many requests are under way on a connection."""


# How the broker and its HTTP without a queue answer a publish; only the offset differs.
ANSWER = (
    b'{"topic":"bench","partition":0,"priority":"normal","offset":100000,"duplicate":false,'
    b'"scheduled_id":null}'
)
