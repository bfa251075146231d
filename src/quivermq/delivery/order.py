"""Order inside a key: of each key, only the oldest message that is not finished may be delivered."""

from collections import deque
from typing import NamedTuple


class Place(NamedTuple):
    """A message of a partition."""

    lane: int
    offset: int


class KeyOrder:
    """The messages of each key that are in flight or wait for their turn, in the order they came.

    The first one of a key is at the front: it may be delivered, again and again, until it leaves.
    """

    def __init__(self) -> None:
        self._lines: dict[bytes, deque[Place]] = {}
        self._keys: dict[Place, bytes] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def enter(self, key: bytes | None, place: Place) -> bool:
        """Join the line of a key. True when nobody is before it. Without a key there is no line."""
        if key is None:
            return True
        line = self._lines.setdefault(key, deque())
        line.append(place)
        self._keys[place] = key
        return len(line) == 1

    def leave(self, place: Place) -> Place | None:
        """Take a finished message out of its line, and return the one whose turn it is now, if any."""
        key = self._keys.pop(place, None)
        if key is None:
            return None
        line = self._lines[key]
        was_first = line[0] == place
        line.remove(place)
        if not line:
            del self._lines[key]
            return None
        return line[0] if was_first else None

    def is_first(self, place: Place) -> bool:
        """Whether it is this message's turn."""
        key = self._keys.get(place)
        return key is None or self._lines[key][0] == place
