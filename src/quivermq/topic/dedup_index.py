"""The deduplication ids that a topic remembers: where the first message of each is, and until when.

An id is remembered for the topic's window, or for one of its own. Of some only the hash is known, because
the queue that they were taken over from kept no more: such an id is `sha256:` and 64 hex digits, and stands
for every id that has this hash.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from quivermq.clock import SteadyClock
from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.frame import OFFSET_MAX
from quivermq.model.adoption import AdoptedId
from quivermq.model.checks import check_dedup_id, check_number, check_partition, moment_us
from quivermq.model.lanes import lane_number
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic.partition import Partition

# The offset of a message that was not here but in another queue.
ELSEWHERE = -1
ADOPTED_MAX = 10_000

# So many ends of ids that are gone may lie in the heap besides those that count.
_STALE_MAX = 1000
_HASH_PREFIX = "sha256:"
_HASHED_LENGTH = len(_HASH_PREFIX) + 64


class DedupEntry(NamedTuple):
    """Where the first message of an id is, or is to come, and when it was put.

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

    def arrived(self, offset: int) -> "DedupEntry":
        """The same for a message that was delayed, now that it is in its lane."""
        return DedupEntry(self.time, self.partition, self.lane, offset, until=self.until)

    def is_over(self, oldest_us: int, now_us: int) -> bool:
        """Whether the window is over; that of the topic reaches back to `oldest_us`."""
        return self.time < oldest_us if self.until is None else self.until < now_us


class DedupIndex:
    """Entries by id, at most `entries_max`. Not thread-safe.

    Those with the topic's window are forgotten in the order in which they came, the others by their ends.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._usual: OrderedDict[str, DedupEntry] = OrderedDict()
        self._own: OrderedDict[str, DedupEntry] = OrderedDict()
        # (until, id); one counts only while `_own` says the same.
        self._ends: list[tuple[int, str]] = []
        # How many of the ids stand for others.
        self._hashed = 0
        self.scheduled: set[str] = set()
        """The ids of messages that are delayed."""

    def __len__(self) -> int:
        return len(self._usual) + len(self._own)

    def __contains__(self, dedup_id: str) -> bool:
        return dedup_id in self._usual or dedup_id in self._own

    def __iter__(self) -> Iterator[tuple[str, DedupEntry]]:
        yield from self._usual.items()
        yield from self._own.items()

    def get(self, dedup_id: str) -> DedupEntry | None:
        """What is remembered of an id, perhaps for longer than it should be."""
        return self._usual.get(dedup_id) or self._own.get(dedup_id)

    def find(self, dedup_id: str, oldest_us: int, now_us: int) -> DedupEntry | None:
        """The first message of an id, or of one that has the same hash, if its window is not over."""
        for gone in self._over(oldest_us, now_us):
            self.remove(gone)
        entry = self.get(dedup_id)
        if entry is None and self._hashed:
            entry = self.get(_HASH_PREFIX + sha256(dedup_id.encode()).hexdigest())
        return None if entry is None or entry.is_over(oldest_us, now_us) else entry

    def add(self, dedup_id: str, entry: DedupEntry) -> None:
        """Remember this of an id from now on."""
        self.remove(dedup_id)
        if entry.until is None:
            self._usual[dedup_id] = entry
        else:
            self._own[dedup_id] = entry
            self._note_end(entry.until, dedup_id)
        self._hashed += _is_hashed(dedup_id)
        if entry.offset is None:
            self.scheduled.add(dedup_id)
        # Full means that the oldest go, never that a new one goes untracked.
        while len(self) > self._entries_max:
            self.remove(self._oldest())

    def remove(self, dedup_id: str) -> None:
        """Forget an id, if it is remembered."""
        if (self._usual.pop(dedup_id, None) or self._own.pop(dedup_id, None)) is not None:
            self._hashed -= _is_hashed(dedup_id)
        self.scheduled.discard(dedup_id)

    def configure(self, entries_max: int) -> None:
        """Remember so many ids from now on."""
        self._entries_max = entries_max
        while len(self) > entries_max:
            self.remove(self._oldest())

    def sort(self) -> None:
        """Put them in the order in which they came."""
        for part in (self._usual, self._own):
            ordered = sorted(part.items(), key=lambda item: item[1].time)
            part.clear()
            part.update(ordered)

    def _oldest(self) -> str:
        heads = [next(iter(part.items())) for part in (self._usual, self._own) if part]
        return min(heads, key=lambda head: head[1].time)[0]

    def _over(self, oldest_us: int, now_us: int) -> list[str]:
        """The ids whose windows are over."""
        found = []
        for dedup_id, entry in self._usual.items():
            if entry.time >= oldest_us:
                break
            found.append(dedup_id)
        while self._ends and self._ends[0][0] < now_us:
            until, dedup_id = heappop(self._ends)
            own = self._own.get(dedup_id)
            if own is not None and own.until == until:
                found.append(dedup_id)
        return found

    def _note_end(self, until: int, dedup_id: str) -> None:
        heappush(self._ends, (until, dedup_id))
        if len(self._ends) > 2 * len(self._own) + _STALE_MAX:
            self._ends = [(entry.until or 0, each) for each, entry in self._own.items()]
            heapify(self._ends)


def _is_hashed(dedup_id: str) -> bool:
    """Whether an id stands for others."""
    return len(dedup_id) == _HASHED_LENGTH and dedup_id.startswith(_HASH_PREFIX)


def adopted_entries(
    adopted: Sequence[AdoptedId],
    settings: TopicSettings,
    partitions: Mapping[int, Partition],
    clock: SteadyClock,
) -> list[tuple[str, DedupEntry]]:
    """Ids that another queue knew, as if they had been put here: each is forgotten when it would be there.

    None is remembered for longer than the topic's window. Raises InvalidRequest, OffsetOutOfRange.
    """
    if len(adopted) > ADOPTED_MAX:
        raise InvalidRequest(f"at most {ADOPTED_MAX} ids are adopted at once, not {len(adopted)}")
    window_us, now_us = settings.dedup_window_ms * 1000, clock.now_us()
    entries: list[tuple[str, DedupEntry]] = []
    for each in adopted:
        check_dedup_id(each.dedup_id)
        check_partition(each.partition, settings)
        lane = lane_number(each.priority)
        if each.offset is not None:
            _check_offset(partitions[each.partition], lane, each.offset)
        expires_us = clock.from_wall(moment_us("expires_at", each.expires_at))
        if now_us < expires_us and window_us:
            offset = ELSEWHERE if each.offset is None else each.offset
            put_us = min(now_us, expires_us - window_us)
            entries.append((each.dedup_id, DedupEntry(put_us, each.partition, lane, offset)))
    return entries


def _check_offset(partition: Partition, lane: int, offset: int) -> None:
    check_number("offset", offset, 0, OFFSET_MAX)
    log = partition.logs[lane]
    end = 0 if log is None else log.end
    if offset >= end:
        raise OffsetOutOfRange(offset, start=0, end=end)
