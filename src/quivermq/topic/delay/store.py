"""Messages that wait until they are due.

Two locks, taken in this order: `_releasing` is held by whoever moves messages to their lanes, syncs
included; `_lock` guards what is in memory and the order of what is written, and nobody syncs under it
but to begin, close or remove a file. So a put never waits for a release.
"""

import heapq
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import chain
from operator import lt
from typing import NoReturn

from quivermq.errors import Closing, DiskRefused, InvalidRequest, NotFound, QuiverError, StorageFailed
from quivermq.log import DataDirectory, Log
from quivermq.model.messages import Scheduled, Timeline
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.delay.buckets import Bucket, Serials, parse_bucket
from quivermq.topic.delay.journal import DelayJournal, Intent, ReleaseTarget
from quivermq.topic.delay.message import (
    RANK_END,
    Delayed,
    WaitingMessage,
    batches,
    due_of,
    id_of,
    rank_of,
    rank_of_id,
    serial_of,
)
from quivermq.topic.delay.reading import BucketRange, DedupId, dedup_ids, fetch
from quivermq.topic.delay.release import LaneLog, Released, finish, lanes_of, locate
from quivermq.topic.delay.upcoming import count_by_time
from quivermq.topic.delay.waiting import Waiting, look
from quivermq.topic.transfer import new_transfer

# What is read at a time to be released: a frame holds messages of many due times, so many at once.
_FETCH_MESSAGES = 50_000
_FETCH_BYTES = 16 * 1024 * 1024


