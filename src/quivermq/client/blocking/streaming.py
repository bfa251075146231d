"""A stream that takes messages ahead: a thread fetches and acknowledges while the loop is at work."""

import logging
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

from quivermq.client.blocking.taking import Taking
from quivermq.client.core.queue import QueueCalls
from quivermq.client.core.renewing import Renewal
from quivermq.client.core.window import TELL_S, Batch, Window
from quivermq.delivery.delivery import release_quietly
from quivermq.errors import Closing, LeaseExpired, QuiverError
from quivermq.helping import Condition, Helper
from quivermq.model.checks import Period
from quivermq.model.deliveries import Delivery
from quivermq.reentry import holding, soon

if TYPE_CHECKING:
    from quivermq.client.blocking.connection import Connection
    from quivermq.client.blocking.queue import RemoteQueue

logger = logging.getLogger(__name__)


class Stream:
    """Made by `RemoteQueue.stream`. The loop is one thread; the connection's other threads help.

    A message is acknowledged some time after the loop got past it: with its batch, when the loop has to
    wait, after a short time, and at the latest when the stream ends.
    """

    def __init__(
        self,
        connection: "Connection",
        queue: "RemoteQueue",
        calls: QueueCalls,
        timeout: Period | None,
        lease: Period | None,
        prefetch: int,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._calls = calls
        self._timeout = timeout
        self._lease = lease
        self._window: Window[Delivery] = Window(prefetch)
        self._changed = Condition()
        # Acks go one after the other, so that whoever waits for this lock knows that none is on its way.
        # Reentrant, because a generator that was forgotten is closed by whichever thread collects it.
        self._telling = threading.RLock()
        self._topics: set[str] = set()
        self._leases_s: dict[str, float] = {}
        self._to_fetch = 0
        self._is_fetching = False
        self._is_to_tell = False
        self._is_watched = False
        self._is_closed = False
        self._is_struck = False
        self._error: Exception | None = None
        self._thread = Helper(self._work, "quiver-stream")

    def messages(self) -> Generator[Delivery, None, None]:
        """One message after the other. Whatever ends it, nothing is held when it has ended."""
        is_whole, monotonic = False, self._connection.calls.clock.monotonic
        try:
            while (batch := self._next()) is not None:
                begun = monotonic()
                for message in batch.messages:
                    yield message
                    batch.passed += 1
                    if self._is_closed:
                        raise Closing("the connection was closed: what the stream held is released")
                self._window.took(monotonic() - begun)
            is_whole = True
        finally:
            # The garbage collector may be who ends it, in the middle of another call.
            soon(partial(self._end, is_whole=is_whole))
        self._check()

    # The loop.

    def _next(self) -> Batch[Delivery] | None:
        # A signal handler that closes the connection has to wait for it: the threads want the same locks.
        with holding():
            with self._changed.lock:
                batch = self._window.begin()
                while batch is None and self._is_fetching and self._error is None:
                    self._changed.wait()
                    batch = self._window.begin()
                self._check()
            return self._waited_for() if batch is None else self._begun(batch)

    def _waited_for(self) -> Batch[Delivery] | None:
        """What comes first. Nothing is left unsaid meanwhile."""
        self._connection.renewer.release(self)
        self._is_watched = False
        self.tell()
        with self._changed.lock:
            self._check()
        self._receive(self._window.part, self._timeout)
        with self._changed.lock:
            batch = self._window.begin()
        return None if batch is None else self._begun(batch)

    def _begun(self, batch: Batch[Delivery]) -> Batch[Delivery]:
        """Let the others know that the loop is busy."""
        with self._changed.lock:
            self._to_fetch = self._window.wanted()
            self._is_fetching = self._to_fetch > 0
            self._is_to_tell = self._is_fetching
            if self._is_fetching:
                self._thread.start()
            self._changed.notify_all()
            # Under the lock, because a renewal wants them as well.
            _ = batch.messages
        self._watch()
        return batch

    def _receive(self, wanted: int, timeout: Period | None) -> None:
        taking = Taking(self._connection.takings, self._calls)
        try:
            flow = self._calls.receive(wanted, timeout, self._lease, taking.tokens)
            found = self._connection.shell.run(flow)
            with self._changed.lock:
                self._topics |= found.topics
                self._window.came(Batch(len(found), lambda: self._calls.deliveries(found)), wanted)
            taking.done()
        except BaseException as error:
            taking.give_back(error)
            raise

    def _check(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # The connection's thread.

    def _watch(self) -> None:
        """Have leases renewed and acks sent while the loop is busy."""
        renewer = self._connection.renewer
        for topic in self._topics - self._leases_s.keys():
            lease_s = self._connection.shell.run(self._calls.lease_s(topic, self._lease))
            self._leases_s[topic] = lease_s
            renewer.renew((self, topic), Renewal(self._queue, lease_s, self._held_of(topic)))
        if not self._is_watched:
            self._is_watched = True
            period_s = min(TELL_S, min(self._leases_s.values()) / 3)
            renewer.repeat(self, self.tell, period_s)

    def _held_of(self, topic: str) -> Callable[[], list[Delivery]]:
        def find() -> list[Delivery]:
            with self._changed.lock:
                return [message for message in self._window.rest() if message.topic == topic]

        return find

    def tell(self) -> None:
        """Acknowledge what the loop got past. What goes wrong, the loop hears."""
        with self._telling:
            with self._changed.lock:
                passed, told = self._window.passed()
            try:
                if passed:
                    self._queue.ack(passed)
            except Exception as error:
                # One that was struck may have been done, and then there is no lease any more.
                if not (self._is_struck and isinstance(error, LeaseExpired)):
                    self._note(error)
            except BaseException:
                # They stay, and are acknowledged at the end.
                self._is_struck = True
                raise
            with self._changed.lock:
                self._window.told(told)

    def _note(self, error: Exception) -> None:
        with self._changed.lock:
            self._error = self._error or error
            self._is_fetching = False
            self._changed.notify_all()

    # The stream's own thread.

    def _work(self) -> None:
        """Acknowledge and fetch, and never wait for messages: then it would be hard to stop."""
        while True:
            with self._changed.lock:
                self._changed.wait_for(lambda: self._is_closed or self._is_to_tell or self._to_fetch)
                if self._is_closed:
                    return
                wanted, self._to_fetch, self._is_to_tell = self._to_fetch, 0, False
            self.tell()
            if wanted:
                self._fetch(wanted)

    def _fetch(self, wanted: int) -> None:
        try:
            self._receive(wanted, 0)
        except Exception as error:
            self._note(error)
            return
        with self._changed.lock:
            self._is_fetching = False
            self._changed.notify_all()

    # The end.

    def close(self) -> None:
        """End it from outside, because the connection is closed: the loop hears of it when it goes on."""
        self._end(is_whole=False, is_loop=False)

    def _end(self, *, is_whole: bool, is_loop: bool = True) -> None:
        """Acknowledge what was passed, and give back what was not."""
        with holding():
            self._end_all(is_whole=is_whole, is_loop=is_loop)

    def _end_all(self, *, is_whole: bool, is_loop: bool) -> None:
        with self._changed.lock:
            self._is_closed = True
            self._changed.notify_all()
        for name in (self, *((self, topic) for topic in self._leases_s)):
            self._connection.renewer.release(name)
        self._thread.join()
        self.tell()
        with self._changed.lock:
            rest = self._window.rest()
        if is_loop:
            release_quietly(self._queue.release, rest)
        else:
            # By their receipts: the loop has not settled what it is at, and is told so.
            release_quietly(self._queue.release, [message.receipt for message in rest])
        is_told = is_whole or self._error is None or isinstance(self._error, Closing)
        if not is_told and isinstance(self._error, QuiverError):
            # There is another error already, or nobody to hear of it.
            logger.warning("could not acknowledge messages of %s: %s", self._queue.topic, self._error)
