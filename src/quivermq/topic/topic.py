"""A topic: its partitions and lanes, and the way of a message into one of them."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from quivermq.clock import SteadyClock
from quivermq.errors import DiskRefused, StorageFailed
from quivermq.frame import Column, Frame, with_expiry
from quivermq.log import DataDirectory, Log
from quivermq.log.entries import check_durability
from quivermq.log.log import append_together
from quivermq.model.adoption import AdoptedId
from quivermq.model.dead_letters import DLQ_HEADER_BYTES_MAX
from quivermq.model.lanes import NORMAL, PRIORITIES, PartitionLane, lane_number
from quivermq.model.messages import FirstFrame, Message, ProducerState, Put, Puts, note_run
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.dedup_index import ELSEWHERE, DedupEntry, adopted_entries
from quivermq.topic.deduplication import Deduplication
from quivermq.topic.delay import Delayed, DelayStore, FailedDelayStore
from quivermq.topic.incoming import Batch
from quivermq.topic.partition import LaneLogs, Partition, WithArchive
from quivermq.topic.routing import Router
from quivermq.topic.rules import TopicRules
from quivermq.topic.splitting import FrameLimits

logger = logging.getLogger(__name__)


_BYTES_MAX = 2**31 - 1


class Topic:
    """Opens what there is of a topic, and appends to it. Thread-safe."""

    def __init__(
        self,
        directory: DataDirectory,
        name: str,
        settings: TopicSettings,
        clock: SteadyClock,
        origin: str | None = None,
        with_archive: Callable[[Partition, int], WithArchive] | None = None,
    ) -> None:
        self.name = name
        self.origin = origin
        """The topic whose dead letters are here; None for a topic of its own."""
        self._directory = directory
        self._clock = clock
        self._with_archive = with_archive
        self.settings = settings
        self.rules = TopicRules(settings, settings.storage(directory.settings), clock)
        self._storage = self._storage_of(self.rules.limits)
        self._frame_limits = FrameLimits.of(self._storage)
        # By number: those that are in this directory, in order.
        self.partitions: dict[int, Partition] = {}
        self.grow(settings)
        self.router = Router(settings.partitions, settings.own_partitions)
        self.dedup = Deduplication(
            directory,
            f"topics/{name}/seen",
            self.lanes,
            clock,
            window_ms=settings.dedup_window_ms,
            entries_max=settings.dedup_entries_max,
        )

    def open_delays(self) -> None:
        """Open the delay store, which may append at once what was on its way when the process died.

        So everybody who knows something of the lanes' ends, the groups too, has to be open already.
        """
        name = f"topics/{self.name}/delayed"
        self.delays: DelayStore | FailedDelayStore
        try:
            own = self.settings.own_partitions
            serials = own.start + 1, own.step
            self.delays = DelayStore(self._directory, name, self._storage, self._lane_log, serials)
            if self.settings.dedup_window_ms or self.dedup.has_scheduled:
                self.dedup.restore_scheduled(
                    (dedup_id, DedupEntry(put_at, partition, lane, None, scheduled_id))
                    for dedup_id, put_at, partition, lane, scheduled_id in self.delays.dedup_ids()
                )
        except StorageFailed as error:
            # What waits is lost until it is repaired; what is in the lanes is not.
            logger.error("delayed messages of %s do not come: %s", self.name, error)
            self.delays = FailedDelayStore(error)

    def release(self, now_us: int) -> int:
        """Append the delayed messages that are due, and return how many."""
        due = self.delays.next_due
        if due is None or due > now_us:
            return 0
        with self.dedup.lock if self.dedup.has_scheduled else nullcontext():
            released = self.delays.release(now_us)
            for partition, lane, offsets in released if self.dedup.has_scheduled else ():
                self.dedup.note_released(partition, lane, self.partitions[partition].log(lane), offsets)
        return sum(len(offsets) for _, _, offsets in released)

    def deliver(self, scheduled_id: str) -> bool:
        """Append a delayed message before it is due. False when none waits under this id."""
        with self.dedup.lock if self.dedup.has_scheduled else nullcontext():
            released = self.delays.deliver(scheduled_id)
            if released is None:
                return False
            if self.dedup.has_scheduled:
                partition, lane, offsets = released
                self.dedup.note_released(partition, lane, self.partitions[partition].log(lane), offsets)
        return True

    def lanes(self) -> LaneLogs:
        """Every lane that is in use, by partition and number."""
        return {
            (partition.number, lane): log
            for partition in self.partitions.values()
            for lane, log in enumerate(partition.logs)
            if log is not None
        }

    @property
    def messages(self) -> int:
        """How many messages there are that were not taken out."""
        return sum(
            self.partitions[partition].removals.lanes[lane].missing_between(log.start, log.end)
            for (partition, lane), log in self.lanes().items()
        )

    @property
    def messages_known(self) -> int:
        """How many messages a new group would be given, by what was last seen of the archive."""
        return sum(
            partition.removals.lanes[lane].missing_between(partition.first_known(lane, 0), log.end)
            for partition in self.partitions.values()
            for lane, log in enumerate(partition.logs)
            if log is not None
        )

    def grow(self, settings: TopicSettings) -> None:
        """Open the partitions that other settings ask for. Nothing goes there before `configure`."""
        storage = self._storage_of(settings.storage(self._directory.settings))
        more = {
            number: Partition(self._directory, self.name, number, storage, self._with_archive)
            for number in settings.own_partitions
            if number not in self.partitions
        }
        self.partitions = self.partitions | more

    def configure(self, settings: TopicSettings) -> None:
        """Go on with other settings."""
        self.grow(settings)
        rules = TopicRules(settings, settings.storage(self._directory.settings), self._clock)
        storage = self._storage_of(rules.limits)
        for partition in self.partitions.values():
            partition.configure(storage)
        self.delays.configure(storage)
        self.dedup.configure(settings.dedup_entries_max)
        self.rules, self._storage = rules, storage
        self._frame_limits = FrameLimits.of(storage)
        if self.router.partitions != settings.partitions:
            self.router = Router(settings.partitions, settings.own_partitions)
        self.settings = settings

    # The way in.

    def put(self, message: Message, durability: Durability | None = None) -> Put:
        """Store one message. Raises InvalidRequest, DiskRefused, StorageFailed."""
        return self.put_many([message], durability)[0]

    def put_many(
        self, messages: Sequence[bytes | Message], durability: Durability | None = None
    ) -> Sequence[Put]:
        """Store messages, those of one lane in one frame. All are checked before the first is stored."""
        return self.put_batch(self.rules.check_many(messages), durability) if messages else []

    def put_batch(self, batch: Batch, durability: Durability | None = None) -> Sequence[Put]:
        """Store messages that `rules` let in."""
        durability = self.settings.durability if durability is None else durability
        check_durability(durability)
        if batch.dedup_ids is not None and self._is_deduplicated(batch):
            return self._put_once(batch, durability)
        is_in_turn = self.router.partitions == 1 or (batch.keys is None and batch.partitions is None)
        if is_in_turn and batch.lanes is None and batch.due is None:
            return self._put_in_runs(batch, durability)
        results: list[Put | None] = [None] * len(batch)
        self._put_all(batch, batch.route(self.router), range(len(batch)), results, durability)
        return [put for put in results if put is not None]

    def _is_deduplicated(self, batch: Batch | None) -> bool:
        """Whether ids count: for the topic, for one of these messages, or for one that came before."""
        if self.settings.dedup_window_ms or self.dedup.has_ids:
            return True
        return batch is not None and batch.windows_us is not None

    def put_frame(
        self,
        frame: Frame,
        *,
        partition: int | None = None,
        priority: str = "normal",
        durability: Durability | None = None,
        flags: int = 0,
    ) -> Put:
        """Append a frame, which `parse` has checked, as it is, unless the topic has a time to live.

        With `flags`, the queue says something of it, and it never expires. One that its producer sent
        before is answered as it was then. Raises Conflict.
        """
        lane = lane_number(priority)
        durability = self.settings.durability if durability is None else durability
        check_durability(durability)
        self.rules.check_producer(frame.header, partition)
        header = frame.header
        number = self.router.partition_of(None) if partition is None else partition
        if self.settings.ttl_ms is not None and not flags:
            frame = with_expiry(frame, self._clock.now_us() + self.settings.ttl_ms * 1000)
            header = frame.header
        if header.columns & Column.DEDUP_ID and not header.producer_id and self._is_deduplicated(None):
            # Ids are looked at one by one, so here the messages are taken out of their frame.
            return self._put_once(_batch_of(frame, lane, number), durability)[0]
        if not header.producer_id:
            log = self.partitions[number].log(lane)
            offset = log.append_frame(frame, flags=flags, durability=durability)
            return Put(self.name, number, PRIORITIES[lane], offset)
        with self.dedup.lock:
            self.dedup.prepare()
            found = self.dedup.find_batch(number, lane, header)
            # Only now: nothing is made for a frame that is refused.
            log = self.partitions[number].log(lane)
            if found is not None:
                offset = found
            else:
                offset = log.append_frame(frame, flags=flags, durability="os")
                self.dedup.note_batch(number, lane, header, offset)
        if durability == "fsync":
            log.sync(offset + len(frame))
        return Put(self.name, number, PRIORITIES[lane], offset, duplicate=found is not None)

    def begin_producer(self, producer_id: int) -> ProducerState:
        """Give a producer its next epoch, durably, and say where its frames of earlier ones begin."""
        begun = self.dedup.begin_producer(producer_id)
        for number, lane in begun.firsts:
            # Whoever counts on what is there already must be able to: its producer may have died waiting.
            self.partitions[number].log(lane).sync()
        found = [
            FirstFrame(number, PRIORITIES[lane], first)
            for (number, lane), first in sorted(begun.firsts.items())
        ]
        return ProducerState(begun.epoch, found, begun.known_since_us)

    def adopt_ids(self, adopted: Sequence[AdoptedId]) -> int:
        """Take over deduplication ids of another queue, and return how many of them still hold."""
        entries = adopted_entries(adopted, self.settings, self.partitions, self._clock)
        if entries:
            self.dedup.adopt_ids(entries)
        return len(entries)

    def is_known(self, dedup_id: str | None) -> bool:
        """Whether a message with this id would be a duplicate now."""
        if dedup_id is None:
            return False
        with self.dedup.lock:
            return self.dedup.find(dedup_id, self._oldest_us()) is not None

    def is_known_batch(self, frame: Frame, partition: int | None, priority: str) -> bool:
        """Whether a producer sent this batch before."""
        self.rules.check_producer(frame.header, partition)
        if not frame.header.producer_id or partition is None:
            return False
        with self.dedup.lock:
            return self.dedup.find_batch(partition, lane_number(priority), frame.header) is not None

    def _oldest_us(self) -> int:
        window_us = self.settings.dedup_window_ms * 1000
        # With 0, not even what came in at this very moment counts.
        return self._clock.now_us() - window_us + (not window_us)

    def _put_in_runs(self, batch: Batch, durability: Durability) -> Sequence[Put]:
        """Store messages that go to the normal lane of the one partition, or in turn to all of them."""
        own = self.router.own
        if len(own) == 1:
            runs = [(own.start, self._append(own.start, NORMAL, batch, durability))]
            return Puts(self.name, NORMAL, runs, len(batch))
        step = min(len(own), len(batch))
        numbers: list[int] = []
        for _ in range(step):
            number = self.router.partition_of(None)
            # Others put at the same time; two runs of one log would not be one run.
            numbers.append(number if number not in numbers else min(set(own) - {*numbers}))
        bases = self._append_together(
            {
                (number, NORMAL): batch.chosen(range(start, len(batch), step))
                for start, number in enumerate(numbers)
            },
            durability,
        )
        runs = [(number, bases[number, NORMAL]) for number in numbers]
        return Puts(self.name, NORMAL, runs, len(batch))

    def _append_together(
        self, batches: Mapping[PartitionLane, Batch], durability: Durability
    ) -> dict[PartitionLane, int]:
        """Append batches to several lanes, all of it or nothing, and return the first offset in each."""
        # Always in this order, so that nobody waits for who waits for them. All logs are there before
        # the first is written to: for one that is new, there may be no room.
        lanes = sorted(batches)
        if len(lanes) == 1:
            [only] = lanes
            return {only: self._append(*only, batches[only], durability)}
        logs = [self.partitions[number].log(lane) for number, lane in lanes]
        frames = [log.encoded(self._columns(batches[each])) for each, log in zip(lanes, logs, strict=True)]
        bases = append_together(list(zip(logs, frames, strict=True)))
        if durability == "fsync":
            for log, base, made in zip(logs, bases, frames, strict=True):
                log.sync(base + sum(map(len, made)))
        return dict(zip(lanes, bases, strict=True))

    def _append(self, number: int, lane: int, batch: Batch, durability: Durability) -> int:
        """Append a batch to one lane, and return its first offset."""
        owner = self.partitions[number]
        log = owner.logs[lane] or owner.log(lane)
        if len(batch) == 1:
            return log.append_entry(batch.values[0], None if batch.is_plain else batch.rest(0), durability)
        if batch.fits(self._frame_limits):
            return log.append_many(**batch.columns(self._clock.now_us()), durability=durability)
        return log.append_batches(self._columns(batch), durability=durability)

    def _columns(self, batch: Batch) -> Iterable[Mapping[str, Any]]:
        now_us = self._clock.now_us()
        return (part.columns(now_us) for part in batch.parts(self._frame_limits))

    def _put_once(self, batch: Batch, durability: Durability) -> list[Put]:
        """Store messages unless one of the same id was stored within the window."""
        results: list[Put | None] = [None] * len(batch)
        partitions, dedup_ids = batch.route(self.router), batch.dedup_ids
        assert dedup_ids is not None
        first_of: dict[str, int] = {}
        new: list[int] = []
        with self.dedup.lock:
            self.dedup.prepare()
            now_us, oldest_us, ends = self._clock.now_us(), self._oldest_us(), self.dedup.ends()
            for index, dedup_id in enumerate(dedup_ids):
                if dedup_id is None:
                    new.append(index)
                elif dedup_id not in first_of:
                    if batch.item(batch.windows_us, index) or self.settings.dedup_window_ms:
                        first_of[dedup_id] = index
                    known = self.dedup.find(dedup_id, oldest_us)
                    if known is None:
                        new.append(index)
                    else:
                        results[index] = self._first_put(known)
            try:
                self._put_all(batch, partitions, new, results, "os")
            finally:
                # Also when one lane has no room: what the others took must not come again.
                self._note_ids(batch, new, results, now_us, ends)
        for index, dedup_id in enumerate(dedup_ids):
            if results[index] is None:
                first = results[first_of[dedup_id or ""]]
                assert first is not None
                results[index] = first._replace(duplicate=True)
        puts = [put for put in results if put is not None]
        if durability == "fsync":
            self.sync(puts)
            if batch.windows_us is not None:
                # A window of its own is in no frame: it must not be lost with the power.
                self.dedup.make_durable()
        return puts

    def _note_ids(
        self,
        batch: Batch,
        new: list[int],
        results: list[Put | None],
        now_us: int,
        ends: dict[PartitionLane, int],
    ) -> None:
        for index in new:
            dedup_id, put = batch.item(batch.dedup_ids, index), results[index]
            window_us = batch.item(batch.windows_us, index)
            if dedup_id is not None and put is not None and (window_us or self.settings.dedup_window_ms):
                lane = lane_number(put.priority)
                floor = ends.get((put.partition, lane), 0) if put.offset is None else 0
                until = None if window_us is None else now_us + window_us
                entry = DedupEntry(now_us, put.partition, lane, put.offset, put.scheduled_id, floor, until)
                self.dedup.note_id(dedup_id, entry)

    def _first_put(self, entry: DedupEntry) -> Put:
        offset = None if entry.offset == ELSEWHERE else entry.offset
        return Put(self.name, entry.partition, PRIORITIES[entry.lane], offset, True, entry.scheduled_id)

    def sync_all(self) -> None:
        """Return once everything that was put so far is on stable storage, delayed messages included."""
        for log in self.lanes().values():
            log.sync()
        self.delays.sync()

    def sync(self, puts: Sequence[Put]) -> None:
        """Wait for messages, and for those that they repeat, to be on stable storage."""
        ends: dict[PartitionLane, int] = {}
        for put in puts:
            if put.offset is not None:
                its_lane = (put.partition, lane_number(put.priority))
                ends[its_lane] = max(ends.get(its_lane, 0), put.offset + 1)
            else:
                self.delays.sync()
        for (partition, lane), end in ends.items():
            self.partitions[partition].log(lane).sync(end)

    def _put_all(
        self,
        batch: Batch,
        partitions: list[int],
        indexes: Sequence[int],
        results: list[Put | None],
        durability: Durability,
    ) -> None:
        """Store messages, those that are delayed and the others, and note in `results` where each one is.

        `partitions` has the partition of every message of the batch; only those at `indexes` are stored.
        """
        direct = list(indexes)
        delayed = [] if batch.due is None else [index for index in indexes if batch.due[index] is not None]
        if delayed:
            ids = self.delays.put([self._delayed(batch, i, partitions[i]) for i in delayed], durability)
            waiting = {index: id_ for index, id_ in zip(delayed, ids, strict=True) if id_ is not None}
            for index, scheduled_id in waiting.items():
                priority = PRIORITIES[batch.lane(index)]
                results[index] = Put(self.name, partitions[index], priority, None, False, scheduled_id)
            direct = [index for index in indexes if index not in waiting]
        groups = batch.by_lane(partitions, direct)
        if not groups:
            return
        try:
            bases = self._append_together(
                {lane: batch.chosen(members) for lane, members in groups.items()}, durability
            )
        except DiskRefused:
            for index in set(indexes).difference(direct):
                self._take_back(results, index)
            raise
        for (number, lane), members in groups.items():
            note_run(results, members, Put(self.name, number, PRIORITIES[lane], bases[number, lane]))

    def _take_back(self, results: list[Put | None], index: int) -> None:
        """Call a delayed message off, for which no room is left with the others that came with it."""
        put = results[index]
        assert put is not None
        assert put.scheduled_id is not None, "it waits"
        self.delays.cancel(put.scheduled_id)
        results[index] = None

    def _delayed(self, batch: Batch, index: int, partition: int) -> Delayed:
        due, timestamp = batch.item(batch.due, index), batch.item(batch.timestamps, index)
        assert due is not None
        return Delayed(
            due=due,
            partition=partition,
            lane=batch.lane(index),
            value=batch.values[index],
            key=batch.item(batch.keys, index),
            headers=batch.item(batch.headers, index),
            timestamp=self._clock.now_us() if timestamp is None else timestamp,
            expires_at=batch.item(batch.expires_at, index),
            dedup_id=batch.item(batch.dedup_ids, index),
        )

    def _lane_log(self, partition: int, lane: int) -> Log:
        return self.partitions[partition].log(lane)

    def _storage_of(self, limits: StorageSettings) -> StorageSettings:
        if self.origin is None:
            return limits
        # A message that was not too large must not become so by being given up.
        frame_bytes = min(limits.frame_bytes_max + 2 * DLQ_HEADER_BYTES_MAX, _BYTES_MAX)
        return replace(
            limits,
            message_bytes_max=frame_bytes - DLQ_HEADER_BYTES_MAX,
            frame_bytes_max=frame_bytes,
            frame_raw_bytes_max=max(limits.frame_raw_bytes_max, frame_bytes),
        )


def _batch_of(frame: Frame, lane: int, partition: int) -> Batch:
    """The messages of a frame, which was checked as a whole."""
    count = len(frame)
    return Batch(
        frame.values(),
        list(frame.keys()),
        list(frame.headers()),
        list(frame.timestamps()),
        list(frame.expires_at()),
        list(frame.dedup_ids()),
        [lane] * count,
        [partition] * count,
    )
