"""What a group knows of one lane: pure state, changed live and by replay in the same way.

Every offset before `next` that has no lease and does not wait is finished. So a million acks out of
order cost nothing, and only what is unfinished takes memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from heapq import heapify, heappop, heappush, nsmallest
from itertools import chain
from math import log
from random import random
from typing import Literal, NamedTuple

from quivermq.frame import Frame
from quivermq.model.deliveries import Lease
from quivermq.model.messages import Record
from quivermq.model.topic_settings import TopicSettings

# e**650 is more than any period: to grow further would only overflow.
_GROWTH_MAX = 650


class Wait(NamedTuple):
    """What a message waits for: `attempt` deliveries of it failed, and it is due again at `due`.

    No delivery failed of one that was released, or that waits for its key: its attempt is 0.
    """

    attempt: int
    due: int


# The wait for the earlier messages of a key.
FOR_ITS_KEY = Wait(0, 0)
# When a message that was given back is due: at once, whatever the clock says, and before those that failed.
# So what was given back comes again in the order in which it lies.
_AT_ONCE = 1


def released(attempt: int) -> Wait:
    """The wait of a message that was given back: the attempt that had begun does not count."""
    return Wait(attempt - 1, _AT_ONCE)


# The same once those are finished: it is due at once.
KEY_IS_FREE = released(1)


def backoff_us(attempt: int, settings: TopicSettings) -> int:
    """How long to wait after a failed attempt: longer by a factor each time, up to a limit.

    Up to half of it is left to chance, so that what failed together does not come back together.
    """
    multiplier, steps = settings.backoff_multiplier, attempt - 1
    if multiplier > 1:
        steps = min(steps, int(_GROWTH_MAX / log(multiplier)))
    wait_ms = settings.backoff_ms * multiplier**steps
    return int(min(wait_ms, settings.backoff_ms_max) * 1000 * (0.5 + random() / 2))


def is_last(attempt: int, settings: TopicSettings) -> bool:
    """Whether no attempt follows this one."""
    return settings.attempts_max is not None and attempt >= settings.attempts_max


class DeliveryTimes(NamedTuple):
    """When a message was delivered first, and when last before the lease that it may have now."""

    first: int
    last: int


def times_of(
    offset: int, lease: Lease | None, earlier: Mapping[int, DeliveryTimes]
) -> DeliveryTimes | None:
    """When a message that somebody has, or that waits, was delivered first and last; None if never."""
    before = earlier.get(offset)
    if lease is None or not lease.since:
        return before
    return DeliveryTimes(lease.since if before is None else before.first, lease.since)


class LaneState:
    """One lane of a partition, as one group sees it.

    What is known of a message is forgotten in `finish`, `seek` and `cut`, and for speed also by hand in
    `CursorState.finish`, `Settlement.ack_one` and `Settlement.ack_batch`. `journal.snapshot` writes it.
    """

    __slots__ = (
        "ahead",
        "ahead_average",
        "ahead_end",
        "ahead_index",
        "due_heap",
        "frames",
        "has_conditions",
        "imported_attempts",
        "leases",
        "next",
        "passed_over",
        "times",
        "untried",
        "waiting",
        "waiting_for_key",
        "was_sought",
    )

    def __init__(self, offset: int = 0) -> None:
        self.next = offset
        self.was_sought = False
        # Whether `next` went past messages that had expired: the journal may not say so.
        self.passed_over = False
        self.leases: dict[int, Lease] = {}
        self.waiting: dict[int, Wait] = {}
        # Of messages that failed and are not finished. The first delivery of others is their lease.
        self.times: dict[int, DeliveryTimes] = {}
        # How many of those in `waiting` never failed, and how many of these wait for their key.
        self.untried = 0
        self.waiting_for_key = 0
        # A heap of (due, offset); an entry counts only while `waiting` says the same.
        self.due_heap: list[tuple[int, int]] = []
        # How often messages that nobody here had yet were delivered by the queue they were imported from.
        self.imported_attempts: dict[int, int] = {}
        self.forget_ahead()

    def forget_ahead(self) -> None:
        """Forget the messages that were read ahead."""
        self.ahead: list[Record] = []
        # About how many bytes each of them has.
        self.ahead_average = 1
        # What they were read from, for those who hand whole frames on.
        self.frames: list[Frame] = []
        # How many of them were handed out.
        self.ahead_index = 0
        self.ahead_end = self.next
        # Whether some of them may have to be passed over.
        self.has_conditions = False

    def go_to(self, offset: int) -> None:
        """Go on with the messages from an offset on; the frames that were read may still be of use."""
        frames = self.frames
        self.next = offset
        self.forget_ahead()
        self.frames = frames

    @property
    def has_begun(self) -> bool:
        """Whether the group has ever been anywhere here; 0 alone may also be where nobody began."""
        return self.next > 0 or self.was_sought

    def is_at(self, offset: int) -> bool:
        """Whether everything before an offset, and nothing else, is finished, because somebody said so.

        Not where messages only expired: they would be there again if the clock went back.
        """
        is_there = self.has_begun and self.next == offset and not self.passed_over
        return is_there and not (self.leases or self.waiting)

    @property
    def floor(self) -> int:
        """The first offset that is not finished."""
        return min(self.next, min(self.leases, default=self.next), min(self.waiting, default=self.next))

    @property
    def unfinished(self) -> int:
        """How many messages before `next` are not finished."""
        return len(self.leases) + len(self.waiting)

    def grant(self, lease: Lease, offsets: Iterable[int]) -> None:
        self.leases.update(dict.fromkeys(offsets, lease))

    def wait(self, offset: int, wait: Wait, *, is_its_turn: bool = True) -> None:
        """Let a message wait until it is due, and until it is its turn."""
        self.remember(offset, wait.attempt)
        self.leases.pop(offset, None)
        self.stop_waiting(offset)
        self.waiting[offset] = wait
        if not wait.attempt:
            self.untried += 1
            self.waiting_for_key += wait == FOR_ITS_KEY
        if is_its_turn:
            heappush(self.due_heap, (wait.due, offset))

    def remember(self, offset: int, attempt: int) -> None:
        """Keep when a message was delivered, if its lease ends and the attempt counts."""
        lease = self.leases.get(offset)
        if lease is not None and lease.attempt == attempt and lease.since:
            before = self.times.get(offset)
            self.times[offset] = DeliveryTimes(lease.since if before is None else before.first, lease.since)

    def finish(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.leases.pop(offset, None)
            self.times.pop(offset, None)
            self.stop_waiting(offset)

    def stop_waiting(self, offset: int) -> None:
        """A message that waited does so no more: somebody has it, or it is done with."""
        wait = self.waiting.pop(offset, None)
        if wait is not None and not wait.attempt:
            self.untried -= 1
            self.waiting_for_key -= wait == FOR_ITS_KEY

    def seek(self, offset: int) -> None:
        self.leases.clear()
        self.waiting.clear()
        self.times.clear()
        self.untried = self.waiting_for_key = 0
        self.due_heap.clear()
        self.imported_attempts.clear()
        self.next = offset
        self.was_sought = True
        self.passed_over = False
        self.forget_ahead()

    def cut(self, end: int) -> None:
        """Forget what lies behind the end of the log: other messages will come there."""
        self.next = min(self.next, end)
        self.leases = {offset: lease for offset, lease in self.leases.items() if offset < end}
        self.waiting = {offset: wait for offset, wait in self.waiting.items() if offset < end}
        self.times = {offset: times for offset, times in self.times.items() if offset < end}
        self.imported_attempts = {
            offset: attempts for offset, attempts in self.imported_attempts.items() if offset < end
        }
        self.rebuild_due_heap()
        self.forget_ahead()

    def reaches_behind(self, end: int) -> bool:
        """Whether anything here is about offsets that the log does not have."""
        held = (self.leases, self.waiting, self.imported_attempts)
        return max(self.next, *(max(offsets, default=-1) + 1 for offsets in held)) > end

    def forget_imported_attempts(self) -> None:
        """Forget the earlier attempts of what was delivered here since; not of what waits for its turn."""
        self.imported_attempts = {
            offset: attempts
            for offset, attempts in self.imported_attempts.items()
            if offset >= self.next or (offset in self.waiting and not self.waiting[offset].attempt)
        }

    def give_turns(self, without: Set[int] = frozenset()) -> None:
        """Let nothing wait for its turn but these."""
        turns = [o for o, wait in self.waiting.items() if wait == FOR_ITS_KEY and o not in without]
        self.waiting.update(dict.fromkeys(turns, KEY_IS_FREE))
        self.rebuild_due_heap(without)

    def rebuild_due_heap(self, without: Set[int] = frozenset()) -> None:
        """Line up what waits by when it is due, but for those whose turn it is not."""
        self.untried = sum(not wait.attempt for wait in self.waiting.values())
        self.waiting_for_key = sum(wait == FOR_ITS_KEY for wait in self.waiting.values())
        self.due_heap = [(wait.due, o) for o, wait in self.waiting.items() if o not in without]
        heapify(self.due_heap)

    def next_due(self) -> int | None:
        """When the next of those that wait is due."""
        due_heap, waiting = self.due_heap, self.waiting
        while due_heap:
            due, offset = due_heap[0]
            wait = waiting.get(offset)
            if wait is not None and wait.due == due:
                return due
            heappop(due_heap)
        return None

    def take_due(self, count: int, now_us: int) -> list[tuple[int, Wait]]:
        """The messages that are due, oldest first, no more than `count`. They stay where they are."""
        taken: list[tuple[int, Wait]] = []
        while len(taken) < count:
            due = self.next_due()
            if due is None or due > now_us:
                break
            _, offset = heappop(self.due_heap)
            taken.append((offset, self.waiting[offset]))
        return taken

    def put_back(self, taken: Iterable[tuple[int, Wait]]) -> None:
        """Undo `take_due`, for those that still wait."""
        for offset, wait in taken:
            if self.waiting.get(offset) == wait:
                heappush(self.due_heap, (wait.due, offset))

    def leases_by_identity(self) -> Iterator[tuple[Lease, list[int]]]:
        """Each lease with the offsets that have it."""
        held: dict[Lease, list[int]] = {}
        for offset, lease in self.leases.items():
            held.setdefault(lease, []).append(offset)
        yield from held.items()


UnfinishedState = Literal["in_flight", "retrying", "waiting_for_key", "released"]


class Unfinished(NamedTuple):
    """A message that somebody has until `time_us`, or that is due again at `time_us`; 0 is at once."""

    offset: int
    attempt: int
    state: UnfinishedState
    time_us: int
    holder: str | None = None
    first_us: int | None = None
    """When it was delivered first, and when last; None where it never was, or nobody knows."""
    last_us: int | None = None


def unfinished(state: LaneState, now_us: int) -> list[Unfinished]:
    """All of a lane, by offset. A lease that is over gave its message back when it ended."""
    return unfinished_after(
        state.leases, state.waiting, state.times, now_us=now_us, after=-1, limit=state.unfinished
    )


def unfinished_after(
    leases: Mapping[int, Lease],
    waiting: Mapping[int, Wait],
    times: Mapping[int, DeliveryTimes],
    *,
    now_us: int,
    after: int,
    limit: int,
) -> list[Unfinished]:
    """The first ones behind an offset, at most so many. Only of these more than the offset is looked at."""
    offsets = nsmallest(limit, (offset for offset in chain(leases, waiting) if offset > after))
    return [
        unfinished_one(offset, leases.get(offset), waiting.get(offset), times, now_us) for offset in offsets
    ]


def unfinished_one(
    offset: int,
    lease: Lease | None,
    wait: Wait | None,
    times: Mapping[int, DeliveryTimes],
    now_us: int,
) -> Unfinished:
    """A message that has a lease, or waits."""
    delivered = times_of(offset, lease, times) or (None, None)
    if lease is not None:
        state: UnfinishedState = "in_flight" if lease.deadline > now_us else "retrying"
        return Unfinished(offset, lease.attempt, state, lease.deadline, lease.holder, *delivered)
    assert wait is not None, "an offset is in one of the two"
    if wait.attempt:
        return Unfinished(offset, wait.attempt, "retrying", wait.due, None, *delivered)
    return Unfinished(offset, 0, "waiting_for_key" if wait == FOR_ITS_KEY else "released", 0)
