"""A stream that takes messages ahead: a thread fetches and acknowledges while the loop is at work."""

import atexit
import logging
import os
import threading
from collections.abc import Callable, Generator
from sys import is_finalizing
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from quivermq.clock import Clock
from quivermq.errors import Closing, LeaseExpired, QuiverError
from quivermq.helping import Condition, Helper
from quivermq.model.checks import Period
from quivermq.model.deliveries import Delivery
from quivermq.queue.due import Renewal
from quivermq.queue.finishing import finish
from quivermq.queue.renewing import Renewer
from quivermq.queue.window import ACK_S, STREAM_OF_PARENT, Window, WindowBatch
from quivermq.reentry import held

if TYPE_CHECKING:
    from quivermq.queue.queue import Queue

logger = logging.getLogger(__name__)

Streams: TypeAlias = "WeakSet[Stream]"

# All that there are. They end before the interpreter does: then their threads stop wherever they are, with
# locks in hand, and whoever collects a stream that was left would wait for them for ever.
_all_streams: Streams = WeakSet()


class Stream:
    """Made by `Queue.stream`. The loop is one thread; the renewer's and the stream's own help.

    A message is acknowledged some time after the loop got past it: with its batch, when the loop has to
    wait, after a short time, and at the latest when the stream ends.
    """

    def __init__(
        self,
        queue: "Queue",
        renewer: Renewer,
        streams: Streams,
        clock: Clock,
        timeout: Period | None,
        lease: Period | None,
        prefetch: int,
    ) -> None:
        self._queue = queue
        self._renewer = renewer
        self._clock = clock
        self._timeout = timeout
        self._lease = lease
        self._window: Window[Delivery] = Window(prefetch)
        self._changed = Condition()
        # Acks go one after the other, so that whoever waits for this lock knows that none is on its way.
        # Reentrant, because a generator that was forgotten is closed by whichever thread collects it.
        self._acking = threading.RLock()
        self._leases_s: dict[str, float] = {}
        self._to_fetch = 0
        self._is_fetching = False
        self._is_to_ack = False
        self._is_watched = False
        self._is_closed = False
        self._is_of_parent = False
        self._is_struck = False
        self._error: Exception | None = None
        self._thread = Helper(self._work, "quiver-stream")
        streams.add(self)
        _all_streams.add(self)

    def messages(self) -> Generator[Delivery, None, None]:
        """One message after the other. Whatever ends it, nothing is held when it has ended."""
        is_whole, monotonic = False, self._clock.monotonic
        try:
            while (batch := self._next()) is not None:
                begun = monotonic()
                for message in batch.messages:
                    yield message
                    batch.passed += 1
                    if self._is_closed:
                        raise self._closing()
                self._window.took(monotonic() - begun)
            is_whole = True
        finally:
            # The garbage collector may be who ends it, in the middle of another call.
            if not self._is_of_parent and not (self._is_closed and is_finalizing()):
                try:
                    finish(self._end, is_whole=is_whole)
                except BaseException:
                    # A signal struck in the middle of it. To begin again does no harm.
                    finish(self._end, is_whole=is_whole)
                    raise
        self._check()

    # The loop.

    # A signal handler that closes the queue has to wait for it: the threads want the same locks.
    @held
    def _next(self) -> WindowBatch[Delivery] | None:
        with self._changed.lock:
            batch = self._window.begin()
            while batch is None and self._is_fetching and self._error is None:
                self._changed.wait()
                batch = self._window.begin()
            self._check()
        return self._waited_for() if batch is None else self._begun(batch)

    def _waited_for(self) -> WindowBatch[Delivery] | None:
        """What comes first. Nothing is left to acknowledge meanwhile."""
        self._renewer.release(self)
        self._is_watched = False
        self.ack_passed()
        with self._changed.lock:
            self._check()
        self._receive(self._window.part, self._timeout)
        with self._changed.lock:
            if self._is_closed:
                raise self._closing()
            batch = self._window.begin()
        return None if batch is None else self._begun(batch)

    def _begun(self, batch: WindowBatch[Delivery]) -> WindowBatch[Delivery]:
        """Let the others know that the loop is busy."""
        with self._changed.lock:
            self._to_fetch = self._window.wanted()
            self._is_fetching = self._to_fetch > 0
            self._is_to_ack = self._is_fetching
            if self._is_fetching:
                self._thread.start()
            self._changed.notify_all()
        self._watch(batch)
        return batch

    def _receive(self, wanted: int, timeout: Period | None) -> None:
        found: list[Delivery] = []
        try:
            found = self._queue.get_many(wanted, timeout, lease=self._lease)
            with self._changed.lock:
                # What comes when everything was given back is in nobody's hands.
                is_late = self._is_closed
                if not is_late:
                    self._window.came(found, wanted)
            if is_late:
                self._queue.finish_with(found)
        except BaseException:
            self._queue.finish_with(found)
            raise

    def _closing(self) -> Closing:
        if self._is_of_parent:
            return Closing(STREAM_OF_PARENT)
        return Closing("the queue was closed: what the stream held is released")

    def _check(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # The renewer's thread.

    def _watch(self, batch: WindowBatch[Delivery]) -> None:
        """Have leases renewed and acks sent while the loop is busy."""
        for topic in {message.topic for message in batch.messages} - self._leases_s.keys():
            lease_s = self._queue.lease_s(topic, self._lease)
            self._leases_s[topic] = lease_s
            self._renewer.renew((self, topic), Renewal(self._queue, lease_s, self._held_of(topic)))
        if not self._is_watched:
            self._is_watched = True
            self._renewer.repeat(self, self.ack_passed, min(ACK_S, min(self._leases_s.values()) / 3))

    def _held_of(self, topic: str) -> Callable[[], list[Delivery]]:
        def find() -> list[Delivery]:
            with self._changed.lock:
                return [message for message in self._window.rest() if message.topic == topic]

        return find

    def ack_passed(self) -> None:
        """Acknowledge what the loop got past. What goes wrong, the loop hears."""
        with self._acking:
            with self._changed.lock:
                messages, passed = self._window.passed()
            try:
                if messages:
                    self._queue.ack(messages)
            except Exception as error:
                # One that was struck may have been done, and then there is no lease any more.
                if not (self._is_struck and isinstance(error, LeaseExpired)):
                    self._note(error)
            except BaseException:
                # They stay, and are acknowledged at the end.
                self._is_struck = True
                raise
            with self._changed.lock:
                self._window.acked(passed)

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
                self._changed.wait_for(lambda: self._is_closed or self._is_to_ack or self._to_fetch)
                if self._is_closed:
                    return
                wanted, self._to_fetch, self._is_to_ack = self._to_fetch, 0, False
            self.ack_passed()
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
        """End it from outside, because the queue is closed: the loop hears of it when it goes on."""
        self._end(is_whole=False, is_loop=False)

    def leave_to_parent(self) -> None:
        """End it in a forked child: that has none of its threads, and settles nothing of its parent's."""
        self._is_closed = self._is_of_parent = True

    @held
    def _end(self, *, is_whole: bool, is_loop: bool = True) -> None:
        """Acknowledge what was passed, and give back what was not."""
        with self._changed.lock:
            self._is_closed = True
            self._changed.notify_all()
        for name in (self, *((self, topic) for topic in self._leases_s)):
            self._renewer.release(name)
        self._thread.join()
        self.ack_passed()
        with self._changed.lock:
            rest = self._window.rest()
        # By their receipts unless the loop is over: it has not settled what it is at, and is told so.
        self._queue.release_quietly(rest if is_loop else [message.receipt for message in rest])
        is_heard = is_whole or self._error is None or isinstance(self._error, Closing)
        if not is_heard and isinstance(self._error, QuiverError):
            # There is another error already, or nobody to hear of it.
            logger.warning("could not acknowledge messages of %s: %s", self._queue.topic, self._error)


@atexit.register
def _close_all() -> None:
    for stream in list(_all_streams):
        stream.close()


def _leave_all_to_parent() -> None:
    for stream in list(_all_streams):
        stream.leave_to_parent()
    _all_streams.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
