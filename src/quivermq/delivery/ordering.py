"""Order inside a key: of each key, only the oldest message that is not finished may be delivered."""

from collections import deque
from typing import NamedTuple


class LaneOffset(NamedTuple):
    """A message of a partition."""

    lane: int
    offset: int


class KeyOrder:
    """The messages of each key that are in flight or wait for their turn, in the order they came.

    The first one of a key is at the front: it may be delivered, again and again, until it leaves.
    """

    def __init__(self) -> None:
        self._lines: dict[bytes, deque[LaneOffset]] = {}
        self._keys: dict[LaneOffset, bytes] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def enter(self, key: bytes | None, message: LaneOffset) -> bool:
        """Join the line of a key. True when nobody is before it. Without a key there is no line."""
        if key is None:
            return True
        line = self._lines.setdefault(key, deque())
        line.append(message)
        self._keys[message] = key
        return len(line) == 1

    def leave(self, message: LaneOffset) -> LaneOffset | None:
        """Take a finished message out of its line, and return the one whose turn it is now, if any."""
        key = self._keys.pop(message, None)
        if key is None:
            return None
        line = self._lines[key]
        was_first = line[0] == message
        line.remove(message)
        if not line:
            del self._lines[key]
            return None
        return line[0] if was_first else None

    def is_first(self, message: LaneOffset) -> bool:
        """Whether it is this message's turn."""
        key = self._keys.get(message)
        return key is None or self._lines[key][0] == message
