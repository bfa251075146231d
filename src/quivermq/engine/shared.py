"""The engine over a disk that has its truth elsewhere: whoever calls waits for that once, at the end.

Whatever a call syncs on its way only orders, so nobody waits with a lock. Before the call answers, all that
it was to make durable, and all messages that it shows, have to be committed: failover takes back nothing
that somebody was told. Waiting, rather than leaving out what is not committed yet, so that everybody reads
what they have written.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from quivermq.delivery.taken import Taken
from quivermq.disk import Commits
from quivermq.engine.engine import Engine
from quivermq.engine.queue import EngineQueue
from quivermq.engine.taking import Taking
from quivermq.errors import QuiverError
from quivermq.frame import Frame
from quivermq.model import operations
from quivermq.model.messages import Put, StoredMessage
from quivermq.model.names import Scope
from quivermq.model.operations import Operation, QueueOperation, Settle, Settled, Tokens

logger = logging.getLogger(__name__)

T = TypeVar("T")
Asked = TypeVar("Asked")

# They only show messages, which may go on where nothing can be changed any more.
_READS: frozenset[type] = frozenset(
    {operations.Peek, operations.ListDeadLetters, operations.ListScheduled, operations.CountReasons}
)
# They show no messages.
_LOOKS: frozenset[type] = frozenset(
    {
        operations.ListTopics,
        operations.DescribeTopic,
        operations.GetExtent,
        operations.ListGroups,
        operations.GetStats,
        operations.Verify,
        operations.GetLeaseSeconds,
        operations.CountPartitions,
        operations.GetQueueStats,
        operations.ListDeliveries,
        operations.CountScheduled,
    }
)


class SharedEngine(Engine):
    """Made by `open_engine` over a disk that has `commits`."""

    @property
    def commits(self) -> Commits:
        commits = super().commits
        assert commits is not None, "its disk has them"
        return commits

    def perform(self, operation: Operation[T]) -> T:
        return _performed(self.commits, super().perform, operation)

    def queue(self, topic: str, group: str = "default") -> "SharedQueue":
        self.check_open()
        return SharedQueue(self, topic, group)

    def frames(self, topic: str, partition: int, priority: str, start: int, end: int) -> Iterator[Frame]:
        """Whole frames that hold these offsets, as they are stored. Raises OffsetOutOfRange."""
        found = super().frames(topic, partition, priority, start, end)
        while (frame := self.commits.together(partial(next, found, None))) is not None:
            yield frame

    def maintain(self) -> None:
        """Do what is due by now. A thread does this all the time; calling it does no harm."""
        self.commits.ordered(super().maintain)

    def close(self) -> None:
        """Commit everything and let go of the directory. Closing twice is allowed.

        Quiet where nothing can be committed any more. Raises DiskFull when buffered messages cannot be
        written: call it again once there is room. Raises StoreUnreachable when the store does not answer:
        everything is let go of all the same, and closing again waits again.
        """
        try:
            self.commits.together(self._close_all)
        except QuiverError as error:
            if self.commits.failure is None:
                raise
            logger.info("closed a queue that can store nothing any more: %s", error)
            # What kept it from the end does so no more: everything it has left is let go of.
            self.commits.ordered(super().close)

    def _close_all(self) -> None:
        super().close()
        self.commits.commit(self.commits.ticket())


class SharedQueue(EngineQueue):
    """Made by `SharedEngine.queue`. Thread-safe."""

    def __init__(self, engine: SharedEngine, topic: str, group: str) -> None:
        super().__init__(engine, topic, group)
        self._commits = engine.commits
        self._taking = SharedTaking(engine, self._scope, group)

    def _changed(self, act: Callable[[], T]) -> T:
        self._commits.admit()
        return self._commits.together(act)

    def put(self, *args: Any, **kwargs: Any) -> Put:
        return self._changed(partial(super().put, *args, **kwargs))

    def put_many(self, *args: Any, **kwargs: Any) -> Sequence[Put]:
        return self._changed(partial(super().put_many, *args, **kwargs))

    def put_checked(self, *args: Any, **kwargs: Any) -> Sequence[Put]:
        return self._changed(partial(super().put_checked, *args, **kwargs))

    def put_frame(self, *args: Any, **kwargs: Any) -> Put:
        return self._changed(partial(super().put_frame, *args, **kwargs))

    def release_taken(self, tokens: Tokens, retries: int = 0) -> None:
        # Nobody relies on it: without it the leases end by themselves.
        self._commits.ordered(partial(super().release_taken, tokens, retries))

    def settle(self, settle: Settle, held: Sequence[Any]) -> Settled:
        return self._changed(partial(super().settle, settle, held))

    def read(self, *args: Any, **kwargs: Any) -> list[StoredMessage]:
        return self._commits.together(partial(super().read, *args, **kwargs))

    def perform(self, operation: QueueOperation[T]) -> T:
        return _performed(self._commits, super().perform, operation)


class SharedTaking(Taking):
    """Hands out only what is committed."""

    def __init__(self, engine: SharedEngine, scope: Scope, group: str) -> None:
        super().__init__(engine, scope, group)
        self._commits = engine.commits

    def take_now(self, *args: Any, **kwargs: Any) -> list[Taken]:
        self._commits.admit()
        taken: list[Taken] = []
        try:
            # Not around the waiting for messages, in which a signal handler may make calls of its own.
            return self._commits.together(lambda: self._take_into(taken, *args, **kwargs))
        except BaseException:
            # Leased, and nobody will have them.
            for each in taken:
                self._commits.ordered(each.grant().give_back)
            raise

    def _take_into(self, taken: list[Taken], *args: Any, **kwargs: Any) -> list[Taken]:
        taken += super().take_now(*args, **kwargs)
        return taken


def _performed(commits: Commits, perform: Callable[[Asked], T], operation: Asked) -> T:
    """Carry an operation out as its kind asks for it."""
    kind = type(operation)
    act = partial(perform, operation)
    if kind in _LOOKS:
        return commits.ordered(act)
    if kind not in _READS:
        commits.admit()
    return commits.together(act)
