"""What `Connection.producer` returns: `send` is cheap, and one thread in the background does the rest."""

import logging
import threading
from _thread import get_ident
from collections.abc import Mapping
from typing import Self

from quivermq.client.blocking.shell import Shell
from quivermq.client.producing.batch import Sent
from quivermq.client.producing.options import ProducerOptions
from quivermq.client.producing.sending import OVERHEAD_BYTES, Sending
from quivermq.errors import Closing, Unavailable
from quivermq.helping import Condition, Helper
from quivermq.model.checks import Period, seconds_of
from quivermq.model.lanes import Priority
from quivermq.reentry import entered, finish, inside, is_inside, postponed, refusal, soon

logger = logging.getLogger(__name__)


class RemoteProducer:
    """Sends messages to one topic. Thread-safe; close it, or use it in a `with` statement.

    Messages of one partition and priority are stored in the order in which they were sent. A batch that has
    to be sent again, because the broker did not answer, is stored once.
    """

    def __init__(self, topic: str, shell: Shell, options: ProducerOptions) -> None:
        self.topic = topic
        self._run = shell.run
        self._is_silent = options.acks == "none"
        self._buffer_bytes = options.buffer_bytes
        lock = threading.Lock()
        # The same lock: work for the thread, and news for those who wait for it.
        self._lock = lock
        self._work = Condition(lock)
        self._news = Condition(lock)
        self._sending = Sending(topic, options, lock)
        self._run(self._sending.begin())
        self._thread = Helper(self._work_off, "quiver-producer")
        self._thread.start()

    # In.

    def send(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        priority: Priority = "normal",
    ) -> Sent | None:
        """Send a message soon. Its `result()` says where it is; None when nobody waits for that.

        Raises InvalidRequest and MessageTooLarge at once, Overloaded when the buffer is full and
        `when_full` is "raise", and Closing.
        """
        thread = get_ident()
        if thread in inside:
            raise refusal()
        try:
            # Written out, as `entered` has it, because this is the hottest call of a producer.
            inside.add(thread)
            sending = self._sending
            if type(value) is not bytes or len(value) > sending.message_bytes_max:
                value = sending.checked_value(value)
            if key is None and headers is None and partition is None and priority == "normal":
                size = len(value) + OVERHEAD_BYTES
                with self._lock:
                    # What `_make_room` mostly finds, without its calls.
                    if sending.is_closed or sending.gathering.buffered_bytes + size > self._buffer_bytes:
                        self._make_room(size)
                    batch, index, is_new = sending.add_plain(value)
                    if is_new:
                        self._work.notify_all()
            else:
                message = sending.checked_rich(value, key, headers, priority)
                with self._lock:
                    self._make_room(message.size)
                    batch, index, is_new = sending.add_rich(message, partition)
                    if is_new:
                        self._work.notify_all()
            return None if self._is_silent else Sent(batch, index, self._news)
        finally:
            inside.discard(thread)
            if postponed:
                finish(thread)

    def _make_room(self, size: int) -> None:
        """Wait until the buffer takes so many bytes more."""
        sending = self._sending
        if sending.check_room(size):
            return
        self._work.notify_all()
        self._news.wait_for(lambda: sending.is_closed or sending.has_room(size))
        sending.check_open()

    # Out.

    @entered
    def flush(self, timeout: Period | None = None) -> None:
        """Return once everything sent so far is stored.

        Raises the first error of what could not be stored since the last flush, and Unavailable when that
        takes longer than `timeout` seconds.
        """
        wait_s = None if timeout is None else seconds_of("timeout", timeout, lowest=0)
        with self._lock:
            waiting = self._sending.unfinished()
            self._work.notify_all()
            is_done = self._news.wait_for(lambda: all(batch.is_done for batch in waiting), wait_s)
            if not is_done:
                left = sum(len(batch.values) for batch in waiting if not batch.is_done)
                raise Unavailable(f"{left} messages are still on their way after {wait_s:g} seconds")
            failure, count = self._sending.take_failure()
        if failure is not None:
            logger.warning("%d messages for %s were not stored: %s", count, self.topic, failure)
            raise failure

    def close(self, timeout: Period | None = None) -> None:
        """Send what is left and end. Raises as `flush`; nothing is dropped silently."""
        if is_inside():
            # Out of a signal handler that has interrupted another call of this thread.
            soon(lambda: self.close(timeout))
            return
        self._end()
        try:
            self.flush(timeout)
        finally:
            self._end()
            if timeout is None:
                self._thread.join()

    @entered
    def _end(self) -> None:
        with self._lock:
            self._sending.is_closed = True
            self._news.notify_all()
            self._work.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteProducer for {self.topic}, {self._sending.gathering.buffered_bytes} bytes buffered>"

    # The thread.

    def _work_off(self) -> None:
        sending = self._sending
        while True:
            with self._lock:
                batch, wait_s = sending.take_due()
                if batch is None:
                    if sending.is_closed:
                        return
                    self._work.wait(wait_s)
                    continue
            try:
                self._run(sending.deliver(batch))
            except Closing as error:
                sending.give_up(batch, error)
            with self._lock:
                self._news.notify_all()
