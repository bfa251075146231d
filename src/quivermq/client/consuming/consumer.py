"""What `Connection.consumer` returns: a member of a group that reads partitions of its own, in order."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Literal, Self

from quivermq.client.blocking.shell import Shell
from quivermq.client.consuming.calls import Bounds, MemberCalls, Place
from quivermq.client.consuming.reading import Reading
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
from quivermq.topic.incoming import check_number, seconds_us
from quivermq.topic.partition import LANES, lane_number

logger = logging.getLogger(__name__)

Reset = Literal["earliest", "latest", "error"]
Strategy = Literal["range", "sticky", "cooperative"]
Callback = Callable[[list[TopicPartition]], object]

# How long a fetch waits at the end of a lane; other lanes of the partition are looked at in between.
_WAIT_S = 0.25
# After a failed fetch.
_PAUSE_S = 1.0
_FETCH_MESSAGES = 1000


class RemoteConsumer:
    """Reads topics as a member of a group. `poll` it from one thread; anything else from any.

    Messages that the last `poll` returned count as finished when the next one is called, or the consumer is
    closed, and are committed every `auto_commit_ms`; with None only by `commit`.
    """

    def __init__(
        self,
        shell: Shell,
        calls: TopicCalls,
        topics: list[str],
        group: str,
        *,
        strategy: Strategy,
        auto_commit_ms: int | None,
        reset: Reset,
        on_assigned: Callback | None,
        on_revoked: Callback | None,
        max_poll: int,
        session_timeout_ms: int,
    ) -> None:
        self.topics = topics
        self.group = group
        self._run = shell.run
        self._clock = calls.clock
        self._calls = MemberCalls(calls, group)
        self._strategy = strategy
        self._auto_commit_ms = auto_commit_ms
        self._reset = reset
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._max_poll = max_poll
        self._session_timeout_ms = session_timeout_ms
        self._condition = threading.Condition()
        self._reading = Reading()
        self._member: tuple[str, int] | None = None
        self._is_to_sync = True
        self._error: QuiverError | None = None
        self._commit_at = self._next_commit()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start(self._beat, "quiver-heartbeat")

    def _start(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()

    # Messages.

    def poll(self, timeout: float = 1.0, max_messages: int | None = None) -> list[StoredMessage]:
        """The next messages, an empty list when none came within `timeout` seconds.

        What the previous call returned is finished with this one. Here partitions are taken over and given
        up, and the callbacks called. Raises OffsetOutOfRange with `reset="error"`, and Closing.
        """
        self._check_open()
        count = self._max_poll if max_messages is None else max_messages
        check_number("max_messages", count, 1, 1_000_000)
        seconds_us("timeout", timeout, lowest=0)
        with self._condition:
            self._reading.finish()
        self._commit_if_due()
        end = self._clock.monotonic() + timeout
        while True:
            self._rebalance()
            with self._condition:
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                messages = self._reading.take(count)
                if messages:
                    self._condition.notify_all()
                    return messages
                left = end - self._clock.monotonic()
                if left <= 0:
                    return []
                if not self._is_to_sync:
                    self._condition.wait(left)
            self._check_open()

    def __iter__(self) -> Iterator[StoredMessage]:
        """Message after message, for ever; each is finished when the next one is asked for."""
        while True:
            yield from self.poll(1.0, 1)

    # Positions.

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it has now."""
        with self._condition:
            return sorted(self._reading.partitions)

    def position(self, topic: str, partition: int, priority: str = "normal") -> int:
        """The next offset that `poll` returns of a lane. Raises InvalidRequest."""
        place = self._place(topic, partition, priority)
        with self._condition:
            return self._reading.position(place)

    def seek(self, topic: str, partition: int, offset: int, priority: str = "normal") -> None:
        """Go on from elsewhere in a lane. Nothing is committed by that. Raises InvalidRequest."""
        check_number("offset", offset, 0, OFFSET_MAX)
        place = self._place(topic, partition, priority)
        with self._condition:
            self._reading.seek(place, offset)
            self._condition.notify_all()

    def lag(self) -> dict[TopicPartition, int]:
        """How many messages of each partition it has not returned yet."""
        found = dict.fromkeys(self.assignment, 0)
        for topic in {partition.topic for partition in found}:
            for place, bounds in self._run(self._calls.offsets(topic)).items():
                if place.owner in found:
                    with self._condition, suppress(KeyError):
                        found[place.owner] += max(0, bounds.end - self._reading.position(place))
        return found

    def commit(self) -> None:
        """Everything that was returned is finished: let the group go on behind it.

        Raises Fenced when a partition went to another member meanwhile, who gets those messages again.
        """
        self._check_open()
        with self._condition:
            self._reading.finish()
        self._commit()

    def _place(self, topic: str, partition: int, priority: str) -> Place:
        lane_number(priority)
        if TopicPartition(topic, partition) not in self.assignment:
            raise InvalidRequest(f"{topic} partition {partition!r} is not assigned to this consumer")
        return Place(topic, partition, priority)

    def _commit(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        with self._condition:
            positions = self._reading.uncommitted(partitions)
            member = self._member
        if not positions or member is None:
            return
        try:
            self._run(self._calls.commit(positions, *member))
        except Fenced:
            with self._condition:
                self._is_to_sync = True
            raise
        with self._condition:
            self._reading.committed(positions)

    def _commit_if_due(self) -> None:
        if self._commit_at is not None and self._clock.monotonic() >= self._commit_at:
            self._commit_at = self._next_commit()
            self._commit_quietly()

    def _commit_quietly(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Commit what can be committed; the rest is delivered again."""
        try:
            self._commit(partitions)
        except QuiverError as error:
            logger.warning("could not commit for group %s: %s", self.group, error)

    def _next_commit(self) -> float | None:
        return (
            None if self._auto_commit_ms is None else self._clock.monotonic() + self._auto_commit_ms / 1000
        )

    # Membership.

    def _rebalance(self) -> None:
        """Take over and give up partitions until nothing is left to do. Without a broker, later."""
        try:
            while self._is_to_sync:
                if self._member is None:
                    wish = self._calls.join(self.topics, self._strategy, self._session_timeout_ms)
                    self._member = self._run(wish)
                self._sync(*self._member)
        except Fenced as error:
            logger.info("join group %s again: %s", self.group, error)
            self._give_up(self._reading.partitions, is_lost=True)
            self._member, self._is_to_sync = None, True
        except Unavailable as error:
            if isinstance(error, Closing):
                raise
            logger.warning("group %s does not answer: %s", self.group, error)
            self._closed.wait(_PAUSE_S)

    def _sync(self, member_id: str, generation: int) -> None:
        had = self._reading.partitions
        synced = self._run(self._calls.sync(member_id, generation, had))
        with self._condition:
            self._member = (member_id, synced.generation)
            # From here on the heartbeat says when there is a reason to come back.
            self._is_to_sync = bool(synced.revoked & had)
        if synced.revoked & had:
            self._give_up(synced.revoked & had, is_lost=False)
        elif synced.assignment - had:
            try:
                self._take_over(synced.assignment - had)
            except BaseException:
                # They are assigned, but not read yet: the next poll has to begin here again.
                self._is_to_sync = True
                raise

    def _take_over(self, partitions: frozenset[TopicPartition]) -> None:
        bounds: dict[Place, Bounds] = {}
        for topic in {partition.topic for partition in partitions}:
            with suppress(TopicNotFound):
                bounds |= self._run(self._calls.offsets(topic))
        positions = {place: self._begin(found) for place, found in bounds.items()}
        with self._condition:
            for partition in sorted(partitions):
                self._reading.add(partition, positions)
        for partition in sorted(partitions):
            self._start(lambda partition=partition: self._fetch(partition), "quiver-fetch")  # type: ignore[misc]
        if self._on_assigned is not None:
            self._on_assigned(sorted(partitions))

    def _give_up(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> None:
        """Let partitions go, after a last commit, for which it is too late when they are lost."""
        if not partitions:
            return
        if self._on_revoked is not None:
            self._on_revoked(sorted(partitions))
        if not is_lost and self._auto_commit_ms is not None:
            self._commit_quietly(partitions)
        with self._condition:
            self._reading.remove(partitions)
            self._condition.notify_all()

    def _begin(self, bounds: Bounds) -> int:
        """Where to begin in a lane: where the group is, or where `reset` says."""
        if bounds.committed is not None and bounds.start <= bounds.committed <= bounds.end:
            return bounds.committed
        if self._reset == "error":
            offset = -1 if bounds.committed is None else bounds.committed
            raise OffsetOutOfRange(offset, start=bounds.start, end=bounds.end)
        return bounds.start if self._reset == "earliest" else bounds.end

    def _beat(self) -> None:
        while not self._closed.wait(self._session_timeout_ms / 1000 / 4):
            with self._condition:
                member = self._member
            if member is None:
                continue
            try:
                is_stable = self._run(self._calls.heartbeat(*member)) == "stable"
            except Closing:
                return
            except Unavailable as error:
                logger.warning("the heartbeat of group %s is not heard: %s", self.group, error)
                continue
            except QuiverError:
                # Whoever polls next hears the same, and knows what to do about it.
                is_stable = False
            if not is_stable:
                with self._condition:
                    self._is_to_sync = True
                    self._condition.notify_all()

    # Fetching.

    def _fetch(self, partition: TopicPartition) -> None:
        """Read ahead in one partition until it is given up."""
        while self._wait_for_room(partition):
            try:
                found = [self._fetch_lane(Place(*partition, priority), 0.0) for priority in LANES]
                if not any(found):
                    self._fetch_lane(Place(*partition, "normal"), _WAIT_S)
            except Closing:
                return
            except QuiverError as error:
                logger.warning("could not read %s partition %d: %s", *partition, error)
                self._closed.wait(_PAUSE_S)

    def _wait_for_room(self, partition: TopicPartition) -> bool:
        with self._condition:
            while not self._closed.is_set() and partition in self._reading.partitions:
                if self._reading.ahead(partition) < 2 * self._max_poll:
                    return True
                self._condition.wait()
        return False

    def _fetch_lane(self, place: Place, wait_s: float) -> bool:
        with self._condition:
            wish = self._reading.wish(place)
        if wish is None:
            return False
        try:
            page = self._run(self._calls.fetch(place, wish.offset, _FETCH_MESSAGES, wait_s))
        except OffsetOutOfRange as error:
            self._reset_lane(place, error)
            return False
        with self._condition:
            has_more = self._reading.fetched(place, wish, page)
            if has_more:
                self._condition.notify_all()
        return has_more

    def _reset_lane(self, place: Place, error: OffsetOutOfRange) -> None:
        """Go on elsewhere, because retention took the place where this was, or a seek missed the log."""
        with self._condition:
            if self._reset == "error":
                self._error = error
                self._reading.remove([place.owner])
            elif place.owner in self._reading.partitions:
                logger.warning("begin anew in %s: %s", "/".join(map(str, place)), error)
                self._reading.seek(place, error.start if self._reset == "earliest" else error.end)
            self._condition.notify_all()

    # The end.

    def close(self) -> None:
        """Commit what is finished, leave the group, and end. Closing twice is allowed."""
        self._close(is_finished=True)

    def _close(self, *, is_finished: bool) -> None:
        if self._closed.is_set():
            return
        with self._condition:
            if is_finished:
                self._reading.finish()
        if self._auto_commit_ms is not None:
            self._commit_quietly()
        self._closed.set()
        with self._condition:
            member, self._member = self._member, None
            self._condition.notify_all()
        if member is not None:
            with suppress(Unavailable):
                self._run(self._calls.leave(member[0]))
        for thread in self._threads:
            thread.join()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closing(f"the consumer of group {self.group} was closed: make another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # A block that raised did not finish what it was last given: that is to be delivered again.
        self._close(is_finished=error is None)

    def __repr__(self) -> str:
        return f"<RemoteConsumer of {', '.join(self.topics)}, group {self.group}>"
