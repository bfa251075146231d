"""Many messages in parts that fit into a frame each."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from quivermq.settings import StorageSettings

T = TypeVar("T")

_MESSAGES = 10_000
_BYTES = 4 * 1024 * 1024
# What a frame takes for a message besides its bytes, at most.
OVERHEAD_BYTES = 64


class FrameLimits(NamedTuple):
    """How much goes into one frame."""

    messages: int
    bytes: int

    @classmethod
    def of(cls, settings: StorageSettings) -> "FrameLimits":
        """Far enough from the limits of a log that a frame, with all its columns, is within them."""
        smallest = min(settings.frame_bytes_max, settings.frame_raw_bytes_max)
        return cls(min(_MESSAGES, settings.frame_messages_max), min(_BYTES, smallest // 2))


def split(items: Iterable[T], size_of: Callable[[T], int], limits: FrameLimits) -> Iterator[list[T]]:
    """The items in order; one that is larger than the limit is alone."""
    part: list[T] = []
    size = 0
    for item in items:
        own = size_of(item) + OVERHEAD_BYTES
        if part and (len(part) >= limits.messages or size + own > limits.bytes):
            yield part
            part, size = [], 0
        part.append(item)
        size += own
    if part:
        yield part
