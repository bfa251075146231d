"""The delivery journal of one group in one partition: every change before it is answered, as a record.

A record is a run of changes (see topic/records.py); numbers are offsets, tokens, attempts and times.
Which leases have expired is not written down: their deadlines say so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import TypeVar

from quivermq.delivery.state import DeliveryTimes, LaneState, Wait
from quivermq.errors import InvalidFrame
from quivermq.model.deliveries import Lease
from quivermq.topic.offsets import offsets_of, runs
from quivermq.topic.records import Change, pack, unpack

GRANT, FINISH, RETRY, EXTEND, SEEK, NEXT, DEAD_LETTER, CUT, TRIED, RELEASE, PAUSE = range(1, 12)
HOLDER, DELIVERED = 12, 13

# Of the name of a holder: what a change has room for is more.
NAME_BYTES_MAX = 1024
# Of the runs of one change in a snapshot.
_RUNS_NUMBERS = 1024

Value = TypeVar("Value", Wait, int, DeliveryTimes)


def granted(lane: int, next_offset: int, lease: Lease, flat: Sequence[int], holder: int = 0) -> bytes:
    """Messages are with a consumer; `next_offset` is the first one that nobody ever had.

    `holder` is the number that its name has in this journal.
    """
    numbers = (next_offset, lease.token, lease.attempt, lease.deadline, lease.since, holder)
    return pack(GRANT, lane, [*numbers, *flat])


# The two changes that are made most, for one message each: as `pack` would write them.
_GRANT_ONE = Struct("<BBHIqqqqqqqq")
_FINISH_ONE = Struct("<BBHIqq")


def granted_one(
    lane: int, next_offset: int, token: int, deadline: int, since: int, holder: int, offset: int
) -> bytes:
    """As `granted`, for the first attempt of one message."""
    return _GRANT_ONE.pack(
        GRANT, lane, 0, 8, next_offset, token, 1, deadline, since, holder, offset, offset + 1
    )


def finished_one(lane: int, offset: int) -> bytes:
    """As `finished`, for one message."""
    return _FINISH_ONE.pack(FINISH, lane, 0, 2, offset, offset + 1)


def finished(lane: int, flat: Sequence[int]) -> bytes:
    """Messages are done with."""
    return pack(FINISH, lane, flat)


def waiting(lane: int, wait: Wait, flat: Sequence[int]) -> bytes:
    """Messages wait for their next attempt, or, with no attempt yet, for their turn."""
    return pack(RETRY, lane, [wait.attempt, wait.due, *flat])


def given_back(lane: int, wait: Wait, flat: Sequence[int]) -> bytes:
    """Messages were released: they wait as before the attempt that had begun, which does not count."""
    return pack(RELEASE, lane, [wait.attempt, wait.due, *flat])


def extended(lane: int, lease: Lease, flat: Sequence[int]) -> bytes:
    """A lease ends at another time for these messages."""
    return pack(EXTEND, lane, [lease.token, lease.attempt, lease.deadline, *flat])


def sought(lane: int, offset: int) -> bytes:
    """Everything from an offset on is pending, everything before it done."""
    return pack(SEEK, lane, [offset])


def moved(lane: int, next_offset: int) -> bytes:
    """Nobody will get what lies before this offset for the first time."""
    return pack(NEXT, lane, [next_offset])


def dead_lettering(lane: int, transfer: int, target: tuple[int, int], flat: Sequence[int]) -> bytes:
    """Messages are about to become dead letters: in that partition, behind that end."""
    return pack(DEAD_LETTER, lane, [transfer, *target, *flat])


def cut(lane: int, end: int) -> bytes:
    """The log lost everything from this offset on."""
    return pack(CUT, lane, [end])


def tried(lane: int, attempts: int, flat: Sequence[int]) -> bytes:
    """Messages that nobody in the group had yet were delivered so often elsewhere."""
    return pack(TRIED, lane, [attempts, *flat])


def paused(is_paused: bool) -> bytes:
    """The group gets nothing for now, or goes on."""
    return pack(PAUSE, 0, [int(is_paused)])


def holder_named(number: int, name: str) -> bytes:
    """From here on, `number` stands for a name where messages are granted."""
    return pack(HOLDER, 0, [number], name.encode(errors="replace")[:NAME_BYTES_MAX])


def delivered(lane: int, times: DeliveryTimes, flat: Sequence[int]) -> bytes:
    """Messages were delivered before, without success: when first, and when last."""
    return pack(DELIVERED, lane, [*times, *flat])


class DeadLetterIntent:
    """Messages that were on their way to the dead letters when the process died."""

    __slots__ = ("lane", "offsets", "target_end", "target_partition", "transfer")

    def __init__(self, change: Change) -> None:
        self.lane = change.lane
        self.transfer, self.target_partition, self.target_end = change.numbers[:3]
        self.offsets = set(offsets_of(change.numbers[3:]))


class Replay:
    """The state of all lanes, brought about by the changes of a journal one after the other."""

    def __init__(self, lanes: list[LaneState]) -> None:
        self.lanes = lanes
        self.intents: list[DeadLetterIntent] = []
        """Those of which no record says that all messages are finished."""
        self.is_paused = False
        self._holders: dict[int, str] = {}

    def apply_record(self, record: bytes) -> None:
        """Apply all changes of a record. Most of them say that single messages were leased."""
        if len(record) % _GRANT_ONE.size == 0 and self._apply_single_grants(record):
            return
        for change in unpack(record):
            self.apply(change)

    def _apply_single_grants(self, record: bytes) -> bool:
        """Apply a record that is nothing but grants of one message each; False when it is not."""
        rows = list(_GRANT_ONE.iter_unpack(record))
        # Each that is one ends where the next begins, so all are if all look like it.
        if any(row[0] != GRANT or row[2] or row[3] != 8 or row[11] != row[10] + 1 for row in rows):
            return False
        for _, lane, _, _, next_offset, token, attempt, deadline, since, number, offset, _ in rows:
            state = self.lanes[lane]
            if attempt > 1:
                # Only the next lease says that this one is over.
                state.remember(offset, attempt - 1)
            state.stop_waiting(offset)
            state.leases[offset] = Lease(attempt, deadline, token, self._holders.get(number), since)
            if next_offset > state.next:
                state.next = next_offset
        return True

    def apply(self, change: Change) -> None:
        kind, lane, numbers, text = change
        state = self.lanes[lane]
        if kind == GRANT:
            next_offset, token, attempt, deadline, since, number = numbers[:6]
            offsets = list(offsets_of(numbers[6:]))
            for offset in offsets:
                # Only the next lease says that this one is over.
                state.remember(offset, attempt - 1)
                state.stop_waiting(offset)
            state.grant(Lease(attempt, deadline, token, self._holders.get(number), since), offsets)
            state.next = max(state.next, next_offset)
        elif kind == FINISH:
            state.finish(offsets_of(numbers))
            for intent in self.intents:
                if intent.lane == lane:
                    intent.offsets.difference_update(offsets_of(numbers))
            self.intents = [intent for intent in self.intents if intent.offsets]
        elif kind in (RETRY, RELEASE):
            wait = Wait(numbers[0], numbers[1])
            for offset in offsets_of(numbers[2:]):
                state.wait(offset, wait, is_its_turn=False)
        elif kind == EXTEND:
            token, attempt, deadline = numbers[:3]
            offsets = list(offsets_of(numbers[3:]))
            # All of one token were handed out together.
            held = state.leases.get(offsets[0]) if offsets else None
            holder, since = (None, 0) if held is None else (held.holder, held.since)
            state.grant(Lease(attempt, deadline, token, holder, since), offsets)
        elif kind == SEEK:
            state.seek(numbers[0])
        elif kind == NEXT:
            state.next = max(state.next, numbers[0])
        elif kind == DEAD_LETTER:
            self.intents.append(DeadLetterIntent(change))
        elif kind == CUT:
            state.cut(numbers[0])
        elif kind == TRIED:
            state.imported_attempts.update(dict.fromkeys(offsets_of(numbers[1:]), numbers[0]))
        elif kind == PAUSE:
            self.is_paused = bool(numbers[0])
        elif kind == HOLDER:
            self._holders[numbers[0]] = text.decode(errors="replace")
        elif kind == DELIVERED:
            state.times.update(dict.fromkeys(offsets_of(numbers[2:]), DeliveryTimes(*numbers[:2])))
        else:
            raise InvalidFrame(f"a change of kind {kind} is not known", position=0)


def snapshot(lanes: Iterable[LaneState]) -> Iterator[bytes]:
    """The changes that bring a state about from nothing."""
    numbers: dict[str | None, int] = {None: 0}
    for lane, state in enumerate(lanes):
        # A group that was sent to the beginning has begun, unlike one that was never here.
        yield sought(lane, 0) if state.was_sought and not state.next else moved(lane, state.next)
        for lease, offsets in state.leases_by_identity():
            if lease.holder is not None and lease.holder not in numbers:
                numbers[lease.holder] = len(numbers)
                yield holder_named(numbers[lease.holder], lease.holder)
            for flat in _short_runs(offsets):
                yield granted(lane, 0, lease, flat, numbers[lease.holder])
        for wait, flat in _by_value(state.waiting):
            yield waiting(lane, wait, flat)
        for attempts, flat in _by_value(state.imported_attempts):
            yield tried(lane, attempts, flat)
        for times, flat in _by_value(state.times):
            yield delivered(lane, times, flat)


def _by_value(values: Mapping[int, Value]) -> Iterator[tuple[Value, list[int]]]:
    """Each value with the runs of offsets that have it."""
    by_value = sorted((value, offset) for offset, value in values.items())
    for value, pairs in groupby(by_value, key=itemgetter(0)):
        for flat in _short_runs(offset for _, offset in pairs):
            yield value, flat


def _short_runs(offsets: Iterable[int]) -> Iterator[list[int]]:
    """The runs of some offsets, in parts that are small enough for one change."""
    flat = runs(offsets)
    for start in range(0, len(flat), _RUNS_NUMBERS):
        yield flat[start : start + _RUNS_NUMBERS]
