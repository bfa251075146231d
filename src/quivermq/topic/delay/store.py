"""Messages that wait until they are due.

Two locks, taken in this order: `_releasing` is held by whoever moves messages to their lanes, syncs
included; `_lock` guards what is in memory and the order of what is written, and nobody syncs under it
but to begin, close or remove a file. So a put never waits for a release.

Time may have been set back since the last run. Then messages come that rank before what was released
already; they begin a new epoch, with a watermark of its own, and wait like all others.
"""

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from quivermq.errors import Closing, DiskFull, NotFound, QuiverError
from quivermq.log import DataDirectory, Log
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.delay.agenda import Agenda, Lowest
from quivermq.topic.delay.batch import batches, columns_of
from quivermq.topic.delay.buckets import HOUR_US, Bucket, Buckets, parse_bucket
from quivermq.topic.delay.journal import Intent, Journal, State, Target
from quivermq.topic.delay.message import (
    RANK_END,
    Delayed,
    Scheduled,
    Stored,
    due_of,
    id_of,
    offset_of,
    rank_of,
    rank_of_id,
    serial_of,
    stored_key,
)
from quivermq.topic.delay.reading import Source, dedup_ids, due_at, fetch, gather, survey
from quivermq.topic.delay.release import Released, finish, lanes_of, locate
from quivermq.topic.partition import LANE_NUMBERS
from quivermq.topic.transfer import new_transfer

# Only what is due by then is looked for on disk.
LOAD_AHEAD_US = 6 * HOUR_US
# What is read at a time to be released: a frame holds messages of many due times, so many at once.
_FETCH_MESSAGES = 50_000
_FETCH_BYTES = 16 * 1024 * 1024
# An empty bucket of this size goes at once, a smaller one when nothing more can come into it.
_EMPTY_BYTES_MAX = 1024 * 1024


