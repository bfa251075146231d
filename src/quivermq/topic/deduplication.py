"""Deduplication: which ids came to a topic within a window, and which batches its producers sent.

Both are rebuilt at opening: from a state log that is written along, and from the frames that came in
behind its last checkpoint. The state log comes to be, durably, before the first message that needs it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.errors import Conflict, Corruption, DiskRefused
from quivermq.frame import Column, Frame, Header
from quivermq.log import DataDirectory, Log
from quivermq.model.lanes import PartitionLane
from quivermq.topic.dedup_index import DedupEntry
from quivermq.topic.dedup_state import DedupState, batch_record, begun_record, forgotten_record, id_record
from quivermq.topic.partition import LaneLogs
from quivermq.topic.state_log import StateLog, parts
from quivermq.topic.transfer import TRANSFER_EPOCH

logger = logging.getLogger(__name__)

# So many messages may come in before a checkpoint spares the next opening from looking at them.
_CHECKPOINT_MESSAGES = 5_000


class Begun(NamedTuple):
    """What a topic knows of a producer that begins anew."""

    epoch: int
    firsts: dict[PartitionLane, int]
    """Where its first frame of all epochs is, by lane."""
    known_since_us: int


class Deduplication:
    """Whoever looks something up and then appends holds `lock` in between."""

    def __init__(
        self,
        directory: DataDirectory,
        name: str,
        lanes: Callable[[], LaneLogs],
        clock: Clock,
        *,
        window_ms: int = 0,
        entries_max: int = 250_000,
    ) -> None:
        self.lock = threading.Lock()
        self._directory = directory
        self._name = name
        self._lanes = lanes
        self._clock = clock
        self._log: StateLog | None = None
        self._state = DedupState(entries_max)
        self._ids = self._state.ids
        self._producers = self._state.producers
        # Whether something is known that could not be written along.
        self._is_log_behind = False
        # Whether the lanes had something that is not written along.
        self._has_learned = False
        # Where a lane is damaged, from here on nobody knows what came to it: to be looked at once mended.
        self._unread: dict[PartitionLane, int] = {}
        if directory.disk.is_directory(directory.path / name):
            self._recover()
        elif window_ms and any(log.end > log.start for log in lanes().values()):
            # Nobody has put an id so far, or somebody took the files away: the lanes have them.
            try:
                self._rebuild(clock.now_us() - window_ms * 1000)
            except DiskRefused as error:
                # Known, and written before anything else is.
                logger.warning("%s is not written: %s", self._name, error)
                self._look_at_lanes()
                self._is_log_behind = self._has_learned

    # Deduplication ids.

    def find(self, dedup_id: str, oldest_us: int) -> DedupEntry | None:
        """The first message of that id, if it came in after `oldest_us`, or its own window is not over."""
        return self._ids.find(dedup_id, oldest_us, self._clock.now_us())

    def configure(self, entries_max: int) -> None:
        """Remember so many ids from now on."""
        with self.lock:
            self._ids.configure(entries_max)

    def ends(self) -> dict[PartitionLane, int]:
        """Where the next message of each lane will be."""
        return {lane: log.end for lane, log in self._lanes().items()}

    def note_id(self, dedup_id: str, entry: DedupEntry) -> None:
        """Remember where the message of an id is."""
        self._ids.add(dedup_id, entry)
        self._write(id_record(dedup_id, entry))

    def adopt_ids(self, entries: Sequence[tuple[str, DedupEntry]]) -> None:
        """Remember, durably, ids that another queue knew. One that is known here already stays as it is.

        They are in no frame, so there must be room for them in the log. Raises DiskFull.
        """
        with self.lock:
            log, end = self._opened(), 0
            new = [(dedup_id, entry) for dedup_id, entry in entries if dedup_id not in self._ids]
            for record in parts(id_record(dedup_id, entry) for dedup_id, entry in new):
                end = log.append(record)
            for dedup_id, entry in new:
                self._ids.add(dedup_id, entry)
            self._keep_short(log)
        log.sync(end or None)

    def forget_scheduled(self, scheduled_id: str | None = None) -> None:
        """A delayed message was cancelled, or all were: their ids may come again."""
        with self.lock:
            for dedup_id in list(self._ids.scheduled):
                entry = self._ids.get(dedup_id)
                if scheduled_id is None or (entry is not None and entry.scheduled_id == scheduled_id):
                    # In any case: the next opening asks the delay store what was cancelled.
                    self._ids.remove(dedup_id)
                    self._write(forgotten_record(dedup_id))

    @property
    def has_ids(self) -> bool:
        """Whether some id is remembered, perhaps for longer than it should be."""
        return bool(self._ids)

    @property
    def has_scheduled(self) -> bool:
        """Whether an id belongs to a message that is delayed."""
        return bool(self._ids.scheduled)

    def restore_scheduled(self, scheduled: Iterable[tuple[str, DedupEntry]]) -> None:
        """Take in the deduplication ids of what waits in the delay store.

        What it does not know was cancelled, or released: then it is in a lane, perhaps only since the
        store was opened.
        """
        if self._log is not None:
            self._look_at_lanes()
        waiting = {entry.scheduled_id: (dedup_id, entry) for dedup_id, entry in scheduled}
        for dedup_id, entry in list(self._ids):
            if entry.offset is None and waiting.pop(entry.scheduled_id, None) is None:
                self._ids.remove(dedup_id)
        ends = self.ends()
        for dedup_id, entry in waiting.values():
            known = self._ids.get(dedup_id)
            if known is None or known.time < entry.time:
                # The process died before it was noted.
                floor = ends.get((entry.partition, entry.lane), 0)
                self._ids.add(dedup_id, entry._replace(floor=floor))

    def note_released(self, partition: int, lane: int, log: Log, offsets: range) -> None:
        """Delayed messages are in their lane now: their ids lead there."""
        for frame in log.frames(offsets.start):
            if frame.header.base_offset >= offsets.stop:
                return
            if frame.header.columns & Column.DEDUP_ID:
                for offset, dedup_id in enumerate(frame.dedup_ids(), frame.header.base_offset):
                    entry = None if dedup_id is None else self._ids.get(dedup_id)
                    if dedup_id is not None and entry is not None and entry.can_be(partition, lane, offset):
                        self.note_id(dedup_id, entry.arrived(offset))

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
        record = batch_record(partition, lane, header, base_offset, now_us)
        self._state.apply(record)
        self._producers.forget(now_us)
        self._write(record)

    def begin_producer(self, producer_id: int) -> Begun:
        """Give a producer its next epoch, and say where it has been before.

        Frames of older epochs are refused from then on. Raises Conflict when there is no further epoch.
        """
        with self.lock:
            log = self._opened()
            producer = self._producers.get(producer_id)
            epoch = 0 if producer is None else producer.epoch + 1
            if epoch >= TRANSFER_EPOCH:
                raise Conflict(f"producer {producer_id} has begun too often: give it another id")
            lanes = {} if producer is None else producer.lanes
            firsts = {lane: there.first for lane, there in lanes.items()}
            # Before it is noted itself, for which others may be forgotten.
            known_since_us = self._producers.known_since_us
            now_us = self._clock.now_us()
            record = begun_record(producer_id, epoch, now_us)
            # Unlike a batch, it is nowhere else: without room for it nothing has begun.
            end = log.append(record)
            self._state.apply(record)
            self._producers.forget(now_us)
            self._keep_short(log)
        log.sync(end)
        return Begun(epoch, firsts, known_since_us)

    # The log.

    def prepare(self) -> None:
        """Make sure that a crash from here on loses nothing that is noted: called before the append."""
        if self._log is None:
            self._opened()

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
            grown = sum(end - self._state.checkpoint.get(lane, 0) for lane, end in ends.items())
            if grown >= _CHECKPOINT_MESSAGES:
                self._state.checkpoint = ends
                if self._is_log_behind:
                    # What was not written along is written now, or has to be looked for at the opening.
                    self._snapshot(self._log)
                else:
                    self._log.append(self._state.checkpoint_record())

    def make_durable(self) -> None:
        """Have on stable storage what is known: retention is about to take the messages that have it, too.

        Raises DiskRefused: then they have to stay.
        """
        if self._log is None and not self._is_log_behind:
            return
        # Also to wait for who has appended a message, and not noted it yet.
        with self.lock:
            log = self._opened()
            if self._is_log_behind:
                self._state.checkpoint = self._known_ends()
                self._snapshot(log)
        log.sync()

    def _opened(self) -> StateLog:
        """The log, which says, durably, up to where everything is known that it has to know."""
        if self._log is None:
            log = StateLog(self._directory, self._name)
            self._state.checkpoint = self._known_ends()
            if self._is_log_behind:
                self._snapshot(log)
            else:
                log.sync(log.append(self._state.checkpoint_record()))
            self._log = log
        return self._log

    def _write(self, record: bytes) -> None:
        """Write along what is known. On a full disk, the next opening finds it in the lane itself."""
        log = self._opened()
        try:
            log.append(record)
        except DiskRefused as error:
            logger.warning("%s is not written along: %s", self._name, error)
            self._is_log_behind = True
            return
        self._keep_short(log)

    def _keep_short(self, log: StateLog) -> None:
        if log.wants_snapshot:
            self._state.checkpoint = self._known_ends()
            # In memory it knows everything, also what a full disk kept from being written along.
            log.try_snapshot(parts(self._state.snapshot()))

    def _snapshot(self, log: StateLog) -> None:
        """Let the log say all that is known. Raises DiskRefused."""
        log.snapshot(parts(self._state.snapshot()))
        self._is_log_behind = False

    # Opening.

    def _recover(self) -> None:
        log = self._log = StateLog(self._directory, self._name)
        log.apply(self._state.apply)
        self._look_at_lanes()
        # A power loss may have taken messages that were noted: their ids and batches are free again.
        is_cut = self._state.cut(self.ends())
        self._producers.forget(self._clock.now_us())
        try:
            # Durable before new messages come to these offsets.
            self._snapshot(log)
        except DiskRefused as error:
            if is_cut:
                raise
            # The lanes have it for the next opening as well; they must not lose it meanwhile.
            logger.warning("%s is not written anew: %s", self._name, error)
            self._is_log_behind = self._has_learned

    def _rebuild(self, oldest_us: int) -> None:
        """Know again, from the lanes alone, what came in since then."""
        checkpoint = self._state.checkpoint
        for place, log in self._lanes().items():
            # Nothing comes before the first, whenever that began. From the newest on: most need no look.
            begun = (
                (segment.base_offset, segment.first_append_time()) for segment in reversed(log.segments[1:])
            )
            older = (base for base, time_us in begun if time_us is not None and time_us <= oldest_us)
            checkpoint[place] = next(older, log.start)
        looked_at = sum(log.end - checkpoint[place] for place, log in self._lanes().items())
        self._look_at_lanes()
        if self._ids or self._producers.places or self._unread or looked_at >= _CHECKPOINT_MESSAGES:
            self._recover()

    def _look_at_lanes(self) -> None:
        """Take in what came to the lanes behind the checkpoint."""
        checkpoint = self._state.checkpoint
        for (partition, lane), log in self._lanes().items():
            # A power loss may have taken the end: then the checkpoint is about messages that are gone.
            start = max(min(checkpoint.get((partition, lane), 0), log.end), log.start)
            for frame in self._readable_frames(partition, lane, start):
                header = frame.header
                if header.producer_id and header.producer_epoch != TRANSFER_EPOCH:
                    self._has_learned = True
                    self._state.apply(
                        batch_record(partition, lane, header, header.base_offset, header.append_time)
                    )
                if header.columns & Column.DEDUP_ID:
                    self._look_into(partition, lane, frame)
            checkpoint[partition, lane] = self._unread.get((partition, lane), log.end)

    def _readable_frames(self, partition: int, lane: int, start: int) -> Iterator[Frame]:
        """The frames of a lane from an offset on, up to one that is damaged.

        Whoever reads that one gets the error. It must not keep the other lanes from being served.
        """
        log = self._lanes()[partition, lane]
        try:
            if start < log.end:
                yield from log.frames(start)
        except Corruption as damage:
            logger.error("ids and producers are not known in full: %s", damage)
            self._unread[partition, lane] = max(start, damage.offsets[0])

    def _known_ends(self) -> dict[PartitionLane, int]:
        """How far every lane is known."""
        return {lane: self._unread.get(lane, end) for lane, end in self.ends().items()}

    def _look_into(self, partition: int, lane: int, frame: Frame) -> None:
        header = frame.header
        put_at = [header.append_time] * len(frame)
        if header.producer_epoch == TRANSFER_EPOCH:
            # A delayed message was put long before it came here.
            put_at = [min(header.append_time, timestamp) for timestamp in frame.timestamps()]
        for index, dedup_id in enumerate(frame.dedup_ids()):
            if dedup_id is None:
                continue
            offset, time, known = header.base_offset + index, put_at[index], self._ids.get(dedup_id)
            self._has_learned |= known is None or known.offset != offset
            if known is not None and known.can_be(partition, lane, offset):
                self._ids.add(dedup_id, known.arrived(offset))
            elif known is None or known.time <= time:
                # Of two of an id, the later one was let in because the window of the earlier one was over.
                # A window of its own is not in the frame: only the state log knows it.
                until = known.until if known is not None and known.is_at(partition, lane, offset) else None
                self._ids.add(dedup_id, DedupEntry(time, partition, lane, offset, until=until))
