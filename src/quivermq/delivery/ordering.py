"""Order inside a key: of each key, only the oldest message that is not finished may be delivered."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from quivermq.delivery.state import LaneState
from quivermq.model.deliveries import Lease


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


# So many leases that were settled may be kept beside those that were not.
_SETTLED_MAX = 1000


class Expired(NamedTuple):
    """A lease that has run out, and the messages that still have it."""

    lane: int
    lease: Lease
    offsets: list[int]


class Deadlines:
    """The leases of all lanes, the first to run out first.

    One that is settled is not searched for: it is passed over when its time comes, or swept out with
    others once they are many.
    """

    def __init__(self, lanes: list[LaneState]) -> None:
        self._lanes = lanes
        self._number = count()
        self._heap: list[tuple[int, int, int, Lease, Sequence[int]]] = []
        self._sweep_at = _SETTLED_MAX

    def __len__(self) -> int:
        """How many leases are watched, some of them settled already."""
        return len(self._heap)

    @property
    def next(self) -> int | None:
        """When the next lease runs out, if it is not settled by then."""
        return self._heap[0][0] if self._heap else None

    def is_due(self, now_us: int) -> bool:
        heap = self._heap
        return bool(heap) and heap[0][0] <= now_us

    def has_due(self, now_us: int) -> bool:
        """Whether a lease is over that is not settled. Those that are settled are forgotten on the way."""
        while self.is_due(now_us):
            _, _, lane, lease, offsets = self._heap[0]
            if lease in map(self._lanes[lane].leases.get, offsets):
                return True
            heappop(self._heap)
        return False

    def watch(self, lane: int, lease: Lease, offsets: Sequence[int], deadline: int | None = None) -> None:
        """Tell when the lease of these messages is over, or at another time."""
        heappush(self._heap, (deadline or lease.deadline, next(self._number), lane, lease, offsets))

    def watch_all(self, lane: int, held: Iterable[tuple[Lease, Sequence[int]]]) -> None:
        """The same for all leases of a lane, which may be very many."""
        number = self._number
        self._heap += [(lease.deadline, next(number), lane, lease, offsets) for lease, offsets in held]
        heapify(self._heap)

    def take_due(self, now_us: int) -> Iterator[Expired]:
        """The leases that are over, and not settled."""
        while self.is_due(now_us):
            _, _, lane, lease, offsets = heappop(self._heap)
            leases = self._lanes[lane].leases
            held = [offset for offset in offsets if leases.get(offset) is lease]
            if held:
                yield Expired(lane, lease, held)

    def sweep(self) -> None:
        """Forget the leases that were settled, once they are many."""
        if len(self._heap) <= self._sweep_at:
            return
        lanes = self._lanes
        self._heap = [
            entry for entry in self._heap if entry[3] in map(lanes[entry[2]].leases.get, entry[4])
        ]
        heapify(self._heap)
        self._sweep_at = _SETTLED_MAX + 2 * len(self._heap)
