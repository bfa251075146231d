"""When leases run out: those of all lanes of a partition, whoever has them."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from quivermq.delivery.state import LaneState
from quivermq.model.deliveries import Lease

# So many leases that were settled may be kept beside those that were not.
_SETTLED_MAX = 1000


class ExpiredLease(NamedTuple):
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

    def take_due(self, now_us: int) -> Iterator[ExpiredLease]:
        """The leases that are over, and not settled."""
        while self.is_due(now_us):
            _, _, lane, lease, offsets = heappop(self._heap)
            leases = self._lanes[lane].leases
            held = [offset for offset in offsets if leases.get(offset) is lease]
            if held:
                yield ExpiredLease(lane, lease, held)

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
