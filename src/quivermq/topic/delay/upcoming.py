"""What comes next, and how much is due when, by what is in memory: all else that waits is on disk only.

Everything that waits and ranks before `loaded_to` is in memory. Where that would be too much, the last ones
are forgotten again and `loaded_to` goes back: they are loaded anew when it is their turn.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from quivermq.topic.delay.message import DUE_SHIFT, RANK_END, offset_of, serial_of
from quivermq.topic.offsets import OffsetSet

# About 56 bytes each. Twice as many are there at most.
RANKS_MAX = 256 * 1024
# So many ranks are counted at a time: others get a turn in between.
_RANKS_AT_ONCE = 16 * 1024


class Upcoming:
    """The ranks that come next. Not thread-safe: the store's lock guards it."""

    def __init__(self) -> None:
        self.heap: list[int] = []
        # Nothing waits anywhere, so nothing has to be loaded.
        self.loaded_to = RANK_END
        self._arrivals: list[int] | None = None

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

    def __init__(self, end: int) -> None:
        self.ranks: list[int] = []
        # Everything that was given and ranks before this is here.
        self.end = end

    def add(self, ranks: list[int]) -> None:
        self.ranks += ranks
        if len(self.ranks) > 2 * RANKS_MAX:
            self.ranks.sort()
            self.end = self.ranks[RANKS_MAX]
            del self.ranks[RANKS_MAX:]


class Span(NamedTuple):
    """How much waits in a bucket, and when it is due."""

    serial: int
    start_us: int
    end_us: int
    pending: int
    cancelled: OffsetSet


def count_by_time(
    ranks: Sequence[int], known_to: int, spans: Sequence[Span], edges: Sequence[int]
) -> list[int]:
    """How many are due between each two edges, and, last, behind them. Takes no lock and reads nothing.

    `ranks` are those in memory, which are all that are due before `known_to`, and exact. `spans` are the
    buckets of all that waits: what is on disk alone is spread evenly over the span of its bucket, which is
    the narrower the sooner it is due.
    """
    by_serial = {span.serial: span for span in spans}
    counts, in_memory = [0] * len(edges), Counter[int]()
    limits = [edge << DUE_SHIFT for edge in edges[1:]]
    for start in range(0, len(ranks), _RANKS_AT_ONCE):
        waiting = sorted(r for r in ranks[start : start + _RANKS_AT_ONCE] if _waits(r, by_serial))
        in_memory.update(map(serial_of, waiting))
        ends = [0, *(bisect_left(waiting, limit) for limit in limits), len(waiting)]
        for index, (first, behind) in enumerate(pairwise(ends)):
            counts[index] += behind - first
    for span in spans:
        for index, count in _spread(span, span.pending - in_memory[span.serial], known_to, edges):
            counts[index] += count
    return counts


def _waits(rank: int, by_serial: dict[int, Span]) -> bool:
    span = by_serial.get(serial_of(rank))
    return span is not None and offset_of(rank) not in span.cancelled


def _spread(span: Span, count: int, known_to: int, edges: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Share what is left of a bucket among the spans that it overlaps, each time rounding what is left."""
    if count <= 0:
        return
    low, high = max(span.start_us, min(known_to, span.end_us - 1)), span.end_us
    bounds = [low, *(min(max(edge, low), high) for edge in edges[1:]), high]
    given = 0
    for index, (_, end) in enumerate(pairwise(bounds)):
        upto = count * (end - low) // (high - low)
        if upto > given:
            yield index, upto - given
        given = max(given, upto)
