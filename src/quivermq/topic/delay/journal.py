"""What was released and what was cancelled, and what is on its way from the store to a lane.

No message has a state of its own: in each epoch everything up to a watermark was released, but for what
was cancelled before; one that goes to its lane before it is due counts as cancelled here. An intent is
written before messages are appended to their lanes, and says, after a crash, which ones they were, and
where to look for them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quivermq.errors import InvalidFrame
from quivermq.log import DataDirectory, Log
from quivermq.topic.delay.message import due_of, offset_of, rank_of, serial_of
from quivermq.topic.offsets import OffsetSet, offsets_of
from quivermq.topic.records import pack, unpack
from quivermq.topic.state_log import StateLog, parts

NAME = "journal"

_INTENT, _SETTLED, _CANCELLED, _CUT, _REMOVED, _WATERMARK, _EARLY, _CANCELLED_BEFORE = range(1, 9)
_TARGET_NUMBERS = 4
_RUNS_NUMBERS = 1024


@dataclass(slots=True, eq=False)
class ReleaseTarget:
    """A lane that messages go to, and where it ended, and was synced up to, when the intent was written."""

    partition: int
    lane: int
    synced_end: int
    end: int
    # Where the messages are, once they are known to be there.
    log: Log | None = field(default=None, init=False)
    offsets: range | None = field(default=None, init=False)

    @property
    def is_safe(self) -> bool:
        """Whether the messages are in the lane for good."""
        return (
            self.log is not None and self.offsets is not None and self.log.synced_end >= self.offsets.stop
        )

    def sync(self) -> None:
        """Make them safe, if they are there."""
        if self.log is not None and self.offsets is not None:
            self.log.sync(self.offsets.stop)


@dataclass(slots=True, eq=False)
class Intent:
    """The messages of an epoch that rank behind `after`, up to `upto`, are about to go to their lanes.

    Where both are the same, it is that one message, whatever waits before it.
    """

    number: int
    transfer: int
    epoch: int
    after: int
    upto: int
    targets: list[ReleaseTarget]
    is_finished: bool = False
    # Known to the process that wrote it down; recovery does not need it.
    messages: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether nothing of it has to be looked for after a power loss."""
        return self.is_finished and all(target.is_safe for target in self.targets)


@dataclass(slots=True)
class DelayState:
    """What the journal says."""

    watermarks: dict[int, int] = field(default_factory=dict)
    cancelled: dict[int, OffsetSet] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    # Those that may not be in their lanes, oldest first.
    unsafe: list[Intent] = field(default_factory=list)
    next_serial: int = 1


class DelayJournal:
    """Comes to be with its first record. Not thread-safe, but for `sync`."""

    def __init__(self, directory: DataDirectory, name: str) -> None:
        self._directory = directory
        self._name = f"{name}/{NAME}"
        self._log: StateLog | None = None
        self._number = 0

    def replay(self) -> DelayState:
        """What the records say."""
        state = DelayState()
        if self._directory.disk.is_directory(self._directory.path / self._name):
            for record in self._opened().replay():
                for kind, _, numbers, _ in unpack(record):
                    _apply(state, kind, numbers)
        if state.unsafe:
            self._number = state.unsafe[-1].number
        return state

    def intend(self, intent: Intent, unsafe: int, next_serial: int, *, is_early: bool) -> int:
        """Write down what is about to happen; every intent before the number `unsafe` is over.

        With `is_early` it is a single message, which does not wait until it is due.
        """
        numbers = [intent.number, unsafe, intent.transfer, intent.epoch, next_serial]
        numbers += (*_fields(intent.after), *_fields(intent.upto))
        for target in intent.targets:
            numbers += (target.partition, target.lane, target.synced_end, target.end)
        return self._append(pack(_EARLY if is_early else _INTENT, 0, numbers))

    def new_number(self) -> int:
        self._number += 1
        return self._number

    def end_intents(self) -> int:
        """Write down that every intent so far is over."""
        return self._append(pack(_SETTLED, 0, []))

    def cancel(self, rank: int) -> int:
        """Write down that a message never comes."""
        offset = offset_of(rank)
        return self._append(pack(_CANCELLED, 0, [serial_of(rank), offset, offset + 1]))

    def cancel_all(self, serial: int, end: int) -> int:
        """Write down that nothing in a bucket comes that lies before an offset."""
        return self._append(pack(_CANCELLED_BEFORE, 0, [serial, end]))

    def cut(self, serial: int, end: int) -> int:
        """Write down that a power loss took what lay behind the end of a bucket: others will come there."""
        return self._append(pack(_CUT, 0, [serial, end]))

    def remove(self, serials: Iterable[int], next_serial: int) -> int:
        """Write down that buckets go: what is left of them after a crash is nothing that waits."""
        return self._append(pack(_REMOVED, 0, [next_serial, *serials]))

    def sync(self, end: int | None = None) -> None:
        """Return once every record before `end` survives power loss; without it, all of them."""
        self._opened().sync(end)

    @property
    def wants_snapshot(self) -> bool:
        return self._log is not None and self._log.wants_snapshot

    def snapshot(self, state: DelayState) -> None:
        """Put what is true now in place of all records. No intent may be unsafe."""
        self._opened().snapshot(parts(_records(state)))

    def close(self) -> None:
        if self._log is not None:
            self._directory.release(self._name)

    def _append(self, record: bytes) -> int:
        return self._opened().append(record)

    def _opened(self) -> StateLog:
        if self._log is None:
            self._log = StateLog(self._directory, self._name)
        return self._log


