"""The ranks that come next, in memory; all others are on disk only.

Everything that waits and ranks before `loaded_to` is here. Where that would be too much, the last ones
are forgotten again and `loaded_to` goes back: they are loaded anew when it is their turn.
"""

import heapq
from collections.abc import Iterable

from quivermq.topic.delay.message import RANK_END

# About 56 bytes each. Twice as many are there at most.
RANKS_MAX = 256 * 1024


class Agenda:
    """Not thread-safe: the store's lock guards it."""

    def __init__(self) -> None:
        self.heap: list[int] = []
        # Nothing waits anywhere, so nothing has to be loaded.
        self.loaded_to = RANK_END
        self._arrivals: list[int] | None = None

    @property
    def first(self) -> int | None:
        """The smallest rank that is loaded."""
        return self.heap[0] if self.heap else None

    def add(self, ranks: Iterable[int]) -> None:
        """Take in messages that wait from now on."""
        heap, loaded_to, arrivals = self.heap, self.loaded_to, self._arrivals
        for rank in ranks:
            if rank < loaded_to:
                heapq.heappush(heap, rank)
            elif arrivals is not None:
                arrivals.append(rank)
        # Not while somebody looks for the ranks from `loaded_to` on.
        if len(heap) > 2 * RANKS_MAX and arrivals is None:
            heap.sort()
            self.loaded_to = heap[RANKS_MAX]
            del heap[RANKS_MAX:]

    def take(self, end: int, count: int) -> list[int]:
        """Take out up to `count` ranks before `end`, in order."""
        heap = self.heap
        taken: list[int] = []
        while heap and heap[0] < end and len(taken) < count:
            taken.append(heapq.heappop(heap))
        return taken

    def begin_load(self) -> None:
        """From now on remember what arrives: whoever reads the disk may miss it."""
        self._arrivals = []

    def end_load(self, ranks: list[int], loaded_to: int) -> None:
        """Take in what was found on disk from `loaded_to`, as it was, up to the new one."""
        arrivals, self._arrivals = self._arrivals or [], None
        self.loaded_to = loaded_to
        self.heap += ranks
        heapq.heapify(self.heap)
        self.add(arrivals)

    def give_up_load(self) -> None:
        """Stay as it was: what arrived meanwhile is on disk, where the next one finds it."""
        self._arrivals = None


class Lowest:
    """Gathers ranks and keeps the smallest; forgets the others, but not from where on it did."""

    def __init__(self, end: int, count_max: int = RANKS_MAX) -> None:
        self.ranks: list[int] = []
        # Everything that was given and ranks before this is here.
        self.end = end
        self._count_max = count_max

    def add(self, ranks: list[int]) -> None:
        self.ranks += ranks
        if len(self.ranks) > 2 * self._count_max:
            self.ranks.sort()
            self.end = self.ranks[self._count_max]
            del self.ranks[self._count_max :]
