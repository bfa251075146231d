"""What waits: the buckets, how far each epoch is released, and what comes next.

Time may have been set back since the last run. Then messages come that rank before what was released
already; they begin a new epoch, with a watermark of its own, and wait like all others.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from quivermq.log import DataDirectory, Log
from quivermq.settings import StorageSettings
from quivermq.topic.delay.buckets import HOUR_US, Bucket, Buckets, Serials
from quivermq.topic.delay.journal import DelayState, Intent
from quivermq.topic.delay.message import (
    RANK_END,
    Delayed,
    WaitingMessage,
    batches,
    columns_of,
    due_of,
    offset_of,
    rank_of,
    serial_of,
    stored_key,
)
from quivermq.topic.delay.reading import BucketRange, due_at, fetch, gather, survey
from quivermq.topic.delay.upcoming import Lowest, Span, Upcoming

# Only what is due by then is looked for on disk.
LOAD_AHEAD_US = 6 * HOUR_US
# An empty bucket of this size goes at once, a smaller one when nothing more can come into it.
_EMPTY_BYTES_MAX = 1024 * 1024


class Written(NamedTuple):
    """Messages that are in the log of a bucket."""

    log: Log
    base: int
    end: int


class Search(NamedTuple):
    """What to look for on disk, and where: everything that waits from `low` up to `high`, or more."""

    low: int
    high: int
    sources: list[BucketRange]
    # Nothing waits in other buckets before this rank.
    others: int


class Waiting:
    """Not thread-safe: the store's lock guards it."""

    def __init__(
        self, directory: DataDirectory, name: str, settings: StorageSettings, serials: Serials
    ) -> None:
        self._settings = settings
        self.upcoming = Upcoming()
        self.buckets = Buckets(directory, name, settings, serials)
        self.watermarks: dict[int, int] = {}
        self.epoch = 0
        self.pending = 0

    def configure(self, settings: StorageSettings) -> None:
        self._settings = settings
        self.buckets.configure(settings)

    def restore(self, buckets: Iterable[Bucket], state: DelayState) -> list[tuple[int, int]]:
        """Take in what is on disk, and what the journal says of it.

        Returns the serial numbers and ends of the buckets from which a power loss took what was cancelled.
        """
        self.watermarks = state.watermarks
        self.buckets.next_serial = max(self.buckets.next_serial, state.next_serial)
        self.epoch = max(state.watermarks, default=0)
        cuts = []
        for bucket in buckets:
            end = self.buckets.log(bucket).end
            cancelled = bucket.cancelled = state.cancelled.get(bucket.serial, bucket.cancelled)
            if cancelled.floor > end or cancelled.runs()[-1:] > [end]:
                cancelled.cut(end)
                cuts.append((bucket.serial, end))
            self._add(bucket)
        if self.pending:
            self.upcoming.loaded_to = 0
        return cuts

    def _add(self, bucket: Bucket) -> None:
        self.buckets.add(bucket)
        self.epoch = max(self.epoch, bucket.epoch)
        source = self.source(bucket)
        if bucket.start_us > due_of(source.low):
            bucket.pending = source.end - source.log.start - len(bucket.cancelled)
        else:
            bucket.pending, bucket.gaps = survey(source)
        self.pending += bucket.pending

    # Coming and going.

    def put(self, messages: Sequence[Delayed], now_us: int) -> tuple[list[int | None], list[Written]]:
        """Write messages to their buckets, all or none: their ranks, None for those that are due."""
        groups: dict[int, list[int]] = {}
        # Nobody says what time it is, and it does not matter much: it decides how wide a bucket is.
        put_us = max(now_us, min((message.timestamp for message in messages), default=0))
        for index, message in enumerate(messages):
            if message.due > max(now_us, 0):
                bucket = self._bucket_for(message.due, put_us)
                groups.setdefault(bucket.serial, []).append(index)
        written: list[Written] = []
        try:
            for serial, indexes in groups.items():
                # As far as possible in order already: then fewer frames have to be read for one moment.
                indexes.sort(key=lambda index: messages[index].due)
                written.append(self._write(serial, [messages[index] for index in indexes]))
        except BaseException:
            # The caller will come again with all of them. In place, because a full disk has no room for
            # anything else, and nobody maps what waits.
            for part in written:
                part.log.truncate(part.base, in_place=True)
            raise
        ranks: list[int | None] = [None] * len(messages)
        for (serial, indexes), part in zip(groups.items(), written, strict=True):
            for offset, index in enumerate(indexes, part.base):
                ranks[index] = rank_of(messages[index].due, serial, offset)
            self._count(serial, len(indexes))
        self.upcoming.add(rank for rank in ranks if rank is not None)
        return ranks, written

    def _bucket_for(self, due: int, put_us: int) -> Bucket:
        if due <= due_of(self.watermarks.get(self.epoch, 0)):
            self.epoch += 1
        return self.buckets.for_message(self.epoch, due, put_us)

    def _write(self, serial: int, messages: list[Delayed]) -> Written:
        log = self.log_of(serial)
        runs = batches(messages, self._settings)
        base = log.append_batches(map(_columns, runs), durability="os")
        return Written(log, base, base + len(messages))

    def _count(self, serial: int, more: int) -> None:
        self.buckets[serial].pending += more
        self.pending += more

    def cancel(self, rank: int) -> None:
        """It waits no longer."""
        self.buckets[serial_of(rank)].cancelled.add([offset_of(rank)])
        self._count(serial_of(rank), -1)

    def cancel_all(self) -> list[tuple[int, int]]:
        """Nothing waits any longer: returns each bucket and the end of its log."""
        emptied = []
        for bucket in self.buckets:
            if bucket.pending:
                end = self.buckets.log(bucket).end
                bucket.cancelled.raise_floor(end)
                self._count(bucket.serial, -bucket.pending)
                emptied.append((bucket.serial, end))
        return emptied

    def release(self, epoch: int, batch: list[WaitingMessage]) -> None:
        """They wait no longer, nor does anything else of the epoch up to the last of them."""
        self.watermarks[epoch] = batch[-1].rank
        for message in batch:
            self._count(serial_of(message.rank), -1)

    def empty(self, now_us: int) -> list[Bucket]:
        """The buckets of which nothing waits, and that may go."""
        return [bucket for bucket in self.buckets if self._may_go(bucket, now_us)]

    def _may_go(self, bucket: Bucket, now_us: int) -> bool:
        if bucket.pending:
            return False
        return bucket.end_us <= now_us or self.buckets.log(bucket).size_bytes >= _EMPTY_BYTES_MAX

    def state(self, removed: set[int]) -> DelayState:
        """What the journal has to know when all intents are over."""
        epochs = {self.epoch, *(bucket.epoch for bucket in self.buckets)}
        self.watermarks = {epoch: mark for epoch, mark in self.watermarks.items() if epoch in epochs}
        cancelled = {bucket.serial: bucket.cancelled for bucket in self.buckets if bucket.cancelled}
        return DelayState(self.watermarks, cancelled, removed, [], self.buckets.next_serial)

    # Asking.

    def waits(self, rank: int) -> bool:
        """Whether a message that has been there is neither released nor cancelled."""
        bucket = self.buckets.get(serial_of(rank))
        if bucket is None or rank <= self.watermarks.get(bucket.epoch, 0):
            return False
        return offset_of(rank) not in bucket.cancelled

    def is_there(self, rank: int) -> bool:
        """Whether such a message waits, also of a rank that somebody made up."""
        if not self.waits(rank):
            return False
        bucket = self.buckets[serial_of(rank)]
        if not bucket.start_us <= due_of(rank) < bucket.end_us:
            return False
        return due_at(self.buckets.log(bucket), offset_of(rank)) == due_of(rank)

    def next_due(self) -> int | None:
        """When the next message is due, or when somebody has to look for it on disk."""
        upcoming = self.upcoming
        while upcoming.heap and not self.waits(upcoming.heap[0]):
            heapq.heappop(upcoming.heap)
        if upcoming.heap:
            return due_of(upcoming.heap[0])
        if not self.pending:
            return None
        loaded_to = due_of(upcoming.loaded_to)
        return min(max(bucket.start_us, loaded_to) for bucket in self.buckets if bucket.pending)

    def first(self, count: int) -> list[int]:
        """The first ranks that wait, as far as they are in memory."""
        heap = list(self.upcoming.heap)
        ranks: list[int] = []
        while heap and len(ranks) < count:
            if self.waits(rank := heapq.heappop(heap)):
                ranks.append(rank)
        return ranks

    def log_of(self, serial: int) -> Log:
        return self.buckets.log(self.buckets[serial])

    def epoch_of(self, message: WaitingMessage) -> int:
        return self.buckets[serial_of(message.rank)].epoch

    def source(self, bucket: Bucket) -> BucketRange:
        log, low = self.buckets.log(bucket), self.watermarks.get(bucket.epoch, 0) + 1
        return BucketRange(bucket.serial, log, log.end, low, bucket.cancelled)

    def sources(self) -> list[BucketRange]:
        return [self.source(bucket) for bucket in self.buckets if bucket.pending]

    def spans(self) -> list[Span]:
        """How much waits in each bucket."""
        return [
            Span(bucket.serial, bucket.start_us, bucket.end_us, bucket.pending, bucket.cancelled)
            for bucket in self.buckets
            if bucket.pending
        ]

    def messages_of(self, intent: Intent) -> list[WaitingMessage]:
        """The messages that an intent is about, as far as they are still there."""
        if intent.after == intent.upto:
            # A single one that went before it was due, and so counts as cancelled.
            bucket = self.buckets.get(serial_of(intent.upto))
            # At `os`, a power loss may have taken it.
            if bucket is None or due_at(self.buckets.log(bucket), offset_of(intent.upto)) is None:
                return []
            return fetch([intent.upto], self.log_of)
        buckets = [
            bucket
            for bucket in self.buckets
            if bucket.epoch == intent.epoch and bucket.start_us <= due_of(intent.upto)
        ]
        sources = [self.source(bucket)._replace(low=intent.after + 1) for bucket in buckets]
        ranks = chain.from_iterable(chain.from_iterable(s.ranks(0, intent.upto + 1) for s in sources))
        return fetch(list(ranks), self.log_of)

    # Looking on disk for what comes next. Only `look` takes long, and needs no lock.

    def begin_search(self, now_us: int) -> Search:
        low, high = self.upcoming.loaded_to, rank_of(now_us + LOAD_AHEAD_US, 0, 0)
        buckets = [b for b in self.buckets if b.pending and b.end_us > due_of(low)]
        sources = [self.source(bucket) for bucket in buckets if bucket.start_us < due_of(high)]
        starts = [bucket.start_us for bucket in buckets if bucket.start_us >= due_of(high)]
        self.upcoming.begin_load()
        return Search(low, high, sources, rank_of(min(starts), 0, 0) if starts else RANK_END)

    def end_search(self, ranks: list[int], loaded_to: int, gaps: dict[int, int]) -> None:
        self.upcoming.end_load(ranks, loaded_to)
        for serial, count in gaps.items():
            self._count(serial, self.buckets[serial].gaps - count)
            self.buckets[serial].gaps = count


def look(search: Search) -> tuple[list[int], int, dict[int, int]]:
    """The ranks that were found, up to which rank these are all, and how many gaps each bucket has."""
    found = Lowest(search.high)
    loaded_to, gaps = search.others, {}
    for source in search.sources:
        beyond, gaps[source.serial] = gather(source, search.low, found)
        loaded_to = min(loaded_to, beyond)
    return found.ranks, found.end if found.end < search.high else loaded_to, gaps


def _columns(messages: Sequence[Delayed]) -> dict[str, Any]:
    keys = [stored_key(message) for message in messages]
    return columns_of(messages, keys, [message.due for message in messages])
