"""What `Connection.consumer` returns: a member of a group that reads partitions of its own, in order."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

from quivermq.client.blocking.shell import Shell
from quivermq.client.consuming.membership import PAUSE_S, Membership
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.consuming.reading import Tenure
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import Closing
from quivermq.group.assignment import TopicPartition
from quivermq.helping import Condition, Helper, Latch
from quivermq.model.checks import Period, check_number, seconds_of
from quivermq.model.lanes import Priority
from quivermq.model.messages import StoredMessage
from quivermq.reentry import entered, is_inside, soon

# How long `poll` goes on after a signal handler has closed the consumer.
_LOOK_S = 0.5


class RemoteConsumer:
    """Reads topics as a member of a group. `poll` it from one thread; anything else from any.

    Messages that the last `poll` returned count as finished when the next one is called, or the consumer is
    closed, and are committed every `auto_commit_ms`; with None only by `commit`.
    """

    def __init__(self, shell: Shell, calls: TopicCalls, options: ConsumerOptions) -> None:
        shell.check_open()
        self.topics = options.topics
        self.group = options.group
        self._run = shell.run
        self._condition = Condition()
        self._closed = Latch()
        self._is_ending = False
        self._threads: list[Helper] = []
        self._membership = Membership(calls, options, self._condition, self._start_fetching)
        self._start(self._beat, "quiver-heartbeat")

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
        membership = self._membership
        count = membership.options.max_poll if max_messages is None else max_messages
        check_number("max_messages", count, 1, 1_000_000)
        wait_s = seconds_of("timeout", timeout, lowest=0)
        membership.finish()
        self._run(membership.commit_if_due())
        end = membership.clock.monotonic() + wait_s
        while True:
            if not self._run(membership.rebalance()):
                self._closed.wait(PAUSE_S)
            messages = self._take(count, end)
            if messages is not None:
                return messages
            self._check_open()

    @entered
    def _take(self, count: int, end: float) -> list[StoredMessage] | None:
        """What was fetched, or nothing once the time is over; None after a wait: then more may be there."""
        membership = self._membership
        with self._condition.lock:
            messages = membership.take(count)
            left = end - membership.clock.monotonic()
            if messages or left <= 0:
                return messages
            if not membership.is_to_sync:
                # Nobody can wake it out of a signal handler: then it has to look for itself.
                self._condition.wait(min(left, _LOOK_S))
        return None

    def __iter__(self) -> Iterator[StoredMessage]:
        """Message after message, for ever; each is finished when the next one is asked for."""
        while True:
            yield from self.poll(1.0, 1)

    # Positions.

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it has now."""
        return self._membership.assignment

    @entered
    def position(self, topic: str, partition: int, priority: Priority = "normal") -> int:
        """The next offset that `poll` returns of a lane. Raises InvalidRequest."""
        return self._membership.position(topic, partition, priority)

    @entered
    def seek(self, topic: str, partition: int, offset: int, priority: Priority = "normal") -> None:
        """Go on from elsewhere in a lane; the next commit is of that place. Raises InvalidRequest."""
        self._membership.seek(topic, partition, offset, priority)

    def lag(self) -> dict[TopicPartition, int]:
        """How many messages of each partition it has not returned yet."""
        return self._run(self._membership.lag())

    def commit(self) -> None:
        """Everything that was returned is finished: let the group go on behind it.

        Raises Fenced when a partition went to another member meanwhile, who gets those messages again.
        """
        self._check_open()
        self._membership.finish()
        self._run(self._membership.commit())

    # Threads.

    def _beat(self) -> None:
        with suppress(Closing):
            while not self._closed.wait(self._membership.beat_s):
                self._run(self._membership.beat())

    def _start_fetching(self, tenure: Tenure) -> None:
        self._start(lambda: self._fetch(tenure), "quiver-fetch")

    def _fetch(self, tenure: Tenure) -> None:
        """Read ahead in one partition until it is given up."""
        with suppress(Closing):
            while self._wait_for_room(tenure):
                if not self._run(self._membership.fetch(tenure.partition)):
                    self._closed.wait(PAUSE_S)

    def _wait_for_room(self, tenure: Tenure) -> bool:
        with self._condition.lock:
            while not self._closed.is_set() and self._membership.reads(tenure):
                if self._membership.has_room(tenure.partition):
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
        if is_finished:
            self._membership.finish()
        with suppress(Closing):
            self._run(self._membership.commit_quietly())
        self._closed.set()
        with suppress(Closing):
            self._run(self._membership.leave())
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