class DelayStore:
    """The delay store of one topic. Thread-safe.

    `next_due` is when `release` has to be called next; None while nothing waits. `lane_log` gives the log
    of a partition and a lane; it is called when messages are due, with no lock held that a put needs,
    and already here, for messages that were on their way when the process died.
    """

    def __init__(
        self,
        directory: DataDirectory,
        name: str,
        settings: StorageSettings,
        lane_log: LaneLog,
        serials: Serials = (1, 1),
    ) -> None:
        self._directory = directory
        self._name = name
        self._settings = settings
        self._lane_log = lane_log
        self._lock = threading.Lock()
        self._releasing = threading.Lock()
        self._waiting = Waiting(directory, name, settings, serials)
        self._journal = DelayJournal(directory, name)
        # The intents whose messages may not be in their lanes for good; only the last can be unfinished.
        self._unsafe: deque[Intent] = deque()
        self._removing: set[int] = set()
        self._now_us = -1
        self._is_closed = False
        self.next_due: int | None = None
        self._open()

    @property
    def pending(self) -> int:
        """How many messages wait, those included that are due and find no room in their lanes."""
        on_their_way = [intent.messages for intent in tuple(self._unsafe) if not intent.is_finished]
        return self._waiting.pending + sum(on_their_way)

    def put(self, messages: Sequence[Delayed], durability: Durability | None = None) -> list[str | None]:
        """Let messages wait, and return their ids once they are as durable as asked for.

        None for one that is due already, by the time of the last release: it belongs into its lane now.
        Raises DiskRefused, and then none of them waits, or StorageFailed.
        """
        with self._lock:
            self._check_open()
            ranks, written = self._waiting.put(messages, self._now_us)
            self._update_next_due()
        if (durability or self._settings.durability) == "fsync":
            for part in written:
                part.log.sync(part.end)
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
                with suppress(DiskRefused):
                    self._tidy(now_us)
            except QuiverError:
                if not released:
                    raise
            finally:
                with self._lock:
                    self._update_next_due()
        return released

    def scheduled(
        self, limit: int | None = None, bytes_max: int | None = None, after: str | None = None
    ) -> list[Scheduled]:
        """The messages that wait, in the order in which they are due, or the first of them.

        With `bytes_max` there are fewer when they would take far more memory than that. With `after`, the
        id of a message that waits or has waited, those behind it. Raises InvalidRequest.
        """
        last = -1 if after is None else rank_of_id(after)
        if last is None:
            raise InvalidRequest(f"{after!r:.80} is not the id of a delayed message")
        with self._lock:
            self._check_open()
            sources = self._waiting.sources()
            ranks = [] if limit is None or after is not None else self._waiting.first(limit)
        if limit is None or len(ranks) < limit:
            every = filter(partial(lt, last), chain.from_iterable(map(_ranks, sources)))
            ranks = sorted(every) if limit is None else heapq.nsmallest(limit, every)
        found = _fetch_there(ranks, {source.serial: source.log for source in sources}, bytes_max)
        with self._lock:
            return [message.scheduled() for message in found if self._waiting.waits(message.rank)]

    def timeline(self, now_us: int, end_us: int | None, bins: int) -> Timeline:
        """How many messages are due when, in equal spans from now to an end, by default that of the last.

        Nothing is read for it: what is due in some hours is counted, what is due later estimated.
        """
        with self._lock:
            self._check_open()
            ranks, spans = self._waiting.upcoming.heap.copy(), self._waiting.spans()
            loaded_to = self._waiting.upcoming.loaded_to
        if end_us is None:
            last = due_of(max(ranks)) + 1 if ranks else now_us
            is_all_known = loaded_to >= RANK_END
            end_us = last if is_all_known else max((span.end_us for span in spans), default=last)
        end_us = max(end_us, now_us + bins)
        edges = [now_us + (end_us - now_us) * index // bins for index in range(bins + 1)]
        *counts, later = count_by_time(ranks, due_of(loaded_to), spans, edges)
        return Timeline(now_us, end_us, counts, later)

    def cancel(self, id: str) -> bool:  # noqa: A002 - That is what it is called everywhere.
        """Let a message never come. False when there is none that waits under this id."""
        rank = rank_of_id(id)
        if rank is None:
            return False
        with self._lock:
            self._check_open()
            if not self._waiting.is_there(rank):
                return False
            end = self._journal.cancel(rank)
            self._waiting.cancel(rank)
            self._update_next_due()
        if self._settings.durability == "fsync":
            self._journal.sync(end)
        if self._journal.wants_snapshot and self._releasing.acquire(blocking=False):
            try:
                self._snapshot()
            finally:
                self._releasing.release()
        return True

    def clear(self) -> int:
        """Let nothing that waits ever come, and return how many messages that were."""
        with self._releasing:
            self._make_safe()
            with self._lock:
                self._check_open()
                count = self._waiting.pending
                ends = [self._journal.cancel_all(*emptied) for emptied in self._waiting.cancel_all()]
                self._update_next_due()
            if ends:
                self._journal.sync(ends[-1])
        return count

    def deliver(self, id: str) -> Released | None:  # noqa: A002 - As in cancel.
        """Append a message to its lane before it is due. None when none waits under this id."""
        rank = rank_of_id(id)
        released: list[Released] = []
        with self._releasing:
            with self._lock:
                self._check_open()
                is_there = rank is not None and self._waiting.is_there(rank)
            if rank is None or not is_there:
                return None
            self._finish_last(released)
            try:
                for message in fetch([rank], self._log_of):
                    self._move([message], released, is_early=True)
            finally:
                with self._lock:
                    self._update_next_due()
        return released[-1] if released else None

    def dedup_ids(self) -> Iterator[DedupId]:
        """The deduplication id of each message that waits and has one, in no order."""
        with self._lock:
            self._check_open()
            sources = self._waiting.sources()
        for source in sources:
            # It is gone when all of it was released meanwhile.
            with suppress(NotFound):
                yield from dedup_ids(source)

    @property
    def size_bytes(self) -> int:
        """About how many bytes the messages that wait take."""
        with self._lock:
            self._check_open()
            buckets = self._waiting.buckets
            waiting = [(bucket.pending, buckets.log(bucket)) for bucket in buckets if bucket.pending]
        return sum(log.size_bytes * pending // max(1, log.end - log.start) for pending, log in waiting)

    def sync(self) -> None:
        """Return once everything that was put survives power loss."""
        with self._lock:
            self._check_open()
            logs = self._waiting.buckets.open_logs()
        for log in logs:
            log.sync()

    def configure(self, settings: StorageSettings) -> None:
        """Go on with other settings."""
        with self._lock:
            self._settings = settings
            self._waiting.configure(settings)

    def close(self) -> None:
        """Let go of the files. Closing twice is allowed."""
        with self._releasing, self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            # It only spares the next opening the search for what is in its lane.
            with suppress(QuiverError):
                self._make_safe()
                if self._unsafe and all(intent.is_safe for intent in self._unsafe):
                    self._journal.end_intents()
            self._waiting.buckets.close()
            self._journal.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closing(f"{self._directory.path / self._name} was closed")

    def _update_next_due(self) -> None:
        unfinished = self._unfinished()
        self.next_due = due_of(unfinished.upto) if unfinished else self._waiting.next_due()

    def _unfinished(self) -> Intent | None:
        return self._unsafe[-1] if self._unsafe and not self._unsafe[-1].is_finished else None

    def _open(self) -> None:
        state = self._journal.replay()
        buckets: list[Bucket] = []
        for name in self._directory.disk.names(self._directory.path / self._name):
            bucket = parse_bucket(name)
            if bucket is not None and bucket.serial in state.removed:
                self._directory.remove(f"{self._name}/{name}")
            elif bucket is not None:
                buckets.append(bucket)
        for serial, end in self._waiting.restore(buckets, state):
            self._journal.sync(self._journal.cut(serial, end))
        locate(state.unsafe, self._lane_log)
        for intent in state.unsafe:
            finish(intent, self._lane_log, self._waiting.messages_of, [], is_durable=True)
        self._update_next_due()

    # These are called with `_releasing` held.

    def _finish_last(self, released: list[Released]) -> None:
        """Finish what was begun when the disk had no room."""
        unfinished = self._unfinished()
        if unfinished is not None:
            if self._is_durable:
                # Its own sync may have failed: without the intent, its messages would come again.
                self._journal.sync()
            locate([unfinished], self._lane_log)
            finish(unfinished, self._lane_log, self._messages_of, released, is_durable=self._is_durable)

    def _release(self, now_us: int, released: list[Released]) -> None:
        self._finish_last(released)
        while ranks := self._due(now_us):
            done = 0
            try:
                messages = fetch(ranks, self._log_of, _FETCH_BYTES)
                for batch in batches(messages, self._settings, self._waiting.epoch_of):
                    self._move(batch, released)
                    done += len(batch)
            finally:
                # Some of a batch that failed may be on their way: they wait no longer, and are passed over.
                with self._lock:
                    self._waiting.upcoming.add(ranks[done:])

    def _due(self, now_us: int) -> list[int]:
        """The ranks of the next messages that are due."""
        waiting, end = self._waiting, rank_of(now_us + 1, 0, 0)
        while True:
            with self._lock:
                while taken := waiting.upcoming.take(end, _FETCH_MESSAGES):
                    if ranks := [rank for rank in taken if waiting.waits(rank)]:
                        return ranks
                if waiting.upcoming.heap or waiting.upcoming.loaded_to >= end or not waiting.pending:
                    return []
                search = waiting.begin_search(now_us)
            try:
                found = look(search)
            except BaseException:
                with self._lock:
                    waiting.upcoming.give_up_load()
                raise
            with self._lock:
                waiting.end_search(*found)

    def _move(
        self, batch: list[WaitingMessage], released: list[Released], *, is_early: bool = False
    ) -> None:
        """Move messages of one epoch, all that wait in it up to the last of them, to their lanes.

        With `is_early` it is a single one, whatever waits before it.
        """
        waiting = self._waiting
        logs = {lane: self._lane_log(*lane) for lane in lanes_of(batch)}
        with self._lock:
            batch = [message for message in batch if waiting.waits(message.rank)]
            if not batch:
                return
            while self._unsafe and self._unsafe[0].is_safe:
                self._unsafe.popleft()
            epoch = waiting.epoch_of(batch[0])
            intent = Intent(
                number=self._journal.new_number(),
                transfer=new_transfer(),
                epoch=epoch,
                after=batch[-1].rank if is_early else waiting.watermarks.get(epoch, 0),
                upto=batch[-1].rank,
                targets=[
                    ReleaseTarget(*lane, logs[lane].synced_end, logs[lane].end) for lane in lanes_of(batch)
                ],
                messages=len(batch),
            )
            unsafe = self._unsafe[0].number if self._unsafe else intent.number
            end = self._journal.intend(intent, unsafe, waiting.buckets.next_serial, is_early=is_early)
            self._unsafe.append(intent)
            if is_early:
                waiting.cancel(batch[0].rank)
            else:
                waiting.release(epoch, batch)
        if self._is_durable:
            self._journal.sync(end)
        finish(intent, self._lane_log, lambda _: batch, released, is_durable=self._is_durable)

    def _tidy(self, now_us: int) -> None:
        """Remove the buckets of which nothing waits any more, once all of it is in the lanes for good."""
        with self._lock:
            empty = self._waiting.empty(now_us)
        if empty:
            self._make_safe()
            self._remove(empty)
        if self._journal.wants_snapshot:
            self._snapshot()

    def _remove(self, empty: list[Bucket]) -> None:
        buckets = self._waiting.buckets
        with self._lock:
            # Something may have come into one of them meanwhile.
            empty = [bucket for bucket in empty if not bucket.pending]
            end = self._journal.remove([bucket.serial for bucket in empty], buckets.next_serial)
            self._removing.update(bucket.serial for bucket in empty)
            buckets.take_out(empty)
        self._journal.sync(end)
        for bucket in empty:
            self._directory.remove(f"{self._name}/{bucket.name}")
            self._removing.discard(bucket.serial)

    def _make_safe(self) -> None:
        for intent in self._unsafe:
            for target in intent.targets:
                target.sync()

    def _snapshot(self) -> None:
        """Keep the journal short."""
        self._make_safe()
        with self._lock:
            if all(intent.is_safe for intent in self._unsafe):
                self._unsafe.clear()
                self._journal.snapshot(self._waiting.state(self._removing))

    @property
    def _is_durable(self) -> bool:
        return self._settings.durability == "fsync"

    def _messages_of(self, intent: Intent) -> list[WaitingMessage]:
        with self._lock:
            return self._waiting.messages_of(intent)

    def _log_of(self, serial: int) -> Log:
        with self._lock:
            return self._waiting.log_of(serial)


class FailedDelayStore:
    """Stands in for a store that cannot be opened, so that the lanes of its topic can.

    It has nothing and releases nothing; whoever asks for something gets the error.
    """

    pending = 0
    size_bytes = 0
    next_due: int | None = None

    def __init__(self, error: StorageFailed) -> None:
        self.error = error

    def _refuse(self, *_: object) -> NoReturn:
        raise copy(self.error)

    def _do_nothing(self, *_: object) -> None: ...

    put = scheduled = timeline = cancel = clear = deliver = release = _refuse
    sync = configure = close = _do_nothing


def _fetch_there(ranks: list[int], logs: dict[int, Log], bytes_max: int | None) -> list[WaitingMessage]:
    """The messages of these ranks, but for those whose bucket was released meanwhile, and is gone."""
    by_bucket: dict[int, list[int]] = {}
    for rank in ranks:
        by_bucket.setdefault(serial_of(rank), []).append(rank)
    found: list[WaitingMessage] = []
    for of_bucket in by_bucket.values():
        with suppress(NotFound, KeyError):
            found += fetch(of_bucket, logs.__getitem__, bytes_max)
    return sorted(found)


def _ranks(source: BucketRange) -> Iterable[int]:
    """What waits in a bucket; nothing when all of it was released meanwhile."""
    with suppress(NotFound):
        yield from chain.from_iterable(source.ranks(0, RANK_END))
