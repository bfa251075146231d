"""A member of a group without a socket, a thread or a task: what it has, and flows that change it.

A shell runs the flows, one that reads ahead for each partition, and waits where there is nothing to do.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from quivermq.client.consuming.calls import Bounds, MemberCalls, Place
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.consuming.reading import Reading
from quivermq.client.core.call import Act, Flow
from quivermq.client.core.topics import TopicCalls
from quivermq.engine.looking import StoredMessage
from quivermq.errors import (
    Closing,
    Fenced,
    InvalidRequest,
    OffsetOutOfRange,
    QuiverError,
    TopicNotFound,
    Unavailable,
)
from quivermq.frame import OFFSET_MAX
from quivermq.group.assignment import TopicPartition
from quivermq.topic.incoming import check_number
from quivermq.topic.partition import LANES, lane_number

logger = logging.getLogger(__name__)

# How long a fetch waits at the end of a lane; other lanes of the partition are looked at in between.
_WAIT_S = 0.25
_FETCH_MESSAGES = 1000
# After something failed.
PAUSE_S = 1.0


class Guard(Protocol):
    """What guards the state, and wakes those who wait for it to change."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> Any: ...

    def notify_all(self) -> None: ...


class Membership:
    """What a consumer is. `start_fetching` is called with each partition that it gets."""

    def __init__(
        self,
        calls: TopicCalls,
        options: ConsumerOptions,
        guard: Guard,
        start_fetching: Callable[[TopicPartition], None],
    ) -> None:
        self.options = options
        self.clock = calls.clock
        self.member: tuple[str, int] | None = None
        self.is_to_sync = True
        self._calls = MemberCalls(calls, options.group)
        self._guard = guard
        self._start_fetching = start_fetching
        self._reading = Reading()
        self._error: QuiverError | None = None
        self._commit_at = self._next_commit()

    # Messages.

    def take(self, count: int) -> list[StoredMessage]:
        """The next messages, under the guard. Raises OffsetOutOfRange with `reset="error"`."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        messages = self._reading.take(count)
        if messages:
            self._guard.notify_all()
        return messages

    def finish(self) -> None:
        """Everything that was taken is finished."""
        with self._guard:
            self._reading.finish()

    # Positions.

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it has now."""
        with self._guard:
            return sorted(self._reading.partitions)

    def position(self, topic: str, partition: int, priority: str) -> int:
        """The next offset that is returned of a lane. Raises InvalidRequest."""
        place = self._place(topic, partition, priority)
        with self._guard:
            return self._reading.position(place)

    def seek(self, topic: str, partition: int, offset: int, priority: str) -> None:
        """Go on from elsewhere in a lane. Raises InvalidRequest."""
        check_number("offset", offset, 0, OFFSET_MAX)
        place = self._place(topic, partition, priority)
        with self._guard:
            self._reading.seek(place, offset)
            self._guard.notify_all()

    def _place(self, topic: str, partition: int, priority: str) -> Place:
        lane_number(priority)
        if TopicPartition(topic, partition) not in self.assignment:
            raise InvalidRequest(f"{topic} partition {partition!r} is not assigned to this consumer")
        return Place(topic, partition, priority)

    def lag(self) -> Flow[dict[TopicPartition, int]]:
        """How many messages of each partition were not returned yet."""
        found = dict.fromkeys(self.assignment, 0)
        for topic in {partition.topic for partition in found}:
            bounds = yield from self._calls.offsets(topic)
            for place, each in bounds.items():
                if place.owner in found:
                    with self._guard, suppress(KeyError):
                        found[place.owner] += max(0, each.end - self._reading.position(place))
        return found

    # Commits.

    def commit(self, partitions: Iterable[TopicPartition] | None = None) -> Flow[None]:
        """Let the group go on behind what is finished. Raises Fenced."""
        with self._guard:
            positions = self._reading.uncommitted(partitions)
            member = self.member
        if not positions or member is None:
            return
        try:
            yield from self._calls.commit(positions, *member)
        except Fenced:
            with self._guard:
                self.is_to_sync = True
            raise
        with self._guard:
            self._reading.committed(positions)

    def commit_if_due(self) -> Flow[None]:
        """Commit once in `auto_commit_ms`."""
        if self._commit_at is not None and self.clock.monotonic() >= self._commit_at:
            self._commit_at = self._next_commit()
            yield from self.commit_quietly()

    def commit_quietly(self, partitions: Iterable[TopicPartition] | None = None) -> Flow[None]:
        """Commit what can be committed, unless that is up to the user; the rest is delivered again."""
        if self.options.auto_commit_ms is None:
            return
        try:
            yield from self.commit(partitions)
        except QuiverError as error:
            logger.warning("could not commit for group %s: %s", self.options.group, error)

    def _next_commit(self) -> float | None:
        period_ms = self.options.auto_commit_ms
        return None if period_ms is None else self.clock.monotonic() + period_ms / 1000

    # Partitions.

    def rebalance(self) -> Flow[bool]:
        """Take over and give up partitions until nothing is left to do. False when nobody answers."""
        try:
            while self.is_to_sync:
                if self.member is None:
                    self.member = yield from self._calls.join(
                        self.options.topics, self.options.strategy, self.options.session_timeout_ms
                    )
                yield from self._sync(*self.member)
        except Fenced as error:
            logger.info("join group %s again: %s", self.options.group, error)
            yield from self._give_up(self._reading.partitions, is_lost=True)
            self.member, self.is_to_sync = None, True
        except Unavailable as error:
            if isinstance(error, Closing):
                raise
            logger.warning("group %s does not answer: %s", self.options.group, error)
            return False
        return True

    def _sync(self, member_id: str, generation: int) -> Flow[None]:
        had = self._reading.partitions
        synced = yield from self._calls.sync(member_id, generation, had)
        with self._guard:
            self.member = (member_id, synced.generation)
            # From here on the heartbeat says when there is a reason to come back.
            self.is_to_sync = bool(synced.revoked & had)
        if synced.revoked & had:
            yield from self._give_up(synced.revoked & had, is_lost=False)
        elif synced.assignment - had:
            try:
                yield from self._take_over(synced.assignment - had)
            except BaseException:
                # They are assigned, but not read yet: the next poll has to begin here again.
                self.is_to_sync = True
                raise

    def _take_over(self, partitions: frozenset[TopicPartition]) -> Flow[None]:
        bounds: dict[Place, Bounds] = {}
        for topic in {partition.topic for partition in partitions}:
            with suppress(TopicNotFound):
                bounds |= yield from self._calls.offsets(topic)
        positions = {place: self._begin(found) for place, found in bounds.items()}
        with self._guard:
            for partition in sorted(partitions):
                self._reading.add(partition, positions)
        for partition in sorted(partitions):
            self._start_fetching(partition)
        on_assigned = self.options.on_assigned
        if on_assigned is not None:
            yield Act(lambda: on_assigned(sorted(partitions)))

    def _give_up(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> Flow[None]:
        """Let partitions go, after a last commit, for which it is too late when they are lost."""
        if not partitions:
            return
        on_revoked = self.options.on_revoked
        if on_revoked is not None:
            yield Act(lambda: on_revoked(sorted(partitions)))
        if not is_lost:
            yield from self.commit_quietly(partitions)
        with self._guard:
            self._reading.remove(partitions)
            self._guard.notify_all()

    def _begin(self, bounds: Bounds) -> int:
        """Where to begin in a lane: where the group is, or where `reset` says."""
        if bounds.committed is not None and bounds.start <= bounds.committed <= bounds.end:
            return bounds.committed
        if self.options.reset == "error":
            offset = -1 if bounds.committed is None else bounds.committed
            raise OffsetOutOfRange(offset, start=bounds.start, end=bounds.end)
        return bounds.start if self.options.reset == "earliest" else bounds.end

    # Living on, and leaving.

    @property
    def beat_s(self) -> float:
        """How long from one heartbeat to the next."""
        return self.options.session_timeout_ms / 1000 / 4

    def beat(self) -> Flow[None]:
        """Say that it lives, and hear whether there is a reason to sync. Raises Closing."""
        with self._guard:
            member = self.member
        if member is None:
            return
        try:
            is_stable = (yield from self._calls.heartbeat(*member)) == "stable"
        except Closing:
            raise
        except Unavailable as error:
            logger.warning("the heartbeat of group %s is not heard: %s", self.options.group, error)
            return
        except QuiverError:
            # Whoever polls next hears the same, and knows what to do about it.
            is_stable = False
        if not is_stable:
            with self._guard:
                self.is_to_sync = True
                self._guard.notify_all()

    def leave(self) -> Flow[None]:
        """Go at once, if somebody hears it."""
        with self._guard:
            member, self.member = self.member, None
            self._guard.notify_all()
        if member is not None:
            with suppress(Unavailable):
                yield from self._calls.leave(member[0])

    # Fetching.

    def reads(self, partition: TopicPartition) -> bool:
        """Whether it still has the partition. Under the guard, like the next one."""
        return partition in self._reading.partitions

    def has_room(self, partition: TopicPartition) -> bool:
        """Whether it may read on in the partition."""
        return self._reading.ahead(partition) < 2 * self.options.max_poll

    def fetch(self, partition: TopicPartition) -> Flow[bool]:
        """Read on in all lanes of a partition, or wait for more. False after something failed."""
        found = []
        try:
            for priority in LANES:
                found += [(yield from self._fetch_lane(Place(*partition, priority), 0.0))]
            if not any(found):
                yield from self._fetch_lane(Place(*partition, "normal"), _WAIT_S)
        except Closing:
            raise
        except QuiverError as error:
            logger.warning("could not read %s partition %d: %s", *partition, error)
            return False
        return True

    def _fetch_lane(self, place: Place, wait_s: float) -> Flow[bool]:
        with self._guard:
            wish = self._reading.wish(place)
        if wish is None:
            return False
        try:
            page = yield from self._calls.fetch(place, wish.offset, _FETCH_MESSAGES, wait_s)
        except OffsetOutOfRange as error:
            self._reset_lane(place, error)
            return False
        with self._guard:
            has_more = self._reading.fetched(place, wish, page)
            if has_more:
                self._guard.notify_all()
        return has_more

    def _reset_lane(self, place: Place, error: OffsetOutOfRange) -> None:
        """Go on elsewhere, because retention took the place where this was, or a seek missed the log."""
        reset = self.options.reset
        with self._guard:
            if reset == "error":
                self._error = error
                self._reading.remove([place.owner])
            elif place.owner in self._reading.partitions:
                logger.warning("begin anew in %s: %s", "/".join(map(str, place)), error)
                self._reading.seek(place, error.start if reset == "earliest" else error.end)
            self._guard.notify_all()
