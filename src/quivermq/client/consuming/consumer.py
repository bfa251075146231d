"""What `Connection.consumer` returns: a member of a group that reads partitions of its own, in order."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

from quivermq.client.blocking.shell import Shell
from quivermq.client.consuming.membership import PAUSE_S, Membership
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.consuming.reading import Tenure
from quivermq.client.core.call import Flow
from quivermq.client.core.topics import TopicCalls
from quivermq.clock import Clock
from quivermq.errors import Closing, QuiverError
from quivermq.group.assignment import TopicPartition
from quivermq.helping import Condition, Helper, Latch
from quivermq.model.checks import Period, check_number, seconds_of
from quivermq.model.lanes import Priority
from quivermq.model.messages import StoredMessage
from quivermq.reentry import entered, is_inside, soon

# How long `poll` goes on after a signal handler has closed the consumer.
_LOOK_S = 0.5


class MemberPart(NamedTuple):
    """A member of the group at one broker, or in one shard of a cluster."""

    run: Callable[[Flow[Any]], Any]
    membership: Membership


class RemoteConsumer:
    """Reads topics as a member of a group. `poll` it from one thread; anything else from any.

    In a cluster it is a member in each shard of its topics, and what they return comes together.

    Messages that the last `poll` returned count as finished when the next one is called, or the consumer is
    closed, and are committed every `auto_commit_ms`; with None only by `commit`.
    """

    def __init__(self, places: Sequence[tuple[Shell, TopicCalls]], options: ConsumerOptions) -> None:
        for shell, _ in places:
            shell.check_open()
        self.topics = options.topics
        self.group = options.group
        self._options = options
        self._turn = 0
        self._condition = Condition()
        self._closed = Latch()
        self._is_ending = False
        self._threads: list[Helper] = []
        self._parts: list[MemberPart] = []
        for shell, calls in places:
            self._add(shell, calls)

    def _add(self, shell: Shell, calls: TopicCalls) -> None:
        def start_fetching(tenure: Tenure) -> None:
            self._start(lambda: self._fetch(part, tenure), "quiver-fetch")

        part = MemberPart(shell.run, Membership(calls, self._options, self._condition, start_fetching))
        self._parts.append(part)
        self._start(lambda: self._beat(part), "quiver-heartbeat")

    def _start(self, work: Callable[[], None], name: str) -> None:
        thread = Helper(work, name)
        self._threads = [each for each in self._threads if not each.is_over()] + [thread]
        thread.start()

    # Messages.

    def poll(self, timeout: Period = 1.0, max_messages: int | None = None) -> list[StoredMessage]:
        """The next messages, an empty list when none came within `timeout` seconds.

        What the previous call returned is finished with this one. Here partitions are taken over and given
        up, and the callbacks called. Raises OffsetOutOfRange with `reset="error"`, and Closing.
        """
        self._check_open()
        count = self._options.max_poll if max_messages is None else max_messages
        check_number("max_messages", count, 1, 1_000_000)
        wait_s = seconds_of("timeout", timeout, lowest=0)
        clock = self._parts[0].membership.clock
        for run, membership in self._parts:
            membership.finish()
            run(membership.commit_if_due())
        end = clock.monotonic() + wait_s
        while True:
            answered = [run(membership.rebalance()) for run, membership in self._parts]
            if not any(answered):
                self._closed.wait(PAUSE_S)
            messages = self._take(count, end, clock)
            if messages is not None:
                return messages
            self._check_open()

    @entered
    def _take(self, count: int, end: float, clock: Clock) -> list[StoredMessage] | None:
        """What was fetched, or nothing once the time is over; None after a wait: then more may be there."""
        with self._condition.lock:
            messages = self._taken(count)
            left = end - clock.monotonic()
            if messages or left <= 0:
                return messages
            waiting = [membership.is_to_sync for _, membership in self._parts]
            if not any(waiting):
                # Nobody can wake it out of a signal handler: then it has to look for itself.
                self._condition.wait(min(left, _LOOK_S))
            elif not all(waiting):
                # One shard is away, or has news: the others go on, and it is asked again soon.
                self._condition.wait(min(left, PAUSE_S))
        return None

    def _taken(self, count: int) -> list[StoredMessage]:
        """Of every part in its turn, so that none waits for another that always has something."""
        self._turn += 1
        start = self._turn % len(self._parts)
        messages: list[StoredMessage] = []
        for _, membership in [*self._parts[start:], *self._parts[:start]]:
            if len(messages) < count:
                messages += membership.take(count - len(messages))
        return messages

    def __iter__(self) -> Iterator[StoredMessage]:
        """Message after message, for ever; each is finished when the next one is asked for."""
        while True:
            yield from self.poll(1.0, 1)

    # Positions.

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it has now."""
        return sorted(each for _, membership in self._parts for each in membership.assignment)

    @entered
    def position(self, topic: str, partition: int, priority: Priority = "normal") -> int:
        """The next offset that `poll` returns of a lane. Raises InvalidRequest."""
        return self._of(topic, partition).position(topic, partition, priority)

    @entered
    def seek(self, topic: str, partition: int, offset: int, priority: Priority = "normal") -> None:
        """Go on from elsewhere in a lane; the next commit is of that place. Raises InvalidRequest."""
        self._of(topic, partition).seek(topic, partition, offset, priority)

    def _of(self, topic: str, partition: int) -> Membership:
        """The one that has the partition; any of them refuses what none has."""
        wanted = TopicPartition(topic, partition)
        having = (membership for _, membership in self._parts if wanted in membership.assignment)
        return next(having, self._parts[0].membership)

    def lag(self) -> dict[TopicPartition, int]:
        """How many messages of each partition it has not returned yet."""
        return {each: lag for run, membership in self._parts for each, lag in run(membership.lag()).items()}

    def commit(self) -> None:
        """Everything that was returned is finished: let the group go on behind it.

        Raises Fenced when a partition went to another member meanwhile, who gets those messages again.
        """
        self._check_open()
        failure: QuiverError | None = None
        for run, membership in self._parts:
            membership.finish()
            try:
                run(membership.commit())
            except QuiverError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # Threads.

    def _beat(self, part: MemberPart) -> None:
        with suppress(Closing):
            while not self._closed.wait(part.membership.beat_s):
                part.run(part.membership.beat())

    def _fetch(self, part: MemberPart, tenure: Tenure) -> None:
        """Read ahead in one partition until it is given up."""
        with suppress(Closing):
            while self._wait_for_room(part.membership, tenure):
                if not part.run(part.membership.fetch(tenure.partition)):
                    self._closed.wait(PAUSE_S)

    def _wait_for_room(self, membership: Membership, tenure: Tenure) -> bool:
        with self._condition.lock:
            while not self._closed.is_set() and membership.reads(tenure):
                if membership.has_room(tenure.partition):
                    return True
                self._condition.wait()
        return False

    # The end.

    def close(self) -> None:
        """Commit what is finished, leave the group, and end. Closing twice is allowed."""
        self.end(is_finished=True)

    def end(self, *, is_finished: bool) -> None:
        """As `close`. Unless it `is_finished`, what was returned last is not committed, and comes again."""
        if is_inside():
            # Out of a signal handler that has interrupted another call of this thread.
            self._is_ending = True
            soon(lambda: self.end(is_finished=is_finished))
            return
        if self._closed.is_set():
            return
        self._is_ending = False
        for run, membership in self._parts:
            if is_finished:
                membership.finish()
            with suppress(Closing):
                run(membership.commit_quietly())
        self._closed.set()
        for run, membership in self._parts:
            with suppress(Closing):
                run(membership.leave())
        self._wake_all()
        for thread in self._threads:
            thread.join()

    @entered
    def _wake_all(self) -> None:
        with self._condition.lock:
            self._condition.notify_all()

    def _check_open(self) -> None:
        if self._closed.is_set() or self._is_ending:
            raise Closing(f"the consumer of group {self.group} was closed: make another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # A block that raised did not finish what it was last given: that is to be delivered again.
        self.end(is_finished=error is None)

    def __repr__(self) -> str:
        return f"<RemoteConsumer of {', '.join(self.topics)}, group {self.group}>"