def _fields(rank: int) -> tuple[int, int, int]:
    return due_of(rank), serial_of(rank), offset_of(rank)


def _apply(state: DelayState, kind: int, numbers: Sequence[int]) -> None:
    if kind in (_INTENT, _EARLY):
        intent, unsafe = _intent(numbers)
        state.unsafe = [other for other in state.unsafe if other.number >= unsafe]
        state.unsafe.append(intent)
        if kind == _INTENT:
            state.watermarks[intent.epoch] = intent.upto
        else:
            cancelled = state.cancelled.setdefault(serial_of(intent.upto), OffsetSet())
            cancelled.add([offset_of(intent.upto)])
        state.next_serial = max(state.next_serial, numbers[4])
    elif kind == _SETTLED:
        state.unsafe = []
    elif kind == _CANCELLED:
        state.cancelled.setdefault(numbers[0], OffsetSet()).add(offsets_of(numbers[1:]))
    elif kind == _CANCELLED_BEFORE:
        state.cancelled.setdefault(numbers[0], OffsetSet()).raise_floor(numbers[1])
    elif kind == _CUT:
        state.cancelled.setdefault(numbers[0], OffsetSet()).cut(numbers[1])
    elif kind == _REMOVED:
        state.next_serial = max(state.next_serial, numbers[0])
        state.removed.update(numbers[1:])
    elif kind == _WATERMARK:
        state.watermarks[numbers[0]] = rank_of(*numbers[1:4])
    else:
        raise InvalidFrame(f"the journal of a delay store has a record of kind {kind}", position=0)


def _intent(numbers: Sequence[int]) -> tuple[Intent, int]:
    number, unsafe, transfer, epoch = numbers[:4]
    after, upto = rank_of(*numbers[5:8]), rank_of(*numbers[8:11])
    starts = range(11, len(numbers), _TARGET_NUMBERS)
    targets = [ReleaseTarget(*numbers[start : start + _TARGET_NUMBERS]) for start in starts]
    return Intent(number, transfer, epoch, after, upto, targets), unsafe


def _records(state: DelayState) -> Iterable[bytes]:
    yield pack(_REMOVED, 0, [state.next_serial, *state.removed])
    for epoch, watermark in state.watermarks.items():
        yield pack(_WATERMARK, 0, [epoch, *_fields(watermark)])
    for serial, cancelled in state.cancelled.items():
        if cancelled.floor:
            yield pack(_CANCELLED_BEFORE, 0, [serial, cancelled.floor])
        flat = cancelled.runs()
        for start in range(0, len(flat), _RUNS_NUMBERS):
            yield pack(_CANCELLED, 0, [serial, *flat[start : start + _RUNS_NUMBERS]])
