"""What was taken out of a partition for everybody: dead letters that went back, and what was dropped.

A log only grows, so a message is removed by noting that it is. The note is a state log of its own,
which comes to be with the first removal.
"""

import logging
import threading
from collections.abc import Iterable
from typing import NamedTuple

from quivermq.errors import DiskRefused, InvalidFrame
from quivermq.log import DataDirectory
from quivermq.model.lanes import LANE_COUNT
from quivermq.topic.offsets import OffsetSet, offsets_of, runs
from quivermq.topic.records import pack, unpack
from quivermq.topic.state_log import StateLog, parts

logger = logging.getLogger(__name__)

_REMOVED, _FLOOR, _MOVING, _CUT = 1, 2, 3, 4


class Move(NamedTuple):
    """Messages on their way to another topic: written down before the first step, for after a crash."""

    transfer: int
    lane: int
    offsets: tuple[int, ...]
    target: str
    target_partition: int
    target_lane: int
    target_end: int


class Removed:
    """Which offsets of a partition's lanes are gone, as the records of its state log bring it about."""

    def __init__(self) -> None:
        self.lanes = [OffsetSet() for _ in range(LANE_COUNT)]
        # The moves that were begun and not finished when the process last died.
        self.unfinished: dict[int, Move] = {}

    def apply(self, record: bytes) -> None:
        """Take a change in. Raises InvalidFrame for one that this release does not know."""
        for kind, lane, numbers, text in unpack(record):
            if kind == _REMOVED:
                gone = set(offsets_of(numbers))
                self.lanes[lane].add(gone)
                for move in [
                    m for m in self.unfinished.values() if m.lane == lane and gone.issuperset(m.offsets)
                ]:
                    del self.unfinished[move.transfer]
            elif kind == _FLOOR:
                self.lanes[lane].raise_floor(numbers[0])
            elif kind == _CUT:
                self.lanes[lane].cut(numbers[0])
            elif kind == _MOVING:
                transfer, partition, target_lane, end = numbers[:4]
                offsets = tuple(offsets_of(numbers[4:]))
                self.unfinished[transfer] = Move(
                    transfer, lane, offsets, text.decode(), partition, target_lane, end
                )
            else:
                raise InvalidFrame(f"a removal of kind {kind} is not known", position=0)


class Removals(Removed):
    """The same for whoever changes it. Thread-safe; each change is durable on return."""

    def __init__(self, directory: DataDirectory, name: str) -> None:
        super().__init__()
        self._directory = directory
        self._name = name
        self._lock = threading.Lock()
        self._log: StateLog | None = None
        # What is done already, and could not be written yet.
        self._unwritten = b""
        if directory.disk.is_directory(directory.path / name):
            self._replay()

    def remove(self, lane: int, offsets: Iterable[int]) -> None:
        """Take messages out. Those of an unfinished move end it."""
        flat = runs(offsets)
        self._note(pack(_REMOVED, lane, flat))

    def raise_floor(self, lane: int, floor: int) -> None:
        """Take out everything before an offset."""
        if floor > self.lanes[lane].floor:
            self._note(pack(_FLOOR, lane, [floor]))

    def begin(self, move: Move) -> None:
        """Write down that messages are about to be appended to another log."""
        numbers = [move.transfer, move.target_partition, move.target_lane, move.target_end]
        self._note(pack(_MOVING, move.lane, [*numbers, *runs(move.offsets)], move.target.encode()))

    def finish(self, move: Move) -> None:
        """The messages have arrived, durably, so they are gone here, also on a disk that is full.

        Without the note, the next opening finds the move unfinished, and the messages at its target.
        """
        record = pack(_REMOVED, move.lane, runs(move.offsets))
        with self._lock:
            self.apply(record)
            self._unwritten += record
        try:
            self.finish_moves()
        except DiskRefused as error:
            logger.warning("%s is not written: %s", self._name, error)

    def finish_moves(self) -> bool:
        """Write which moves are done already, and return whether none is under way.

        Then nobody has to look for messages at their target. Raises DiskRefused.
        """
        if self._unwritten:
            self._note(b"")
        return not self.unfinished

    @property
    def has_open_moves(self) -> bool:
        """Whether a move is under way, or it is not written that it is done."""
        return bool(self.unfinished or self._unwritten)

    def give_up(self, move: Move) -> None:
        """Forget a move that did not get as far as the other log."""
        with self._lock:
            self.unfinished.pop(move.transfer, None)

    def cut(self, ends: list[int]) -> None:
        """Forget what lies behind the ends of the lanes: a power loss took it, others will come there."""
        if any(
            lane.runs()[-1:] > [end] or lane.floor > end for lane, end in zip(self.lanes, ends, strict=True)
        ):
            self._note(b"".join(pack(_CUT, lane, [end]) for lane, end in enumerate(ends)))

    def _note(self, record: bytes) -> None:
        with self._lock:
            if self._log is None:
                self._log = StateLog(self._directory, self._name)
            self._log.sync(self._log.append(self._unwritten + record))
            self._unwritten = b""
            self.apply(record)
            if self._log.wants_snapshot:
                self._log.try_snapshot(parts(self._snapshot()))

    def _replay(self) -> None:
        self._log = StateLog(self._directory, self._name)
        self._log.apply(self.apply)

    def _snapshot(self) -> Iterable[bytes]:
        for number, lane in enumerate(self.lanes):
            yield pack(_FLOOR, number, [lane.floor])
            flat = lane.runs()
            for start in range(0, len(flat), 1024):
                yield pack(_REMOVED, number, flat[start : start + 1024])
        for move in self.unfinished.values():
            numbers = [move.transfer, move.target_partition, move.target_lane, move.target_end]
            yield pack(_MOVING, move.lane, [*numbers, *runs(move.offsets)], move.target.encode())
