"""What a group knows of one lane: pure state, changed live and by replay in the same way.

Every offset before `next` that has neither a lease nor a retry is finished. So a million acks out of
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


class PendingRetry(NamedTuple):
    """A message that waits: how often it was delivered already, and when it is due."""

    attempt: int
    due: int


# It waits for the earlier ones of its key.
FOR_ITS_TURN = PendingRetry(0, 0)
# When a message that was given back is due: at once, whatever the clock says, and before those that failed.
# So what was given back comes again in the order in which it lies.
_AT_ONCE = 1


def released(attempt: int) -> PendingRetry:
    """What waits after it was given back: the attempt that had begun does not count."""
    return PendingRetry(attempt - 1, _AT_ONCE)


# It waited for the earlier ones of its key, and now it is its turn.
NOW = released(1)


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
    """One lane of a partition, as one group sees it."""

    __slots__ = (
        "ahead",
        "ahead_average",
        "ahead_end",
        "ahead_index",
        "frames",
        "has_conditions",
        "held",
        "leases",
        "next",
        "passed_over",
        "ready",
        "retries",
        "times",
        "tried",
        "untried",
        "was_sought",
    )

    def __init__(self, offset: int = 0) -> None:
        self.next = offset
        self.was_sought = False
        # Whether `next` went past messages that had expired, which the journal may not tell.
        self.passed_over = False
        self.leases: dict[int, Lease] = {}
        self.retries: dict[int, PendingRetry] = {}
        # Of messages that failed and are not finished; of all others the lease says it.
        self.times: dict[int, DeliveryTimes] = {}
        # How many of those that wait never failed, and how many of these wait for their turn.
        self.untried = 0
        self.held = 0
        # (due, offset); an entry counts only while `retries` says the same.
        self.ready: list[tuple[int, int]] = []
        # How often messages that nobody here had yet were delivered by the queue they were imported from.
        self.tried: dict[int, int] = {}
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
    def has_position(self) -> bool:
        """Whether the group has ever been anywhere here; 0 alone may also be where nobody began."""
        return self.next > 0 or self.was_sought

    def is_at(self, offset: int) -> bool:
        """Whether everything before an offset, and nothing else, is finished, because somebody said so.

        Not where messages only expired: they would be there again if the clock went back.
        """
        is_there = self.has_position and self.next == offset and not self.passed_over
        return is_there and not (self.leases or self.retries)

    @property
    def floor(self) -> int:
        """The first offset that is not finished."""
        return min(self.next, min(self.leases, default=self.next), min(self.retries, default=self.next))

    @property
    def unfinished(self) -> int:
        """How many messages before `next` are not finished."""
        return len(self.leases) + len(self.retries)

    def grant(self, lease: Lease, offsets: Iterable[int]) -> None:
        self.leases.update(dict.fromkeys(offsets, lease))

    def wait(self, offset: int, retry: PendingRetry, *, is_its_turn: bool = True) -> None:
        """Let a message wait until it is due, and until it is its turn."""
        self.remember(offset, retry.attempt)
        self.leases.pop(offset, None)
        self.stop_waiting(offset)
        self.retries[offset] = retry
        if not retry.attempt:
            self.untried += 1
            self.held += retry == FOR_ITS_TURN
        if is_its_turn:
            heappush(self.ready, (retry.due, offset))

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
        retry = self.retries.pop(offset, None)
        if retry is not None and not retry.attempt:
            self.untried -= 1
            self.held -= retry == FOR_ITS_TURN

    def seek(self, offset: int) -> None:
        self.leases.clear()
        self.retries.clear()
        self.times.clear()
        self.untried = self.held = 0
        self.ready.clear()
        self.tried.clear()
        self.next = offset
        self.was_sought = True
        self.passed_over = False
        self.forget_ahead()

    def cut(self, end: int) -> None:
        """Forget what lies behind the end of the log: other messages will come there."""
        self.next = min(self.next, end)
        self.leases = {offset: lease for offset, lease in self.leases.items() if offset < end}
        self.retries = {offset: retry for offset, retry in self.retries.items() if offset < end}
        self.times = {offset: times for offset, times in self.times.items() if offset < end}
        self.tried = {offset: attempts for offset, attempts in self.tried.items() if offset < end}
        self.rebuild_ready()
        self.forget_ahead()

    def reaches_behind(self, end: int) -> bool:
        """Whether anything here is about offsets that the log does not have."""
        held = (self.leases, self.retries, self.tried)
        return max(self.next, *(max(offsets, default=-1) + 1 for offsets in held)) > end

    def forget_tried(self) -> None:
        """Forget the earlier attempts of what was delivered here since; not of what waits for its turn."""
        self.tried = {
            offset: attempts
            for offset, attempts in self.tried.items()
            if offset >= self.next or (offset in self.retries and not self.retries[offset].attempt)
        }

    def give_turns(self, without: Set[int] = frozenset()) -> None:
        """Let nothing wait for its turn but these."""
        turns = [o for o, retry in self.retries.items() if retry == FOR_ITS_TURN and o not in without]
        self.retries.update(dict.fromkeys(turns, NOW))
        self.rebuild_ready(without)

    def rebuild_ready(self, without: Set[int] = frozenset()) -> None:
        """Line up what waits by when it is due, but for those whose turn it is not."""
        self.untried = sum(not retry.attempt for retry in self.retries.values())
        self.held = sum(retry == FOR_ITS_TURN for retry in self.retries.values())
        self.ready = [(retry.due, o) for o, retry in self.retries.items() if o not in without]
        heapify(self.ready)

    def next_ready(self) -> int | None:
        """When the next of those that wait is due."""
        ready, retries = self.ready, self.retries
        while ready:
            due, offset = ready[0]
            retry = retries.get(offset)
            if retry is not None and retry.due == due:
                return due
            heappop(ready)
        return None

    def take_ready(self, count: int, now_us: int) -> list[tuple[int, PendingRetry]]:
        """The messages that are due, oldest first, no more than `count`. They stay where they are."""
        taken: list[tuple[int, PendingRetry]] = []
        while len(taken) < count:
            due = self.next_ready()
            if due is None or due > now_us:
                break
            _, offset = heappop(self.ready)
            taken.append((offset, self.retries[offset]))
        return taken

    def put_back(self, taken: Iterable[tuple[int, PendingRetry]]) -> None:
        """Undo `take_ready`, for those that still wait."""
        for offset, retry in taken:
            if self.retries.get(offset) == retry:
                heappush(self.ready, (retry.due, offset))

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
    owner: str | None = None
    first_us: int | None = None
    """When it was delivered first, and when last; None where it never was, or nobody knows."""
    last_us: int | None = None


def unfinished(state: LaneState, now_us: int) -> list[Unfinished]:
    """All of a lane, by offset. A lease that is over gave its message back when it ended."""
    return unfinished_after(state.leases, state.retries, state.times, now_us, -1, state.unfinished)


def unfinished_after(
    leases: Mapping[int, Lease],
    retries: Mapping[int, PendingRetry],
    times: Mapping[int, DeliveryTimes],
    now_us: int,
    after: int,
    limit: int,
) -> list[Unfinished]:
    """The first ones behind an offset, at most so many. Only of these more than the offset is looked at."""
    offsets = nsmallest(limit, (offset for offset in chain(leases, retries) if offset > after))
    return [
        unfinished_one(offset, leases.get(offset), retries.get(offset), times, now_us) for offset in offsets
    ]


def unfinished_one(
    offset: int,
    lease: Lease | None,
    retry: PendingRetry | None,
    times: Mapping[int, DeliveryTimes],
    now_us: int,
) -> Unfinished:
    """A message that has a lease, or waits."""
    delivered = times_of(offset, lease, times) or (None, None)
    if lease is not None:
        state: UnfinishedState = "in_flight" if lease.deadline > now_us else "retrying"
        return Unfinished(offset, lease.attempt, state, lease.deadline, lease.owner, *delivered)
    assert retry is not None, "an offset is in one of the two"
    if retry.attempt:
        return Unfinished(offset, retry.attempt, "retrying", retry.due, None, *delivered)
    return Unfinished(offset, 0, "waiting_for_key" if retry == FOR_ITS_TURN else "released", 0)
