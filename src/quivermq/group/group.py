"""A group in queue mode: any member gets any message of a topic, over all its partitions and lanes."""

from collections.abc import Callable, Sequence
from itertools import count as counter
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.delivery.cursor import Cursor
from quivermq.delivery.cursor_state import DeliveryMeter
from quivermq.delivery.taken import Taken, message_count
from quivermq.errors import DiskRefused, QuiverError, StorageFailed
from quivermq.group.waiters import Waiters
from quivermq.model.lanes import LANE_COUNT, NORMAL
from quivermq.model.topic_settings import PriorityWeights, TopicSettings


class LaneSchedule:
    """Smooth weighted round robin over the lanes that have something. Called by one thread at a time."""

    def __init__(self, weights: PriorityWeights) -> None:
        self.weights = weights
        self._credit = [0, 0, 0]

    def shares(self, count: int, ready: Sequence[int]) -> list[tuple[int, int]]:
        """How many of `count` messages each lane gives, highest first, when `ready` are there."""
        lanes = [lane for lane, there in enumerate(ready) if there > 0]
        if not lanes:
            return []
        if len(lanes) == 1:
            return [(lanes[0], min(count, ready[lanes[0]]))]
        if self.weights == "strict":
            return _strict(count, lanes, ready)
        return self._weighted(count, lanes, list(ready), self.weights)

    def _weighted(
        self, count: int, lanes: list[int], left: list[int], weights: tuple[int, int, int]
    ) -> list[tuple[int, int]]:
        credit, shares = self._credit, [0, 0, 0]
        while count and lanes:
            for lane in lanes:
                credit[lane] += weights[lane]
            chosen = max(lanes, key=credit.__getitem__)
            credit[chosen] -= sum(weights[lane] for lane in lanes)
            shares[chosen] += 1
            left[chosen] -= 1
            count -= 1
            if not left[chosen]:
                lanes.remove(chosen)
        return [(lane, share) for lane, share in enumerate(shares) if share]


def _strict(count: int, lanes: list[int], ready: Sequence[int]) -> list[tuple[int, int]]:
    shares = []
    for lane in lanes:
        share = min(count, ready[lane])
        if share:
            shares.append((lane, share))
        count -= share
    return shares


class GroupCounts(NamedTuple):
    """How many messages of a topic a group still has to do with."""

    pending: int
    in_flight: int
    retrying: int
    waiting_for_key: int

    @property
    def unfinished(self) -> int:
        return sum(self)


