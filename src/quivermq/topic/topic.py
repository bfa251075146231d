"""A topic: its partitions and lanes, and the way of a message into one of them."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat
from typing import Any

from quivermq.clock import SteadyClock
from quivermq.disk import Buffer
from quivermq.errors import DiskRefused, StorageFailed
from quivermq.frame import Column, Frame, with_expiry
from quivermq.log import DataDirectory, Log
from quivermq.log.entries import check_durability, checked_entry
from quivermq.log.log import append_together
from quivermq.model.adoption import AdoptedId
from quivermq.model.checks import Moment, Period, check_partition, moment_us, seconds_us
from quivermq.model.lanes import LANES, NORMAL, lane_number
from quivermq.model.messages import FirstFrame, Message, ProducerState, Put, Puts, plain_put
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.adopted_ids import adopted_sightings
from quivermq.topic.delay import Delayed, DelayStore
from quivermq.topic.delay.lost import LostDelays
from quivermq.topic.draft import Draft
from quivermq.topic.incoming import Batch
from quivermq.topic.partition import Partition, WithArchive
from quivermq.topic.routing import Router
from quivermq.topic.seen import ELSEWHERE, Lanes, Seen
from quivermq.topic.sightings import Sighting
from quivermq.topic.splitting import FrameLimits

logger = logging.getLogger(__name__)


# What a dead letter may be larger than the message it was: the story of its end.
_STORY_BYTES = 8 * 1024
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
        self._draft = Draft(settings, settings.storage(directory.settings), clock)
        self._storage = self._storage_of(self._draft.limits)
        self._frame_limits = FrameLimits.of(self._storage)
        self.partitions: list[Partition] = []
        self.grow(settings)
        self._router = Router(settings.partitions)
        self.seen = Seen(
            directory,
            f"topics/{name}/seen",
            self.lanes,
            clock,
            settings.dedup_window_ms,
            settings.dedup_entries_max,
        )

    def open_delays(self) -> None:
        """Open the delay store, which may append at once what was on its way when the process died.

        So everybody who knows something of the lanes' ends, the groups too, has to be open already.
        """
        name = f"topics/{self.name}/delayed"
        self.delays: DelayStore | LostDelays
        try:
            self.delays = DelayStore(self._directory, name, self._storage, self._lane_log)
            if self.settings.dedup_window_ms or self.seen.has_scheduled:
                self.seen.restore_scheduled(
                    (dedup_id, Sighting(put_at, partition, lane, None, scheduled_id))
                    for dedup_id, put_at, partition, lane, scheduled_id in self.delays.dedup_ids()
                )
        except StorageFailed as error:
            # What waits is lost until it is repaired; what is in the lanes is not.
            logger.error("delayed messages of %s do not come: %s", self.name, error)
            self.delays = LostDelays(error)

    def release(self, now_us: int) -> int:
        """Append the delayed messages that are due, and return how many."""
        due = self.delays.next_due
        if due is None or due > now_us:
            return 0
        with self.seen.lock if self.seen.has_scheduled else nullcontext():
            released = self.delays.release(now_us)
            for partition, priority, offsets in released if self.seen.has_scheduled else ():
                lane = lane_number(priority)
                self.seen.note_released(partition, lane, self.partitions[partition].log(lane), offsets)
        return sum(len(offsets) for _, _, offsets in released)

    def deliver(self, scheduled_id: str) -> bool:
        """Append a delayed message before it is due. False when none waits under this id."""
        with self.seen.lock if self.seen.has_scheduled else nullcontext():
            released = self.delays.deliver(scheduled_id)
            if released is None:
                return False
            if self.seen.has_scheduled:
                partition, priority, offsets = released
                lane = lane_number(priority)
                self.seen.note_released(partition, lane, self.partitions[partition].log(lane), offsets)
        return True

    def lanes(self) -> Lanes:
        """Every lane that is in use, by partition and number."""
        return {
            (partition.number, lane): log
            for partition in self.partitions
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
    def messages_told(self) -> int:
        """How many messages a new group would be given, by what was last seen of the archive."""
        return sum(
            partition.removals.lanes[lane].missing_between(partition.first_told(lane, 0), log.end)
            for partition in self.partitions
            for lane, log in enumerate(partition.logs)
            if log is not None
        )

    def grow(self, settings: TopicSettings) -> None:
        """Open the partitions that other settings ask for. Nothing goes there before `configure`."""
        draft = Draft(settings, settings.storage(self._directory.settings), self._clock)
        storage = self._storage_of(draft.limits)
        numbers = range(len(self.partitions), settings.partitions)
        more = [
            Partition(self._directory, self.name, number, storage, self._with_archive) for number in numbers
        ]
        self.partitions = [*self.partitions, *more]

    def configure(self, settings: TopicSettings) -> None:
        """Go on with other settings."""
        self.grow(settings)
        draft = Draft(settings, settings.storage(self._directory.settings), self._clock)
        storage = self._storage_of(draft.limits)
        for partition in self.partitions:
            partition.configure(storage)
        self.delays.configure(storage)
        self.seen.configure(settings.dedup_entries_max)
        self._draft, self._storage = draft, storage
        self._frame_limits = FrameLimits.of(storage)
        if self._router.partitions != settings.partitions:
            self._router = Router(settings.partitions)
        self.settings = settings

    # The way in.

    def put(self, message: Message, durability: Durability | None = None) -> Put:
        """Store one message. Raises InvalidRequest, DiskRefused, StorageFailed."""
        return self.put_many([message], durability)[0]

    def append_one(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        priority: str = "normal",
        ttl: Period | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        durability: Durability | None = None,
    ) -> tuple[int, int]:
        """Store a message that is neither delayed nor deduplicated: the partition and the offset it got."""
        settings = self.settings
        lane = NORMAL if priority == "normal" else lane_number(priority)
        expires_at = None
        if ttl is not None:
            expires_at = self._clock.now_us() + seconds_us("ttl", ttl, lowest=0.000_001)
        elif settings.ttl_ms is not None:
            expires_at = self._clock.now_us() + settings.ttl_ms * 1000
        stamp = None if timestamp is None else moment_us("timestamp", timestamp)
        rest = None
        # A message that is just a value is spared the checks of what it does not have.
        if (
            key is not None
            or headers
            or stamp is not None
            or expires_at is not None
            or type(value) is not bytes
            or len(value) > self._draft.limits.message_bytes_max
        ):
            limits = self._draft.limits
            value, rest = checked_entry(value, key, headers or None, stamp, expires_at, None, limits)
        if partition is not None:
            check_partition(partition, settings)
        elif self._router.partitions == 1:
            partition = 0
        else:
            partition = self._router.partition_of(None if rest is None else rest[0])
        owner = self.partitions[partition]
        # Nothing is made for a message that cannot be stored.
        log = owner.logs[lane] or owner.log(lane)
        return partition, log.append_entry(value, rest, durability)

    def put_many(
        self, messages: Sequence[bytes | Message], durability: Durability | None = None
    ) -> Sequence[Put]:
        """Store messages, those of one lane in one frame. All are checked before the first is stored."""
        return self.put_batch(self.checked(messages), durability) if messages else []

    def checked(self, messages: Sequence[bytes | Message]) -> Batch:
        """The messages as they will be stored. Raises InvalidRequest."""
        return self._draft.checked(messages)

    def put_batch(self, batch: Batch, durability: Durability | None = None) -> Sequence[Put]:
        """Store messages that `checked` has seen."""
        word = self.settings.durability if durability is None else durability
        check_durability(word)
        if batch.dedup_ids is not None and self._is_deduplicated(batch):
            return self._put_once(batch, word)
        is_in_turn = self._router.partitions == 1 or (batch.keys is None and batch.partitions is None)
        if is_in_turn and batch.lanes is None and batch.due is None:
            return self._put_in_runs(batch, word)
        results: list[Put | None] = [None] * len(batch)
        self._put_all(batch, self._places(batch), range(len(batch)), results, word)
        return [put for put in results if put is not None]

    def _places(self, batch: Batch) -> list[int]:
        """The partition of each message."""
        of_key = self._router.partition_of
        keys: Iterable[bytes | None] = repeat(None, len(batch)) if batch.keys is None else batch.keys
        if batch.partitions is None:
            return list(map(of_key, keys))
        return [
            of_key(key) if number is None else number
            for key, number in zip(keys, batch.partitions, strict=True)
        ]

    def _is_deduplicated(self, batch: Batch | None) -> bool:
        """Whether ids count: for the topic, for one of these messages, or for one that came before."""
        if self.settings.dedup_window_ms or self.seen.has_ids:
            return True
        return batch is not None and batch.windows_us is not None

    def parse(self, frame: Buffer) -> Frame:
        """The frame that the bytes are, checked in full. Raises InvalidFrame, MessageTooLarge."""
        return self._draft.parse(frame)

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
        word = self.settings.durability if durability is None else durability
        check_durability(word)
        self._draft.check_producer(frame.header, partition)
        header = frame.header
        number = self._router.partition_of(None) if partition is None else partition
        if self.settings.ttl_ms is not None and not flags:
            frame = with_expiry(frame, self._clock.now_us() + self.settings.ttl_ms * 1000)
            header = frame.header
        if header.columns & Column.DEDUP_ID and not header.producer_id and self._is_deduplicated(None):
            # Ids are looked at one by one, so here the messages are taken out of their frame.
            return self._put_once(_batch_of(frame, lane, number), word)[0]
        if not header.producer_id:
            log = self.partitions[number].log(lane)
            return Put(self.name, number, priority, log.append_frame(frame, flags=flags, durability=word))
        with self.seen.lock:
            self.seen.prepare()
            found = self.seen.find_batch(number, lane, header)
            # Only now: nothing is made for a frame that is refused.
            log = self.partitions[number].log(lane)
            if found is not None:
                offset = found
            else:
                offset = log.append_frame(frame, flags=flags, durability="os")
                self.seen.note_batch(number, lane, header, offset)
        if word == "fsync":
            log.sync(offset + len(frame))
        return Put(self.name, number, priority, offset, duplicate=found is not None)

    def begin_producer(self, producer_id: int) -> ProducerState:
        """Give a producer its next epoch, durably, and say where its frames of earlier ones begin."""
        begun = self.seen.begin_producer(producer_id)
        for number, lane in begun.firsts:
            # Whoever counts on what is there already must be able to: its producer may have died waiting.
            self.partitions[number].log(lane).sync()
        found = [
            FirstFrame(number, LANES[lane], first) for (number, lane), first in sorted(begun.firsts.items())
        ]
        return ProducerState(begun.epoch, found, begun.known_since_us)

    def adopt_ids(self, adopted: Sequence[AdoptedId]) -> int:
        """Take over deduplication ids of another queue, and return how many of them still hold."""
        sightings = adopted_sightings(adopted, self.settings, self.partitions, self._clock)
        if sightings:
            self.seen.adopt_ids(sightings)
        return len(sightings)

    def is_known(self, dedup_id: str | None) -> bool:
        """Whether a message with this id would be a duplicate now."""
        if dedup_id is None:
            return False
        with self.seen.lock:
            return self.seen.find(dedup_id, self._oldest_us()) is not None

    def is_known_batch(self, frame: Frame, partition: int | None, priority: str) -> bool:
        """Whether a producer sent this batch before."""
        self._draft.check_producer(frame.header, partition)
        if not frame.header.producer_id or partition is None:
            return False
        with self.seen.lock:
            return self.seen.find_batch(partition, lane_number(priority), frame.header) is not None

    def _oldest_us(self) -> int:
        window_us = self.settings.dedup_window_ms * 1000
        # With 0, not even what came in at this very moment counts.
        return self._clock.now_us() - window_us + (not window_us)

    def _put_in_runs(self, batch: Batch, word: Durability) -> Sequence[Put]:
        """Store messages that go to the normal lane of the one partition, or in turn to all of them."""
        partitions = self._router.partitions
        if partitions == 1:
            return Puts(self.name, NORMAL, [(0, self._append(0, NORMAL, batch, word))], len(batch))
        step = min(partitions, len(batch))
        numbers: list[int] = []
        for _ in range(step):
            number = self._router.partition_of(None)
            # Others put at the same time; two runs of one log would not be one run.
            numbers.append(number if number not in numbers else min(set(range(partitions)) - {*numbers}))
        bases = self._append_together(
            {
                (number, NORMAL): batch.chosen(range(start, len(batch), step))
                for start, number in enumerate(numbers)
            },
            word,
        )
        runs = [(number, bases[number, NORMAL]) for number in numbers]
        return Puts(self.name, NORMAL, runs, len(batch))

    def _append_together(
        self, batches: Mapping[tuple[int, int], Batch], word: Durability
    ) -> dict[tuple[int, int], int]:
        """Append batches to several lanes, all of it or nothing, and return the first offset in each."""
        # Always in this order, so that nobody waits for who waits for them. All logs are there before
        # the first is written to: for one that is new, there may be no room.
        places = sorted(batches)
        if len(places) == 1:
            [place] = places
            return {place: self._append(*place, batches[place], word)}
        logs = [self.partitions[number].log(lane) for number, lane in places]
        frames = [
            log.encoded(self._columns(batches[place])) for place, log in zip(places, logs, strict=True)
        ]
        bases = append_together(list(zip(logs, frames, strict=True)))
        if word == "fsync":
            for log, base, made in zip(logs, bases, frames, strict=True):
                log.sync(base + sum(map(len, made)))
        return dict(zip(places, bases, strict=True))

    def _append(self, number: int, lane: int, batch: Batch, word: Durability) -> int:
        """Append a batch to one lane, and return its first offset."""
        owner = self.partitions[number]
        log = owner.logs[lane] or owner.log(lane)
        if len(batch) == 1:
            return log.append_entry(batch.values[0], batch.rest(0), word)
        if batch.fits(self._frame_limits):
            return log.append_many(**batch.columns(self._clock.now_us()), durability=word)
        return log.append_batches(self._columns(batch), durability=word)

    def _columns(self, batch: Batch) -> Iterable[Mapping[str, Any]]:
        now_us = self._clock.now_us()
        return (part.columns(now_us) for part in batch.parts(self._frame_limits))

    def _put_once(self, batch: Batch, word: Durability) -> list[Put]:
        """Store messages unless one of the same id was stored within the window."""
        results: list[Put | None] = [None] * len(batch)
        places, dedup_ids = self._places(batch), batch.dedup_ids
        assert dedup_ids is not None
        first_of: dict[str, int] = {}
        new: list[int] = []
        with self.seen.lock:
            self.seen.prepare()
            now_us, oldest_us, ends = self._clock.now_us(), self._oldest_us(), self.seen.ends()
            for index, dedup_id in enumerate(dedup_ids):
                if dedup_id is None:
                    new.append(index)
                elif dedup_id not in first_of:
                    if batch.item(batch.windows_us, index) or self.settings.dedup_window_ms:
                        first_of[dedup_id] = index
                    seen = self.seen.find(dedup_id, oldest_us)
                    if seen is None:
                        new.append(index)
                    else:
                        results[index] = self._seen_put(seen)
            try:
                self._put_all(batch, places, new, results, "os")
            finally:
                # Also when one lane has no room: what the others took must not come again.
                self._note_ids(batch, new, results, now_us, ends)
        for index, dedup_id in enumerate(dedup_ids):
            if results[index] is None:
                first = results[first_of[dedup_id or ""]]
                assert first is not None
                results[index] = first._replace(duplicate=True)
        puts = [put for put in results if put is not None]
        if word == "fsync":
            self.sync(puts)
            if batch.windows_us is not None:
                # A window of its own is in no frame: it must not be lost with the power.
                self.seen.make_durable()
        return puts

    def _note_ids(
        self,
        batch: Batch,
        new: list[int],
        results: list[Put | None],
        now_us: int,
        ends: dict[tuple[int, int], int],
    ) -> None:
        for index in new:
            dedup_id, put = batch.item(batch.dedup_ids, index), results[index]
            window_us = batch.item(batch.windows_us, index)
            if dedup_id is not None and put is not None and (window_us or self.settings.dedup_window_ms):
                lane = lane_number(put.priority)
                floor = ends.get((put.partition, lane), 0) if put.offset is None else 0
                until = None if window_us is None else now_us + window_us
                sighting = Sighting(now_us, put.partition, lane, put.offset, put.scheduled_id, floor, until)
                self.seen.note_id(dedup_id, sighting)

    def _seen_put(self, seen: Sighting) -> Put:
        offset = None if seen.offset == ELSEWHERE else seen.offset
        return Put(self.name, seen.partition, LANES[seen.lane], offset, True, seen.scheduled_id)

    def sync_all(self) -> None:
        """Return once everything that was put so far is on stable storage, delayed messages included."""
        for log in self.lanes().values():
            log.sync()
        self.delays.sync()

    def sync(self, puts: Sequence[Put]) -> None:
        """Wait for messages, and for those that they repeat, to be on stable storage."""
        ends: dict[tuple[int, int], int] = {}
        for put in puts:
            if put.offset is not None:
                place = (put.partition, lane_number(put.priority))
                ends[place] = max(ends.get(place, 0), put.offset + 1)
            else:
                self.delays.sync()
        for (partition, lane), end in ends.items():
            self.partitions[partition].log(lane).sync(end)

    def _put_all(
        self,
        batch: Batch,
        places: list[int],
        indexes: Sequence[int],
        results: list[Put | None],
        word: Durability,
    ) -> None:
        """Store messages, each kind in its place, and note where each one is."""
        direct = list(indexes)
        delayed = [index for index in indexes if batch.item(batch.due, index) is not None]
        if delayed:
            ids = self.delays.put([self._delayed(batch, i, places[i]) for i in delayed], word)
            waiting = {index: id_ for index, id_ in zip(delayed, ids, strict=True) if id_ is not None}
            for index, scheduled_id in waiting.items():
                priority = LANES[batch.lane(index)]
                results[index] = Put(self.name, places[index], priority, None, False, scheduled_id)
            direct = [index for index in indexes if index not in waiting]
        groups: dict[tuple[int, int], list[int]] = {}
        for index in direct:
            groups.setdefault((places[index], batch.lane(index)), []).append(index)
        if not groups:
            return
        try:
            bases = self._append_together(
                {place: batch.chosen(members) for place, members in groups.items()}, word
            )
        except DiskRefused:
            for index in set(indexes).difference(direct):
                self._take_back(results, index)
            raise
        for (number, lane), members in groups.items():
            for offset, index in enumerate(members, bases[number, lane]):
                results[index] = plain_put((self.name, number, LANES[lane], offset, False, None))

    def _take_back(self, results: list[Put | None], index: int) -> None:
        """Call a delayed message off, for which no room is left with the others that came with it."""
        put = results[index]
        assert put is not None
        assert put.scheduled_id is not None, "it waits"
        self.delays.cancel(put.scheduled_id)
        results[index] = None

    def _delayed(self, batch: Batch, index: int, partition: int) -> Delayed:
        key, headers, timestamp, expires_at, dedup_id = batch.rest(index)
        due = batch.item(batch.due, index)
        assert due is not None
        return Delayed(
            due=due,
            partition=partition,
            priority=LANES[batch.lane(index)],
            value=batch.values[index],
            key=key,
            headers=headers,
            timestamp=self._clock.now_us() if timestamp is None else timestamp,
            expires_at=expires_at,
            dedup_id=dedup_id,
        )

    def _lane_log(self, partition: int, priority: str) -> Log:
        return self.partitions[partition].log(lane_number(priority))

    def _storage_of(self, limits: StorageSettings) -> StorageSettings:
        if self.origin is None:
            return limits
        # A message that was not too large must not become so by being given up.
        frame_bytes = min(limits.frame_bytes_max + 2 * _STORY_BYTES, _BYTES_MAX)
        return replace(
            limits,
            message_bytes_max=frame_bytes - _STORY_BYTES,
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
        bytes=frame.header.raw_bytes,
    )
