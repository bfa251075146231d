"""Which deduplication ids are remembered, and until when: for the topic's window, or for their own."""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

# So many ends of ids that are gone may lie in the heap besides those that count.
_STALE_MAX = 1000


class Sighting(NamedTuple):
    """Where the first message of an id is, or is to come, and when it was seen.

    One that is delayed will come to `floor` or behind it: before that are older ones of its id. The offset
    of one that is in no lane here is ELSEWHERE.
    """

    time: int
    partition: int
    lane: int
    offset: int | None
    scheduled_id: str | None = None
    floor: int = 0
    until: int | None = None
    """When the id is forgotten, where the message has a window of its own."""

    def can_be(self, partition: int, lane: int, offset: int) -> bool:
        """Whether a message that was delayed may be the one that is there now."""
        is_there = (self.partition, self.lane) == (partition, lane)
        return self.offset is None and is_there and offset >= self.floor

    def is_at(self, partition: int, lane: int, offset: int) -> bool:
        """Whether it is about the message there."""
        return (self.partition, self.lane, self.offset) == (partition, lane, offset)


class Sightings:
    """Sightings by id. Not thread-safe.

    Those with the topic's window are forgotten in the order in which they came, the others by their ends.
    """

    def __init__(self) -> None:
        self._usual: OrderedDict[str, Sighting] = OrderedDict()
        self._own: OrderedDict[str, Sighting] = OrderedDict()
        # (until, id); an entry counts only while `_own` says the same.
        self._ends: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._usual) + len(self._own)

    def __contains__(self, dedup_id: str) -> bool:
        return dedup_id in self._usual or dedup_id in self._own

    def __iter__(self) -> Iterator[tuple[str, Sighting]]:
        yield from self._usual.items()
        yield from self._own.items()

    def get(self, dedup_id: str) -> Sighting | None:
        return self._usual.get(dedup_id) or self._own.get(dedup_id)

    def add(self, dedup_id: str, sighting: Sighting) -> None:
        """Take in an id that is not there."""
        if sighting.until is None:
            self._usual[dedup_id] = sighting
            return
        self._own[dedup_id] = sighting
        heappush(self._ends, (sighting.until, dedup_id))
        if len(self._ends) > 2 * len(self._own) + _STALE_MAX:
            self._ends = [(seen.until or 0, each) for each, seen in self._own.items()]
            heapify(self._ends)

    def pop(self, dedup_id: str) -> Sighting | None:
        return self._usual.pop(dedup_id, None) or self._own.pop(dedup_id, None)

    def oldest(self) -> str:
        """The id that was seen first."""
        heads = [next(iter(part.items())) for part in (self._usual, self._own) if part]
        return min(heads, key=lambda head: head[1].time)[0]

    def is_over(self, sighting: Sighting, oldest_us: int, now_us: int) -> bool:
        """Whether a window is over; that of the topic reaches back to `oldest_us`."""
        return sighting.time < oldest_us if sighting.until is None else sighting.until < now_us

    def over(self, oldest_us: int, now_us: int) -> list[str]:
        """The ids whose windows are over."""
        found = []
        for dedup_id, seen in self._usual.items():
            if seen.time >= oldest_us:
                break
            found.append(dedup_id)
        while self._ends and self._ends[0][0] < now_us:
            until, dedup_id = heappop(self._ends)
            own = self._own.get(dedup_id)
            if own is not None and own.until == until:
                found.append(dedup_id)
        return found

    def sort(self) -> None:
        """Put them in the order in which they were seen."""
        for part in (self._usual, self._own):
            ordered = sorted(part.items(), key=lambda item: item[1].time)
            part.clear()
            part.update(ordered)
