"""What a topic has seen already: deduplication ids within a window, and the batches of producers.

Both are rebuilt at opening: from a state log that is written along, and from the frames that came in
behind its last checkpoint. The state log comes to be, durably, before the first message that needs it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.errors import Conflict, Corruption, DiskRefused, InvalidFrame
from quivermq.frame import Column, Frame, Header
from quivermq.log import DataDirectory, Log
from quivermq.topic.hashed_ids import hashed_id, is_hashed
from quivermq.topic.producers import ProducedBatch, Producers
from quivermq.topic.records import pack, unpack
from quivermq.topic.sightings import Sighting, Sightings
from quivermq.topic.state_log import StateLog, parts
from quivermq.topic.transfer import TRANSFER_EPOCH

logger = logging.getLogger(__name__)

# The message of an id was not here but in another queue.
ELSEWHERE = -1

_ID, _SCHEDULED, _FORGOTTEN, _BATCH, _CHECKPOINT, _BEGUN, _FIRST, _KNOWN_SINCE = range(1, 9)

# Of this many pairs of producer and lane a release knew that told no times.
_UNTIMED_MAX = 10_000
# So many messages may come in before a checkpoint spares the next opening from looking at them.
_CHECKPOINT_MESSAGES = 5_000

Lanes = dict[tuple[int, int], Log]


class Begun(NamedTuple):
    """What a topic knows of a producer that begins anew."""

    epoch: int
    firsts: dict[tuple[int, int], int]
    """Where its first frame of all epochs is, by lane."""
    known_since_us: int


class Seen:
    """Whoever looks something up and then appends holds `lock` in between."""

    def __init__(
        self,
        directory: DataDirectory,
        name: str,
        lanes: Callable[[], Lanes],
        clock: Clock,
        window_ms: int = 0,
        entries_max: int = 250_000,
    ) -> None:
        self._entries_max = entries_max
        self.lock = threading.Lock()
        self._directory = directory
        self._name = name
        self._lanes = lanes
        self._clock = clock
        self._log: StateLog | None = None
        self._ids = Sightings()
        # How many of them are only known by their hash.
        self._hashed = 0
        # The ids of messages that are delayed.
        self._scheduled: set[str] = set()
        self._has_lost = False
        # Whether the lanes told something that is not written along.
        self._has_learned = False
        self._producers = Producers()
        # Whether the log was written by a release that told no times of producers.
        self._is_untimed = False
        self._checkpoint: dict[tuple[int, int], int] = {}
        # Where a lane is damaged, from here on nobody knows what came to it: to be looked at once mended.
        self._unread: dict[tuple[int, int], int] = {}
        if directory.disk.is_directory(directory.path / name):
            self._recover()
        elif window_ms and any(log.end > log.start for log in lanes().values()):
            # Nobody has put an id so far, or somebody took the files away: the lanes tell.
            try:
                self._rebuild(clock.now_us() - window_ms * 1000)
            except DiskRefused as error:
                # Known, and written before anything else is.
                logger.warning("%s is not written: %s", self._name, error)
                self._look_at_lanes()
                self._has_lost = self._has_learned

    # Deduplication ids.

    def find(self, dedup_id: str, oldest_us: int) -> Sighting | None:
        """The first message of that id, if it came in after `oldest_us`, or its own window is not over."""
        now_us = self._clock.now_us()
        for gone in self._ids.over(oldest_us, now_us):
            self._drop(gone)
        seen = self._ids.get(dedup_id)
        if seen is None and self._hashed:
            seen = self._ids.get(hashed_id(dedup_id))
        return None if seen is None or self._ids.is_over(seen, oldest_us, now_us) else seen

    def configure(self, entries_max: int) -> None:
        """Remember so many ids from now on."""
        with self.lock:
            self._entries_max = entries_max
            while len(self._ids) > entries_max:
                self._drop(self._ids.oldest())

    def ends(self) -> dict[tuple[int, int], int]:
        """Where the next message of each lane will be."""
        return {lane: log.end for lane, log in self._lanes().items()}

    def note_id(self, dedup_id: str, sighting: Sighting) -> None:
        """Remember where the message of an id is."""
        self._add(dedup_id, sighting)
        self._write(_packed(dedup_id, sighting))

    def adopt_ids(self, sightings: Sequence[tuple[str, Sighting]]) -> None:
        """Remember, durably, ids that another queue knew. One that is known here already stays as it is.

        They are in no frame, so there must be room for them in the log. Raises DiskFull.
        """
        with self.lock:
            self.prepare()
            assert self._log is not None
            log, end = self._log, 0
            new = [(dedup_id, seen) for dedup_id, seen in sightings if dedup_id not in self._ids]
            for record in parts(_packed(dedup_id, seen) for dedup_id, seen in new):
                end = log.append(record)
            for dedup_id, seen in new:
                self._add(dedup_id, seen)
            self._keep_short()
        log.sync(end or None)

    def forget_scheduled(self, scheduled_id: str) -> None:
        """A delayed message was cancelled: its id may come again."""
        with self.lock:
            known = [(dedup_id, self._ids.get(dedup_id)) for dedup_id in self._scheduled]
            gone = [dedup_id for dedup_id, seen in known if seen and seen.scheduled_id == scheduled_id]
            for dedup_id in gone:
                # In any case: the next opening asks the delay store what was cancelled.
                self._drop(dedup_id)
                self._write(pack(_FORGOTTEN, 0, (), dedup_id.encode()))

    def forget_all_scheduled(self) -> None:
        """All delayed messages were cancelled: their ids may come again."""
        with self.lock:
            for dedup_id in list(self._scheduled):
                self._drop(dedup_id)
                self._write(pack(_FORGOTTEN, 0, (), dedup_id.encode()))

    @property
    def has_ids(self) -> bool:
        """Whether some id is remembered, perhaps for longer than it should be."""
        return bool(self._ids)

    @property
    def has_scheduled(self) -> bool:
        """Whether an id belongs to a message that is delayed."""
        return bool(self._scheduled)

    def restore_scheduled(self, scheduled: Iterable[tuple[str, Sighting]]) -> None:
        """Take in the deduplication ids of what waits in the delay store.

        What it does not know was cancelled, or released: then it is in a lane, perhaps only since the
        store was opened.
        """
        if self._log is not None:
            self._look_at_lanes()
        waiting = {seen.scheduled_id: (dedup_id, seen) for dedup_id, seen in scheduled}
        for dedup_id, seen in list(self._ids):
            if seen.offset is None and waiting.pop(seen.scheduled_id, None) is None:
                self._drop(dedup_id)
        ends = self.ends()
        for dedup_id, seen in waiting.values():
            known = self._ids.get(dedup_id)
            if known is None or known.time < seen.time:
                # The process died before it was noted.
                self._add(dedup_id, seen._replace(floor=ends.get((seen.partition, seen.lane), 0)))

    def note_released(self, partition: int, lane: int, log: Log, offsets: range) -> None:
        """Delayed messages are in their lane now: their ids lead there."""
        for frame in log.frames(offsets.start):
            if frame.header.base_offset >= offsets.stop:
                return
            if frame.header.columns & Column.DEDUP_ID:
                for offset, dedup_id in enumerate(frame.dedup_ids(), frame.header.base_offset):
                    seen = self._ids.get(dedup_id or "")
                    if dedup_id is not None and seen is not None and seen.can_be(partition, lane, offset):
                        self.note_id(dedup_id, _there(seen, partition, lane, offset))

    # Producers.

    def find_batch(self, partition: int, lane: int, header: Header) -> int | None:
        """The offset of a batch that came in before; None when it is the next one.

        Raises Conflict for one of an older epoch, one that leaves out some, and one so old that nobody
        remembers where it is.
        """
        return self._producers.find_batch((partition, lane), header)

    def note_batch(self, partition: int, lane: int, header: Header, base_offset: int) -> None:
        """Remember a batch that was appended."""
        now_us = self._clock.now_us()
        record = _packed_batch(partition, lane, header, base_offset, now_us)
        self._apply(record)
        self._producers.forget(now_us)
        self._write(record)

    def begin_producer(self, producer_id: int) -> Begun:
        """Give a producer its next epoch, and say where it has been before.

        Frames of older epochs are refused from then on. Raises Conflict when there is no further epoch.
        """
        with self.lock:
            self.prepare()
            assert self._log is not None
            producer = self._producers.get(producer_id)
            epoch = 0 if producer is None else producer.epoch + 1
            if epoch >= TRANSFER_EPOCH:
                raise Conflict(f"producer {producer_id} has begun too often: give it another id")
            lanes = {} if producer is None else producer.lanes
            firsts = {lane: there.first for lane, there in lanes.items()}
            # Before it is noted itself, for which others may be forgotten.
            known_since_us = self._producers.known_since_us
            now_us = self._clock.now_us()
            record = pack(_BEGUN, 0, (_signed(producer_id), epoch, now_us))
            # Unlike a batch, it is nowhere else: without room for it nothing has begun.
            log, end = self._log, self._log.append(record)
            self._apply(record)
            self._producers.forget(now_us)
            self._keep_short()
        log.sync(end)
        return Begun(epoch, firsts, known_since_us)

    # The log.

    def prepare(self) -> None:
        """Make sure that a crash from here on loses nothing that is noted: called before the append."""
        if self._log is None:
            log = StateLog(self._directory, self._name)
            self._checkpoint = self._known_ends()
            if self._has_lost:
                log.snapshot(parts(self._snapshot()))
                self._has_lost = False
            else:
                log.sync(log.append(self._packed_checkpoint()))
            self._log = log

    @property
    def is_kept(self) -> bool:
        """Whether there is a log of it, which wants to be kept up to date."""
        return self._log is not None

    def checkpoint(self) -> None:
        """Spare the next opening from looking at what is known already."""
        if self._log is None:
            return
        with self.lock:
            ends = self._known_ends()
            grown = sum(end - self._checkpoint.get(lane, 0) for lane, end in ends.items())
            if grown >= _CHECKPOINT_MESSAGES:
                self._checkpoint = ends
                if self._has_lost:
                    # What was not written along is written now, or has to be looked for at the opening.
                    self._log.snapshot(parts(self._snapshot()))
                    self._has_lost = False
                else:
                    self._log.append(self._packed_checkpoint())

    def make_durable(self) -> None:
        """Have on stable storage what is known: retention is about to take the messages that tell it, too.

        Raises DiskRefused: then they have to stay.
        """
        if self._log is None and not self._has_lost:
            return
        # Also to wait for who has appended a message, and not noted it yet.
        with self.lock:
            self.prepare()
            assert self._log is not None, "it is there from now on"
            if self._has_lost:
                self._checkpoint = self._known_ends()
                self._log.snapshot(parts(self._snapshot()))
                self._has_lost = False
        self._log.sync()

    def _write(self, record: bytes) -> None:
        """Write along what is known. On a full disk, the next opening finds it in the lane itself."""
        if self._log is None:
            self.prepare()
        assert self._log is not None
        try:
            self._log.append(record)
        except DiskRefused as error:
            logger.warning("%s is not written along: %s", self._name, error)
            self._has_lost = True
            return
        self._keep_short()

    def _recover(self) -> None:
        self._log = StateLog(self._directory, self._name)
        self._log.apply(self._apply)
        self._look_at_lanes()
        # A power loss may have taken messages that were noted: their ids and batches are free again.
        ends, is_cut = self.ends(), False
        for dedup_id, seen in list(self._ids):
            end = ends.get((seen.partition, seen.lane), 0)
            is_cut |= seen.floor > end or (seen.offset is not None and seen.offset >= end)
            if seen.offset is not None and seen.offset >= end:
                self._drop(dedup_id)
            elif seen.floor > end:
                self._add(dedup_id, seen._replace(floor=end))
        if self._is_untimed and self._producers.places >= _UNTIMED_MAX:
            # It may have forgotten some, and did not say so.
            self._producers.forgot_before(self._clock.now_us())
        is_cut |= self._producers.cut(ends)
        self._producers.forget(self._clock.now_us())
        self._ids.sort()
        try:
            # Durable before new messages come to these offsets.
            self._log.snapshot(parts(self._snapshot()))
        except DiskRefused as error:
            if is_cut:
                raise
            # What the lanes hold, they tell at the next opening as well; they must not lose it meanwhile.
            logger.warning("%s is not written anew: %s", self._name, error)
            self._has_lost = self._has_learned

    def _rebuild(self, oldest_us: int) -> None:
        """Know again, from the lanes alone, what came in since then."""
        for place, log in self._lanes().items():
            # Nothing comes before the first, whenever that began.
            begun = ((segment.base_offset, segment.first_append_time()) for segment in log.segments[1:])
            older = [base for base, time_us in begun if time_us is not None and time_us <= oldest_us]
            self._checkpoint[place] = max(older, default=log.start)
        looked_at = sum(log.end - self._checkpoint[place] for place, log in self._lanes().items())
        self._look_at_lanes()
        if self._ids or self._producers.places or self._unread or looked_at >= _CHECKPOINT_MESSAGES:
            self._recover()

    def _look_at_lanes(self) -> None:
        """Take in what came to the lanes behind the checkpoint."""
        for (partition, lane), log in self._lanes().items():
            self._look_at(partition, lane, log)

    def _look_at(self, partition: int, lane: int, log: Log) -> None:
        # A power loss may have taken the end: then the checkpoint is about messages that are gone.
        start = max(min(self._checkpoint.get((partition, lane), 0), log.end), log.start)
        for frame in self._readable_frames(partition, lane, start):
            header = frame.header
            if header.producer_id and header.producer_epoch != TRANSFER_EPOCH:
                self._has_learned = True
                self._apply(_packed_batch(partition, lane, header, header.base_offset, header.append_time))
            if header.columns & Column.DEDUP_ID:
                self._look_into(partition, lane, frame)
        self._checkpoint[partition, lane] = self._unread.get((partition, lane), log.end)

    def _readable_frames(self, partition: int, lane: int, start: int) -> Iterator[Frame]:
        """The frames of a lane from an offset on, up to one that is damaged.

        Whoever reads that one is told. It must not keep the other lanes from being served.
        """
        log = self._lanes()[partition, lane]
        try:
            if start < log.end:
                yield from log.frames(start)
        except Corruption as damage:
            logger.error("ids and producers are not known in full: %s", damage)
            self._unread[partition, lane] = max(start, damage.offsets[0])

    def _known_ends(self) -> dict[tuple[int, int], int]:
        """How far every lane is known."""
        return {lane: self._unread.get(lane, end) for lane, end in self.ends().items()}

    def _look_into(self, partition: int, lane: int, frame: Frame) -> None:
        header = frame.header
        seen_at = [header.append_time] * len(frame)
        if header.producer_epoch == TRANSFER_EPOCH:
            # A delayed message was seen when it was put, long before it came here.
            seen_at = [min(header.append_time, timestamp) for timestamp in frame.timestamps()]
        for offset, dedup_id in enumerate(frame.dedup_ids(), header.base_offset):
            if dedup_id is None:
                continue
            known, time = self._ids.get(dedup_id), seen_at[offset - frame.header.base_offset]
            self._has_learned |= known is None or known.offset != offset
            if known is not None and known.can_be(partition, lane, offset):
                self._add(dedup_id, _there(known, partition, lane, offset))
            elif known is None or known.time <= time:
                # Of two of an id, the later one was let in because the window of the earlier one was over.
                # A window of its own is not in the frame: only the state log knows it.
                until = known.until if known is not None and known.is_at(partition, lane, offset) else None
                self._add(dedup_id, Sighting(time, partition, lane, offset, until=until))

    def _keep_short(self) -> None:
        if self._log is not None and self._log.wants_snapshot:
            self._checkpoint = self._known_ends()
            # In memory it knows everything, also what a full disk kept from being written along.
            self._log.try_snapshot(parts(self._snapshot()))

    def _snapshot(self) -> Iterator[bytes]:
        yield self._packed_checkpoint()
        for dedup_id, sighting in self._ids:
            yield _packed(dedup_id, sighting)
        yield pack(_KNOWN_SINCE, 0, (self._producers.known_since_us,))
        for producer_id, producer in self._producers:
            signed, time_us = _signed(producer_id), producer.time_us
            if producer.begun >= 0:
                yield pack(_BEGUN, 0, (signed, producer.begun, time_us))
            for (partition, lane), there in producer.lanes.items():
                yield pack(_FIRST, lane, (partition, signed, there.epoch, there.first, time_us))
                for batch in there.batches:
                    yield pack(_BATCH, lane, (partition, signed, there.epoch, *batch, time_us))

    def _packed_checkpoint(self) -> bytes:
        flat = (number for (p, lane), end in self._checkpoint.items() for number in (p, lane, end))
        return pack(_CHECKPOINT, 0, flat)

    def _apply(self, record: bytes) -> None:
        for kind, lane, numbers, text in unpack(record):
            if kind == _ID:
                time, partition, offset, *until = numbers
                sighting = Sighting(time, partition, lane, offset, until=until[0] if until else None)
                self._add(text.decode(), sighting)
            elif kind == _SCHEDULED:
                scheduled_id, _, dedup_id = text.partition(b"\0")
                time, partition, floor, *until = numbers
                end = until[0] if until else None
                sighting = Sighting(time, partition, lane, None, scheduled_id.decode(), floor, end)
                self._add(dedup_id.decode(), sighting)
            elif kind == _FORGOTTEN:
                self._drop(text.decode())
            elif kind == _BATCH:
                (partition, producer_id, epoch, *batch), time_us = self._timed(numbers, 6)
                place = producer_id % 2**64, (partition, lane), epoch
                self._producers.add_batch(*place, ProducedBatch(*batch), time_us)
            elif kind == _FIRST:
                (partition, producer_id, epoch, first), time_us = self._timed(numbers, 4)
                self._producers.add_lane(producer_id % 2**64, (partition, lane), epoch, first, time_us)
            elif kind == _BEGUN:
                (producer_id, epoch), time_us = self._timed(numbers, 2)
                self._producers.add_begun(producer_id % 2**64, epoch, time_us)
            elif kind == _KNOWN_SINCE:
                self._producers.forgot_before(*numbers)
            elif kind == _CHECKPOINT:
                places = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
                self._checkpoint.update(((p, lane), end) for p, lane, end in places)
            else:
                raise InvalidFrame(f"a sighting of kind {kind} is not known", position=0)

    def _add(self, dedup_id: str, sighting: Sighting) -> None:
        self._drop(dedup_id)
        self._ids.add(dedup_id, sighting)
        self._hashed += is_hashed(dedup_id)
        if sighting.offset is None:
            self._scheduled.add(dedup_id)
        while len(self._ids) > self._entries_max:
            # Full means that the oldest go, never that a new one goes untracked.
            self._drop(self._ids.oldest())

    def _drop(self, dedup_id: str) -> None:
        if self._ids.pop(dedup_id) is not None:
            self._hashed -= is_hashed(dedup_id)
        self._scheduled.discard(dedup_id)

    def _timed(self, numbers: Sequence[int], count: int) -> tuple[Sequence[int], int]:
        """The numbers of a record about a producer, and the time at its end."""
        if len(numbers) > count:
            *numbers, time_us = numbers
            return numbers, time_us
        self._is_untimed = True
        # As if it came now: so nobody is forgotten too early.
        return numbers, self._clock.now_us()


def _there(seen: Sighting, partition: int, lane: int, offset: int) -> Sighting:
    """A message that was delayed, now that it is in its lane."""
    return Sighting(seen.time, partition, lane, offset, until=seen.until)


def _packed(dedup_id: str, seen: Sighting) -> bytes:
    until = () if seen.until is None else (seen.until,)
    if seen.offset is not None:
        return pack(_ID, seen.lane, (seen.time, seen.partition, seen.offset, *until), dedup_id.encode())
    text = (seen.scheduled_id or "").encode() + b"\0" + dedup_id.encode()
    return pack(_SCHEDULED, seen.lane, (seen.time, seen.partition, seen.floor, *until), text)


def _packed_batch(partition: int, lane: int, header: Header, base_offset: int, time_us: int) -> bytes:
    numbers = (
        partition,
        _signed(header.producer_id),
        header.producer_epoch,
        header.base_sequence,
        header.message_count,
        base_offset,
        time_us,
    )
    return pack(_BATCH, lane, numbers)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
