"""A request as plain bytes. Generators of load import this, so it loads nothing that takes long."""

from dataclasses import dataclass

# Stands in a request for the number of its connection.
CONNECTION = b"{connection}"

# A message in ASCII without a brace or a line break, so that the marks below are found in answers only.
VALUE = (b"0123456789abcdef" * 7)[:100]


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
