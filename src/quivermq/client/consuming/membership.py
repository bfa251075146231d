"""A member of a group without a socket, a thread or a task: what it has, and flows that change it.

A shell runs the flows, one that reads ahead for each partition, and waits where there is nothing to do.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import product
from typing import Any, Protocol

from quivermq.client.consuming.calls import GroupBounds, MemberCalls, partition_of
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.consuming.reading import Reading, Tenure, Wish
from quivermq.client.core.call import Act, Flow
from quivermq.client.core.topics import TopicCalls
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
from quivermq.model.checks import check_number
from quivermq.model.lanes import PRIORITIES, Lane, Priority, check_priority
from quivermq.model.messages import StoredMessage

logger = logging.getLogger(__name__)

# How long a fetch waits at the end of a lane; other lanes of the partition are looked at in between.
_WAIT_S = 0.25
_FETCH_MESSAGES = 1000
# After something failed.
PAUSE_S = 1.0
# A lane into which nobody has put anything.
_UNUSED = GroupBounds(None, 0, 0)


class Guard(Protocol):
    """What guards the state, by its lock, and wakes those who wait for it to change."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    def notify_all(self) -> None: ...


class Membership:
    """What a consumer is. `start_fetching` is called for each partition that it gets."""

    def __init__(
        self,
        calls: TopicCalls,
        options: ConsumerOptions,
        guard: Guard,
        start_fetching: Callable[[Tenure], None],
    ) -> None:
        self.options = options
        self.clock = calls.clock
        self.member: tuple[str, int] | None = None
        self.is_to_sync = True
        self._is_closed = False
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
        with self._guard.lock:
            self._reading.finish()

    # Positions.

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it has now."""
        with self._guard.lock:
            return sorted(self._reading.partitions)

    def position(self, topic: str, partition: int, priority: Priority) -> int:
        """The next offset that is returned of a lane. Raises InvalidRequest."""
        lane = self._lane(topic, partition, priority)
        with self._guard.lock:
            return self._reading.position(lane)

    def seek(self, topic: str, partition: int, offset: int, priority: Priority) -> None:
        """Go on from elsewhere in a lane. Raises InvalidRequest."""
        check_number("offset", offset, 0, OFFSET_MAX)
        lane = self._lane(topic, partition, priority)
        with self._guard.lock:
            self._reading.seek(lane, offset)
            self._guard.notify_all()

    def _lane(self, topic: str, partition: int, priority: Priority) -> Lane:
        check_priority(priority)
        if TopicPartition(topic, partition) not in self.assignment:
            raise InvalidRequest(f"{topic} partition {partition!r} is not assigned to this consumer")
        return Lane(topic, partition, priority)

    def lag(self) -> Flow[dict[TopicPartition, int]]:
        """How many messages of each partition were not returned yet."""
        found = dict.fromkeys(self.assignment, 0)
        for topic in {partition.topic for partition in found}:
            bounds: dict[Lane, GroupBounds] = {}
            with suppress(TopicNotFound):
                bounds = yield from self._calls.offsets(topic)
            for lane, each in bounds.items():
                if partition_of(lane) in found:
                    with self._guard.lock, suppress(KeyError):
                        found[partition_of(lane)] += max(0, each.end - self._reading.position(lane))
        return found

    # Commits.

    def commit(self, partitions: Iterable[TopicPartition] | None = None) -> Flow[None]:
        """Let the group go on behind what is finished. Raises Fenced."""
        with self._guard.lock:
            positions = self._reading.uncommitted(partitions)
            member = self.member
        if not positions or member is None:
            return
        try:
            yield from self._commit(positions, *member)
        except (TopicNotFound, OffsetOutOfRange):
            # Nothing was committed: what is not to blame goes without the others.
            yield from self._commit_apart(positions, *member)

    def _commit(self, positions: Mapping[Lane, int], member_id: str, generation: int) -> Flow[None]:
        try:
            yield from self._calls.commit(positions, member_id, generation)
        except Fenced:
            with self._guard.lock:
                self.is_to_sync = True
            raise
        with self._guard.lock:
            self._reading.committed(positions)

    def _commit_apart(self, positions: Mapping[Lane, int], member_id: str, generation: int) -> Flow[None]:
        """Commit lane by lane, and leave out what is gone: a topic, or the messages up to there."""
        for lane, offset in positions.items():
            try:
                yield from self._commit({lane: offset}, member_id, generation)
            except (TopicNotFound, OffsetOutOfRange) as error:
                logger.warning("could not commit %s: %s", "/".join(map(str, lane)), error)
                if isinstance(error, TopicNotFound):
                    self._sync_soon()

    def _sync_soon(self) -> None:
        with self._guard.lock:
            self.is_to_sync = True
            self._guard.notify_all()

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
                member = self.member
                if member is None:
                    member = yield from self._join()
                yield from self._sync(*member)
        except Fenced as error:
            logger.info("join group %s again: %s", self.options.group, error)
            yield from self._lose_all()
        except Unavailable as error:
            if isinstance(error, Closing):
                raise
            logger.warning("group %s does not answer: %s", self.options.group, error)
            return False
        return True

    def _join(self) -> Flow[tuple[str, int]]:
        member = yield from self._calls.join(
            self.options.topics, self.options.strategy, self.options.session_timeout_ms
        )
        with self._guard.lock:
            if not self._is_closed:
                self.member = member
                return member
        # Whoever closed the consumer meanwhile did not know of this member.
        yield from self._depart(member[0])
        raise self._closing()

    def _check_open(self) -> None:
        """Under the guard. Raises Closing when the member left while an answer was on its way."""
        if self._is_closed:
            raise self._closing()

    def _closing(self) -> Closing:
        return Closing(f"the consumer of group {self.options.group} was closed: make another one")

    def _sync(self, member_id: str, generation: int) -> Flow[None]:
        had = self._reading.partitions
        synced = yield from self._calls.sync(member_id, generation, had)
        with self._guard.lock:
            self._check_open()
            self.member = (member_id, synced.generation)
            # From here on the heartbeat says when there is a reason to come back.
            self.is_to_sync = bool(synced.revoked & had)
        if synced.revoked & had:
            yield from self._give_up(synced.revoked & had)
        elif synced.assignment - had:
            try:
                yield from self._take_over(synced.assignment - had)
            except BaseException:
                # They are assigned, but not read yet: the next poll has to begin here again.
                self.is_to_sync = True
                raise

    def _take_over(self, partitions: frozenset[TopicPartition]) -> Flow[None]:
        bounds: dict[Lane, GroupBounds] = {}
        for topic in {partition.topic for partition in partitions}:
            with suppress(TopicNotFound):
                bounds |= yield from self._calls.offsets(topic)
        positions = {lane: self._begin(found) for lane, found in bounds.items()}
        committed = self._committed(partitions, bounds)
        with self._guard.lock:
            self._check_open()
            tenures = [self._reading.add(each, positions, committed) for each in sorted(partitions)]
        for tenure in tenures:
            self._start_fetching(tenure)
        on_assigned = self.options.on_assigned
        if on_assigned is not None:
            yield Act(lambda: on_assigned(sorted(partitions)))

    def _committed(
        self, partitions: Iterable[TopicPartition], bounds: Mapping[Lane, GroupBounds]
    ) -> dict[Lane, int]:
        """What the broker need not be told.

        Who begins at the earliest message does so again, and misses nothing, until there is something to
        commit. Any other beginning has to be noted: the next time it would be elsewhere.
        """
        found: dict[Lane, int] = {}
        for partition, priority in product(partitions, PRIORITIES):
            lane = Lane(*partition, priority)
            each = bounds.get(lane, _UNUSED)
            if each.committed is not None:
                found[lane] = each.committed
            elif self.options.reset == "earliest":
                found[lane] = each.start
        return found

    def _give_up(self, partitions: frozenset[TopicPartition]) -> Flow[None]:
        """Let partitions go, after a last commit."""
        try:
            yield from self._tell_revoked(partitions)
        except Exception:
            # They are given up all the same, or nobody could ever have them.
            self._remove(partitions)
            raise
        yield from self.commit_quietly(partitions)
        self._remove(partitions)

    def _lose_all(self) -> Flow[None]:
        """The group went on without it. For a last commit it is too late."""
        with self._guard.lock:
            lost = self._reading.partitions
            # Before anything of the user's is called: whatever that raises, the next poll joins again.
            self.member, self.is_to_sync = None, True
        self._remove(lost)
        yield from self._tell_revoked(lost)

    def _tell_revoked(self, partitions: frozenset[TopicPartition]) -> Flow[None]:
        on_revoked = self.options.on_revoked
        if partitions and on_revoked is not None:
            yield Act(lambda: on_revoked(sorted(partitions)))

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        with self._guard.lock:
            self._reading.remove(partitions)
            self._guard.notify_all()

    def _begin(self, bounds: GroupBounds) -> int:
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
        return self.options.beat_s

    def beat(self) -> Flow[None]:
        """Say that it lives, and hear whether there is a reason to sync. Raises Closing."""
        with self._guard.lock:
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
            self._sync_soon()

    def leave(self) -> Flow[None]:
        """Go at once, if somebody hears it."""
        with self._guard.lock:
            self._is_closed = True
            member, self.member = self.member, None
            self._guard.notify_all()
        if member is not None:
            yield from self._depart(member[0])

    def _depart(self, member_id: str) -> Flow[None]:
        with suppress(Unavailable):
            yield from self._calls.leave(member_id)

    # Fetching.

    def reads(self, tenure: Tenure) -> bool:
        """Whether it still has the partition. Under the guard, like the next one."""
        return self._reading.has(tenure)

    def has_room(self, partition: TopicPartition) -> bool:
        """Whether it may read on in the partition."""
        return self._reading.ahead(partition) < 2 * self.options.max_poll

    def fetch(self, partition: TopicPartition) -> Flow[bool]:
        """Read on in all lanes of a partition, or wait for more. False after something failed."""
        found = []
        try:
            for priority in PRIORITIES:
                found += [(yield from self._fetch_lane(Lane(*partition, priority), 0.0))]
            if not any(found):
                yield from self._fetch_lane(Lane(*partition, "normal"), _WAIT_S)
        except Closing:
            raise
        except QuiverError as error:
            if isinstance(error, TopicNotFound):
                # It was deleted: with the next sync the partition is given up.
                self._sync_soon()
            logger.warning("could not read %s partition %d: %s", *partition, error)
            return False
        return True

    def _fetch_lane(self, lane: Lane, wait_s: float) -> Flow[bool]:
        with self._guard.lock:
            wish = self._reading.wish(lane)
        if wish is None:
            return False
        try:
            page = yield from self._calls.fetch(lane, wish.offset, _FETCH_MESSAGES, wait_s)
        except OffsetOutOfRange as error:
            self._reset_lane(lane, wish, error)
            return False
        with self._guard.lock:
            has_more = self._reading.fetched(lane, wish, page)
            if has_more:
                self._guard.notify_all()
        return has_more

    def _reset_lane(self, lane: Lane, wish: Wish, error: OffsetOutOfRange) -> None:
        """Go on elsewhere, because retention took the place where this was, or a seek missed the log."""
        reset = self.options.reset
        with self._guard.lock:
            if self._reading.wish(lane) != wish:
                # Meanwhile it was given up, or told to go elsewhere.
                return
            if reset == "error":
                self._error = error
                self._reading.remove([partition_of(lane)])
            else:
                logger.warning("begin anew in %s: %s", "/".join(map(str, lane)), error)
                self._reading.seek(lane, error.start if reset == "earliest" else error.end)
            self._guard.notify_all()