class DelayStore:
    """The delay store of one topic. Thread-safe.

    `lane` gives the log of a partition and a priority; it is called when messages are due, with no lock
    held that a put needs, and already here, for messages that were on their way when the process died.
    """

    def __init__(
        self,
        directory: DataDirectory,
        name: str,
        settings: StorageSettings,
        lane: Callable[[int, str], Log],
    ) -> None:
        self._directory = directory
        self._name = name
        self._settings = settings
        self._lane = lane
        self._lock = threading.Lock()
        self._releasing = threading.Lock()
        self._agenda = Agenda()
        self._buckets = Buckets(directory, name, settings)
        self._journal = Journal(directory, name)
        self._watermarks: dict[int, int] = {}
        self._epoch = 0
        self._unsafe: deque[Intent] = deque()
        self._removing: set[int] = set()
        self._now_us = -1
        self._is_closed = False
        self.pending = 0
        self.next_due: int | None = None
        self._open()

    def put(self, messages: Sequence[Delayed], durability: Durability | None = None) -> list[str | None]:
        """Let messages wait, and return their ids once they are as durable as asked for.

        None for one that is due already, by the time of the last release: it belongs into its lane now.
        Raises DiskFull, and then none of them waits, or StorageFailed.
        """
        with self._lock:
            self._check_open()
            ranks, ends = self._put(messages)
        if (durability or self._settings.durability) == "fsync":
            for log, end in ends:
                log.sync(end)
        return [None if rank is None else id_of(rank) for rank in ranks]

    def release(self, now_us: int) -> list[Released]:
        """Append every message that is due to its lane, in order, and tell where they are.

        When that fails after some were released, those are returned, and the next call raises.
        """
        released: list[Released] = []
        with self._releasing:
            with self._lock:
                self._check_open()
                self._now_us = now_us
            try:
                if self.next_due is not None and self.next_due <= now_us:
                    self._release(now_us, released)
                # On a full disk it can wait.
                with suppress(DiskFull):
                    self._tidy(now_us)
            except QuiverError:
                if not released:
                    raise
            finally:
                with self._lock:
                    self._update_next_due()
        return released

    def scheduled(self, limit: int | None = None) -> list[Scheduled]:
        """The messages that wait, in the order in which they are due, or the first of them."""
        with self._lock:
            self._check_open()
            sources = self._sources()
            near = list(self._agenda.heap) if limit is not None else []
            ranks: list[int] = []
            while near and limit is not None and len(ranks) < limit:
                if self._waits(rank := heapq.heappop(near)):
                    ranks.append(rank)
        if limit is None or len(ranks) < limit:
            every = chain.from_iterable(map(_ranks, sources))
            ranks = sorted(every) if limit is None else heapq.nsmallest(limit, every)
        found = _fetch_there(ranks, {source.serial: source.log for source in sources})
        with self._lock:
            return [message.scheduled() for message in found if self._waits(message.rank)]

    def cancel(self, id: str) -> bool:  # noqa: A002 - That is what it is called everywhere.
        """Let a message never come. False when there is none that waits under this id."""
        rank = rank_of_id(id)
        if rank is None:
            return False
        with self._lock:
            self._check_open()
            if not self._waits(rank) or not self._is_there(rank):
                return False
            end = self._journal.cancel(rank)
            bucket = self._buckets[serial_of(rank)]
            bucket.cancelled.add([offset_of(rank)])
            bucket.pending -= 1
            self.pending -= 1
            self._update_next_due()
        if self._settings.durability == "fsync":
            self._journal.sync(end)
        if self._journal.wants_snapshot and self._releasing.acquire(blocking=False):
            try:
                self._snapshot()
            finally:
                self._releasing.release()
        return True

    def dedup_ids(self) -> Iterator[tuple[str, int, str]]:
        """Deduplication id, timestamp and id of each message that waits and has one, in no order."""
        with self._lock:
            self._check_open()
            sources = self._sources()
        for source in sources:
            # It is gone when all of it was released meanwhile.
            with suppress(NotFound):
                yield from dedup_ids(source)

    def sync(self) -> None:
        """Return once everything that was put survives power loss."""
        with self._lock:
            self._check_open()
            logs = self._buckets.open_logs()
        for log in logs:
            log.sync()

    def configure(self, settings: StorageSettings) -> None:
        """Go on with other settings."""
        with self._lock:
            self._settings = settings
            self._buckets.configure(settings)

    def close(self) -> None:
        """Let go of the files. Closing twice is allowed."""
        with self._releasing, self._lock:
            if not self._is_closed:
                self._is_closed = True
                with suppress(QuiverError):
                    self._settle()
                self._buckets.close()
                self._journal.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closing(f"{self._directory.path / self._name} was closed")

    # Opening.

    def _open(self) -> None:
        state = self._journal.replay()
        self._watermarks = state.watermarks
        self._buckets.next_serial = state.next_serial
        self._epoch = max(state.watermarks, default=0)
        for name in self._directory.disk.names(self._directory.path / self._name):
            bucket = parse_bucket(name)
            if bucket is None:
                continue
            if bucket.serial in state.removed:
                self._directory.remove(f"{self._name}/{name}")
            else:
                self._open_bucket(bucket, state)
        if self.pending:
            self._agenda.loaded_to = 0
        locate(state.unsafe, self._lane)
        for intent in state.unsafe:
            finish(intent, self._lane, self._messages_of, [], is_durable=True)
        self._update_next_due()

    def _open_bucket(self, bucket: Bucket, state: State) -> None:
        bucket.cancelled = state.cancelled.get(bucket.serial, bucket.cancelled)
        log = self._buckets.log(bucket)
        if bucket.cancelled.floor > log.end or bucket.cancelled.runs()[-1:] > [log.end]:
            bucket.cancelled.cut(log.end)
            self._journal.sync(self._journal.cut(bucket.serial, log.end))
        self._buckets.add(bucket)
        self._epoch = max(self._epoch, bucket.epoch)
        if bucket.start_us > due_of(self._watermark(bucket)):
            bucket.pending = log.end - log.start - len(bucket.cancelled)
        else:
            bucket.pending, bucket.lost = survey(self._source(bucket))
        self.pending += bucket.pending

    def _messages_of(self, intent: Intent) -> list[Stored]:
        """The messages that an intent is about, as far as they are still there."""
        buckets = [
            bucket
            for bucket in self._buckets
            if bucket.epoch == intent.epoch and bucket.start_us <= due_of(intent.upto)
        ]
        sources = [self._source(bucket)._replace(low=intent.after + 1) for bucket in buckets]
        ranks = chain.from_iterable(chain.from_iterable(s.ranks(0, intent.upto + 1) for s in sources))
        return fetch(list(ranks), self._log_of)

    # These are called with `_lock` held.

    def _put(self, messages: Sequence[Delayed]) -> tuple[list[int | None], list[tuple[Log, int]]]:
        ranks: list[int | None] = [None] * len(messages)
        groups: dict[int, list[int]] = {}
        now_us = max(self._now_us, min((message.timestamp for message in messages), default=0))
        for place, message in enumerate(messages):
            if message.due > max(self._now_us, 0):
                bucket = self._bucket_for(message.due, now_us)
                groups.setdefault(bucket.serial, []).append(place)
        written: list[tuple[Log, int, int]] = []
        try:
            for serial, places in groups.items():
                log = self._buckets.log(self._buckets[serial])
                # As far as possible in order already: then fewer frames have to be read for one moment.
                places.sort(key=lambda place: messages[place].due)
                runs = batches([messages[place] for place in places], self._settings)
                base = log.append_batches(map(_columns, runs), durability="os")
                written.append((log, base, len(places)))
        except BaseException:
            # All or nothing: the caller will come again with all of them.
            for log, base, _ in written:
                log.truncate(base)
            raise
        for (serial, places), (_, base, count) in zip(groups.items(), written, strict=True):
            for offset, place in enumerate(places, base):
                ranks[place] = rank_of(messages[place].due, serial, offset)
            self._buckets[serial].pending += count
            self.pending += count
        self._agenda.add(rank for rank in ranks if rank is not None)
        self._update_next_due()
        return ranks, [(log, base + count) for log, base, count in written]

    def _bucket_for(self, due: int, now_us: int) -> Bucket:
        if due <= due_of(self._watermarks.get(self._epoch, 0)):
            self._epoch += 1
        return self._buckets.for_message(self._epoch, due, now_us)

    def _log_of(self, serial: int) -> Log:
        return self._buckets.log(self._buckets[serial])

    def _watermark(self, bucket: Bucket) -> int:
        return self._watermarks.get(bucket.epoch, 0)

    def _source(self, bucket: Bucket) -> Source:
        log = self._buckets.log(bucket)
        return Source(bucket.serial, log, log.end, self._watermark(bucket) + 1, bucket.cancelled)

    def _sources(self) -> list[Source]:
        return [self._source(bucket) for bucket in self._buckets if bucket.pending]

    def _waits(self, rank: int) -> bool:
        """Whether a message that has been there is neither released nor cancelled."""
        bucket = self._buckets.get(serial_of(rank))
        return (
            bucket is not None
            and rank > self._watermark(bucket)
            and offset_of(rank) not in bucket.cancelled
        )

    def _is_there(self, rank: int) -> bool:
        """Whether there is such a message: anybody can make up an id."""
        bucket = self._buckets[serial_of(rank)]
        if not bucket.start_us <= due_of(rank) < bucket.end_us:
            return False
        return due_at(self._buckets.log(bucket), offset_of(rank)) == due_of(rank)

    def _update_next_due(self) -> None:
        agenda = self._agenda
        while agenda.first is not None and not self._waits(agenda.first):
            heapq.heappop(agenda.heap)
        if self._unsafe and not self._unsafe[-1].is_finished:
            self.next_due = due_of(self._unsafe[-1].upto)
        elif agenda.first is not None:
            self.next_due = due_of(agenda.first)
        elif not self.pending:
            self.next_due = None
        else:
            loaded_to = due_of(agenda.loaded_to)
            self.next_due = min(
                max(bucket.start_us, loaded_to) for bucket in self._buckets if bucket.pending
            )

    # These are called with `_releasing` held.

    def _release(self, now_us: int, released: list[Released]) -> None:
        is_durable = self._settings.durability == "fsync"
        if self._unsafe and not self._unsafe[-1].is_finished:
            locate([self._unsafe[-1]], self._lane)
            finish(self._unsafe[-1], self._lane, self._messages_of, released, is_durable=is_durable)
        while ranks := self._due(now_us):
            done = 0
            try:
                messages = fetch(ranks, self._locked_log_of, _FETCH_BYTES)
                for batch in batches(messages, self._settings, self._epoch_of):
                    self._move(batch, released)
                    done += len(batch)
            finally:
                # Those that were moved are behind the watermark, and would be passed over.
                with self._lock:
                    self._agenda.add(ranks[done:])

    def _due(self, now_us: int) -> list[int]:
        end = rank_of(now_us + 1, 0, 0)
        while True:
            with self._lock:
                while taken := self._agenda.take(end, _FETCH_MESSAGES):
                    if ranks := [rank for rank in taken if self._waits(rank)]:
                        return ranks
                if self._agenda.heap or self._agenda.loaded_to >= end or not self.pending:
                    return []
            self._load(now_us)

    def _load(self, now_us: int) -> None:
        """Look on disk for what comes next."""
        with self._lock:
            low, high = self._agenda.loaded_to, rank_of(now_us + LOAD_AHEAD_US, 0, 0)
            waiting = [b for b in self._buckets if b.pending and b.end_us > due_of(low)]
            soon = [bucket for bucket in waiting if bucket.start_us < due_of(high)]
            sources = [self._source(bucket) for bucket in soon]
            starts = [bucket.start_us for bucket in waiting if bucket.start_us >= due_of(high)]
            self._agenda.begin_load()
        found = Lowest(high)
        loaded_to = rank_of(min(starts), 0, 0) if starts else RANK_END
        lost = {}
        try:
            for source in sources:
                beyond, lost[source.serial] = gather(source, low, found)
                loaded_to = min(loaded_to, beyond)
        except BaseException:
            with self._lock:
                self._agenda.give_up_load()
            raise
        with self._lock:
            self._agenda.end_load(found.ranks, found.end if found.end < high else loaded_to)
            for bucket in soon:
                more = lost[bucket.serial] - bucket.lost
                bucket.lost += more
                bucket.pending -= more
                self.pending -= more

    def _move(self, batch: list[Stored], released: list[Released]) -> None:
        """Move messages of one epoch, all that wait in it up to the last of them, to their lanes."""
        is_durable = self._settings.durability == "fsync"
        lanes = {place: self._lane(*place) for place in lanes_of(batch)}
        with self._lock:
            batch = [message for message in batch if self._waits(message.rank)]
            if not batch:
                return
            while self._unsafe and self._unsafe[0].is_safe:
                self._unsafe.popleft()
            epoch = self._epoch_of(batch[0])
            intent = Intent(
                number=self._journal.new_number(),
                transfer=new_transfer(),
                epoch=epoch,
                after=self._watermarks.get(epoch, 0),
                upto=batch[-1].rank,
                targets=[Target.of(*place, lanes[place]) for place in lanes_of(batch)],
            )
            unsafe = self._unsafe[0].number if self._unsafe else intent.number
            end = self._journal.intend(intent, unsafe, self._buckets.next_serial)
            self._unsafe.append(intent)
            self._watermarks[epoch] = intent.upto
            for message in batch:
                self._buckets[serial_of(message.rank)].pending -= 1
            self.pending -= len(batch)
        if is_durable:
            self._journal.sync(end)
        finish(intent, self._lane, lambda _: batch, released, is_durable=is_durable)

    def _tidy(self, now_us: int) -> None:
        """Remove the buckets of which nothing waits any more, once all of it is in the lanes for good."""
        with self._lock:
            empty = [bucket for bucket in self._buckets if self._may_go(bucket, now_us)]
        if empty:
            self._make_safe()
            with self._lock:
                empty = [bucket for bucket in empty if not bucket.pending]
                if not empty:
                    return
                end = self._journal.remove([bucket.serial for bucket in empty], self._buckets.next_serial)
                self._removing.update(bucket.serial for bucket in empty)
                self._buckets.take_out(empty)
            self._journal.sync(end)
            for bucket in empty:
                self._directory.remove(f"{self._name}/{bucket.name}")
                self._removing.discard(bucket.serial)
        if self._journal.wants_snapshot:
            self._snapshot()

    def _may_go(self, bucket: Bucket, now_us: int) -> bool:
        if bucket.pending:
            return False
        return bucket.end_us <= now_us or self._buckets.log(bucket).size_bytes >= _EMPTY_BYTES_MAX

    def _settle(self) -> None:
        """Spare the next opening the search for what is in its lane."""
        self._make_safe()
        if self._unsafe and all(intent.is_safe for intent in self._unsafe):
            self._journal.settle()

    def _make_safe(self) -> None:
        for intent in self._unsafe:
            for target in intent.targets:
                target.sync()

    def _snapshot(self) -> None:
        """Keep the journal short."""
        self._make_safe()
        with self._lock:
            if not all(intent.is_safe for intent in self._unsafe):
                return
            self._unsafe.clear()
            epochs = {self._epoch, *(bucket.epoch for bucket in self._buckets)}
            self._watermarks = {e: mark for e, mark in self._watermarks.items() if e in epochs}
            cancelled = {bucket.serial: bucket.cancelled for bucket in self._buckets if bucket.cancelled}
            self._journal.snapshot(
                State(self._watermarks, cancelled, self._removing, [], self._buckets.next_serial)
            )

    def _epoch_of(self, message: Stored) -> int:
        return self._buckets[serial_of(message.rank)].epoch

    def _locked_log_of(self, serial: int) -> Log:
        with self._lock:
            return self._log_of(serial)


def _columns(messages: Sequence[Delayed]) -> dict[str, Any]:
    keys = [stored_key(message, LANE_NUMBERS[message.priority]) for message in messages]
    return columns_of(messages, keys, [message.due for message in messages])


def _fetch_there(ranks: list[int], logs: dict[int, Log]) -> list[Stored]:
    """The messages of these ranks, but for those whose bucket was released meanwhile, and is gone."""
    by_bucket: dict[int, list[int]] = {}
    for rank in ranks:
        by_bucket.setdefault(serial_of(rank), []).append(rank)
    found: list[Stored] = []
    for of_bucket in by_bucket.values():
        with suppress(NotFound, KeyError):
            found += fetch(of_bucket, logs.__getitem__)
    return sorted(found)


def _ranks(source: Source) -> Iterable[int]:
    """What waits in a bucket; nothing when all of it was released meanwhile."""
    with suppress(NotFound):
        yield from chain.from_iterable(source.ranks(0, RANK_END))
