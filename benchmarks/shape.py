"""The two kinds of messages that every row is measured with. It loads nothing that takes long.

A plain message is a value of 100 bytes and nothing else. A real one has what messages of programs have
besides: a key of 16 bytes, two headers and a timestamp.
"""

from typing import Literal

Shape = Literal["plain", "real"]
SHAPES: tuple[Shape, ...] = ("plain", "real")

MESSAGE_BYTES = 100
KEY_BYTES = 16
TRACE, TYPE = "trace", "type"
TYPES = (b"order.created", b"order.paid", b"order.shipped", b"order.returned")
# Any fixed moment will do.
TIME_US = 1_700_000_000_000_000