class Group:
    """The cursors of a group in the partitions of one topic. Thread-safe."""

    def __init__(
        self,
        name: str,
        settings: TopicSettings,
        clock: Clock,
        open_cursor: Callable[[int, "Group"], Cursor],
        waited: set[Waiters] | None = None,
    ) -> None:
        self.name = name
        self.waiters = Waiters(waited)
        self._clock = clock
        self._open_cursor = open_cursor
        self._schedule = LaneSchedule(settings.priority_weights)
        self._turn = counter()
        # By partition: of those that are in this directory, in order.
        self.cursors: dict[int, Cursor] = {}
        # The only one there is, if there is just one.
        self._only: Cursor | None = None
        self.configure(settings)

    def configure(self, settings: TopicSettings) -> None:
        """Go on with other settings, and with the partitions that were added."""
        self._lease_us = settings.lease_ms * 1000
        self._age_us = None if settings.priority_age_ms is None else settings.priority_age_ms * 1000
        if self._schedule.weights != settings.priority_weights:
            self._schedule = LaneSchedule(settings.priority_weights)
        own = settings.own_partitions
        more = {n: self._open_cursor(n, self) for n in own if n not in self.cursors}
        # The new ones, too: the topic itself goes on with the settings only when all of them have.
        for cursor in (*self.cursors.values(), *more.values()):
            cursor.configure(settings)
        if self.is_paused:
            for cursor in more.values():
                cursor.wait_durable(cursor.pause(True))
        self.cursors = self.cursors | more
        self._only = self.cursors[own.start] if len(self.cursors) == 1 else None

    @property
    def meter(self) -> DeliveryMeter:
        """What it counts. Every partition counts into the same."""
        return next(iter(self.cursors.values())).meter

    @property
    def is_paused(self) -> bool:
        """Whether nobody gets anything for now."""
        return any(cursor.is_paused for cursor in self.cursors.values())

    def pause(self, is_paused: bool) -> None:
        """Hand nothing out, also after a restart, until somebody lets it go on."""
        ends = [(cursor, cursor.pause(is_paused)) for cursor in self.cursors.values()]
        for cursor, end in ends:
            cursor.wait_durable(end)

    def retry_now(self) -> int:
        """Let what failed be due at once, and return how many messages that are."""
        done = [(cursor, *cursor.retry_now()) for cursor in self.cursors.values()]
        for cursor, _, end in done:
            cursor.wait_durable(end)
        return sum(count for _, count, _ in done)

    def take(
        self,
        count: int,
        lease_us: int | None,
        pop: bool = False,
        whole: bool = False,
        holder: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """Up to `count` messages, leased to `holder`, or to this process; with `pop` finished at once.

        A partition that cannot be read keeps nobody from the others; when no other has anything, its
        error is raised.
        """
        lease_us = self._lease_us if lease_us is None else lease_us
        only = self._only
        if only is not None and only.has_one_lane:
            return only.take(NORMAL, count, lease_us, pop, whole, holder, token)
        cursors = list(self.cursors.values())
        start = next(self._turn) % len(cursors)
        cursors = [*cursors[start:], *cursors[:start]]
        taken: list[Taken] = []
        failures: list[QuiverError] = []

        def take_from(some: list[Cursor], lane: int, most: int) -> int:
            """Take messages of one lane, from one partition after the other; returns how many."""
            left = most
            for cursor in some:
                if left <= 0:
                    break
                try:
                    given = cursor.take(
                        lane, left, lease_us, pop=pop, whole=whole, holder=holder, token=token
                    )
                except (StorageFailed, DiskRefused) as error:
                    # What others gave is leased already, and has to reach the caller.
                    failures.append(error)
                else:
                    taken.extend(given)
                    left -= message_count(given)
            return most - left

        left = count
        if self._age_us is not None:
            left -= self._take_overdue(cursors, count, self._age_us, take_from)
        # A lane may give less than it seemed to have: what has expired, or waits for its turn, counts.
        spent: set[int] = set()
        freed = sum(cursor.freed for cursor in cursors)
        while left > 0:
            shares = self._schedule.shares(left, self._ready(cursors, spent))
            if not shares:
                # Passing over a message of a key may have made one of another lane ready.
                before, freed = freed, sum(cursor.freed for cursor in cursors)
                if before == freed:
                    break
                spent.clear()
            for lane, share in shares:
                given_count = take_from(cursors, lane, share)
                if given_count < share:
                    spent.add(lane)
                left -= given_count
        if not taken and failures:
            raise failures[0]
        return taken

    def _take_overdue(
        self,
        cursors: list[Cursor],
        count: int,
        age_us: int,
        take_from: Callable[[list[Cursor], int, int], int],
    ) -> int:
        """Take up to `count` messages that have waited for too long, from where the oldest is first.

        By age and not by priority, or a high lane that is late as a whole would still starve the others.
        """
        now_us = self._clock.now_us()
        late: list[tuple[int, int, int, Cursor]] = []
        for cursor in cursors:
            for lane in range(LANE_COUNT):
                since, found = cursor.overdue(lane, now_us - age_us, now_us, count)
                if found:
                    late.append((since, lane, found, cursor))
        left = count
        for _, lane, found, cursor in sorted(late, key=lambda one: one[:2]):
            if left <= 0:
                break
            left -= take_from([cursor], lane, min(found, left))
        return count - left

    def _ready(self, cursors: list[Cursor], spent: set[int]) -> list[int]:
        now_us = self._clock.now_us()
        return [
            0 if lane in spent else sum(cursor.ready(lane, now_us) for cursor in cursors)
            for lane in range(LANE_COUNT)
        ]

    def ready(self, now_us: int) -> int:
        """About how many messages somebody could have now."""
        return sum(
            cursor.ready(lane, now_us) for cursor in self.cursors.values() for lane in range(LANE_COUNT)
        )

    def has_ready(self, now_us: int) -> bool:
        """Whether there seems to be a message that somebody could have."""
        return any(
            cursor.ready(lane, now_us) for cursor in self.cursors.values() for lane in range(LANE_COUNT)
        )

    def has_overdue(self, now_us: int) -> bool:
        """Whether a lease is over, and nobody has looked yet."""
        return any(cursor.has_overdue(now_us) for cursor in self.cursors.values())

    def counts(self) -> GroupCounts:
        """What the group still has to do with."""
        counts = [lane for cursor in self.cursors.values() for lane in cursor.counts()]
        return GroupCounts(*map(sum, zip(*counts, strict=True)))

    def fresh_in_log(self) -> int:
        """How many messages of the logs nobody in the group ever had."""
        return sum(cursor.fresh_in_log() for cursor in self.cursors.values())

    def in_archive(self) -> int:
        """How many messages that only the archive has are not finished."""
        return sum(
            sum(each.fresh_in_archive()) + sum(each.unfinished_in_archive())
            for each in self.cursors.values()
        )

    def is_behind_logs(self) -> bool:
        """Whether what comes next, or again, may have to be read from an archive."""
        return any(cursor.is_behind_logs() for cursor in self.cursors.values())

    def floors(self) -> dict[int, list[int]]:
        """By partition and lane, the first offset that is not finished."""
        return {number: cursor.floors() for number, cursor in self.cursors.items()}

    def expire(self, now_us: int) -> None:
        """Let go of the leases that have run out."""
        for cursor in self.cursors.values():
            cursor.expire(now_us)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is with a consumer, and nothing waits for another attempt."""
        return not any(cursor.unfinished_count for cursor in self.cursors.values())

    def next_event(self) -> int | None:
        """When something becomes ready by time alone."""
        times = [time for cursor in self.cursors.values() if (time := cursor.next_event()) is not None]
        return min(times, default=None)

    def close(self, *, is_gone: bool = False) -> None:
        """Hand nothing out any more. With `is_gone` it was deleted."""
        for cursor in self.cursors.values():
            cursor.close(is_gone=is_gone)
        self.waiters.wake_all()
