"""How much is due when: counted from what is known already, so that nothing has to be read for it.

The ranks that come next are in memory, and exact. Of what is on disk alone it is known how much each bucket
holds: that is spread evenly over the span of the bucket, which is the narrower the sooner it is due.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from quivermq.topic.delay.message import DUE_SHIFT, offset_of, serial_of
from quivermq.topic.offsets import OffsetSet

# So many ranks are counted at a time: others get a turn in between.
_RANKS_AT_ONCE = 16 * 1024


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
    """How many are due between each two edges, and, last, behind them. Blocks nobody; takes no lock.

    `ranks` are those in memory, which are all that are due before `known_to`, and `spans` the buckets of
    all that waits, in memory or not.
    """
    by_serial = {span.serial: span for span in spans}
    counts, in_memory = [0] * len(edges), Counter[int]()
    limits = [edge << DUE_SHIFT for edge in edges[1:]]
    for part in _parts(ranks):
        waiting = sorted(rank for rank in part if _waits(rank, by_serial))
        in_memory.update(map(serial_of, waiting))
        ends = [0, *(bisect_left(waiting, limit) for limit in limits), len(waiting)]
        for place, (first, behind) in enumerate(pairwise(ends)):
            counts[place] += behind - first
    for span in spans:
        for place, count in _spread(span, span.pending - in_memory[span.serial], known_to, edges):
            counts[place] += count
    return counts


def _parts(ranks: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ranks[start : start + _RANKS_AT_ONCE] for start in range(0, len(ranks), _RANKS_AT_ONCE))


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
    for place, (_, end) in enumerate(pairwise(bounds)):
        upto = count * (end - low) // (high - low)
        if upto > given:
            yield place, upto - given
        given = max(given, upto)
