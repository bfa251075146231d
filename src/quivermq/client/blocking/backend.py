"""A broker as a backend: every call is a flow, which a thread of the caller runs."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from quivermq.client.blocking.pool import Pool
from quivermq.client.blocking.shell import Shell
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.core.address import Address, common_headers, default_ssl_context
from quivermq.client.core.call import Flow
from quivermq.client.core.logs import LogCalls
from quivermq.client.core.patience import PATIENT, patience_of
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.queue import QueueCalls
from quivermq.client.core.retry import Retry
from quivermq.client.core.topics import TopicCalls
from quivermq.client.producing.options import ProducerOptions
from quivermq.client.producing.producer import RemoteProducer
from quivermq.errors import OffsetOutOfRange, QuiverError
from quivermq.frame import Frame
from quivermq.log.flusher import Flusher
from quivermq.model.checks import Period
from quivermq.model.deliveries import Delivery
from quivermq.model.lanes import Priority
from quivermq.model.operations import ListTopics, Operation, QueueOperation, Tokens
from quivermq.model.settler import QueueSettler, SettleCall
from quivermq.settings import ClientSettings

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def _run(flow: Callable[Concatenate[QueueCalls, P], Flow[T]]) -> "Callable[Concatenate[HttpQueue, P], T]":
    """The flow of that name, run."""

    def run(self: "HttpQueue", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(flow(self.calls, *args, **kwargs))

    return run


def connect_http(
    url: str,
    key: str | None = None,
    timeout: Period | None = None,
    ssl_context: "SSLContext | None" = None,
    retries: int | None = None,
    backoff: Period | None = None,
    backoff_max: Period | None = None,
    settings: ClientSettings | None = None,
) -> "HttpBackend":
    """A broker, by its address. Takes what `quivermq.connect` takes."""
    address = Address.parse(url)
    timeout_s, retry = patience_of(settings, timeout, retries, backoff, backoff_max)
    if address.is_secure and ssl_context is None:
        ssl_context = default_ssl_context()
    pool = Pool(address, common_headers(address, key), timeout_s, ssl_context)
    return HttpBackend(str(address), Shell(pool), retry)


class HttpBackend:
    """A broker, and what all objects of one connection to it share: a `Backend`. Thread-safe."""

    directory: Path | None = None

    def __init__(
        self, name: str, shell: Shell, retry: Retry, publishing: type[Publishing] = Publishing
    ) -> None:
        self.name = name
        self.publishing = publishing
        self.shell = shell
        self.calls = TopicCalls(retry)
        self.logs = LogCalls(self.calls)
        self.clock = self.calls.clock
        self.scheduler = Flusher(self.clock)
        # The calls whose messages nobody has in hand yet, by the identity of their tokens.
        self._taking: dict[int, tuple[QueueCalls, Tokens]] = {}

    def queue(self, topic: str, group: str) -> "HttpQueue":
        return HttpQueue(self, topic, group)

    def perform(self, operation: Operation[T]) -> T:
        return self.shell.run(self.calls.perform(operation))

    def producer(self, topic: str, options: ProducerOptions) -> RemoteProducer:
        return RemoteProducer(topic, self.shell, options)

    def consumer(self, options: ConsumerOptions) -> RemoteConsumer:
        return RemoteConsumer([(self.shell, self.calls)], options)

    def frames(
        self, topic: str, partition: int, priority: Priority, start: int, end: int
    ) -> Iterator[Frame]:
        """Whole frames that hold these offsets, as they are stored. Raises OffsetOutOfRange."""
        while start < end:
            page = self.shell.run(self.logs.frames(topic, partition, priority, start, end - start))
            if page.next <= start:
                raise OffsetOutOfRange(start, start=page.start, end=page.end)
            for frame in page.frames:
                if frame.header.base_offset < end:
                    yield frame
            start = page.next

    def patient(self) -> "HttpBackend":
        """The same for long work: a broker that is away or full is waited for some minutes."""
        # One that cannot be reached at all is told of at once; patience is for one that was there.
        self.perform(ListTopics())
        return HttpBackend(self.name, self.shell, PATIENT, self.publishing)

    def take(self, calls: QueueCalls, tokens: Tokens, flow: Flow[T]) -> T:
        """Run a flow that takes messages. One that fails is over when they are released, or by `close`."""
        self._taking[id(tokens)] = calls, tokens
        try:
            found = self.shell.run(flow)
        except BaseException:
            if not tokens:
                # Nothing was asked for, and nobody will release it.
                self._taking.pop(id(tokens), None)
            raise
        self._taking.pop(id(tokens), None)
        return found

    def release_taken(self, calls: QueueCalls, tokens: Tokens, retries: int = 0) -> None:
        """Have the broker give back what it handed out with these tokens, or would.

        What strikes here, and is no answer of the broker, leaves it to `close`.
        """
        try:
            self.shell.run(calls.release_taken(tokens, retries))
        except QuiverError:
            self._taking.pop(id(tokens), None)
            raise
        self._taking.pop(id(tokens), None)

    def check_open(self) -> None:
        """Raise Closing once the connection was closed."""
        self.shell.check_open()

    def interrupt(self) -> None:
        """Let whatever waits for the broker end soon. A signal handler may call this at any moment."""
        self.shell.interrupt()

    def resume(self) -> None:
        """Let the calls be made that are left to make before everything ends."""
        self.shell.resume()

    def close(self) -> None:
        """End everything that runs, and give back what is on its way to whoever waits."""
        try:
            for calls, tokens in list(self._taking.values()):
                try:
                    self.release_taken(calls, tokens)
                except QuiverError as error:
                    logger.info("could not give back what was on its way: %s", error)
        finally:
            self.shell.close()
            self.scheduler.close()


class HttpQueue:
    """A queue of a broker: a `QueueBackend`. Thread-safe."""

    def __init__(
        self, backend: HttpBackend, topic: str, group: str, settle: SettleCall | None = None
    ) -> None:
        """With `settle`, deliveries are settled by that call instead of by this queue."""
        self._backend = backend
        self._settle_call = settle
        self._run = backend.shell.run
        self.calls = QueueCalls(backend.calls, topic, group, self._make_settler, backend.publishing)

    def _make_settler(self, topic: str, partition: int) -> QueueSettler:
        return QueueSettler(self._settle_call or self.settle, topic, partition, self.calls.group)

    put = _run(QueueCalls.put)
    put_many = _run(QueueCalls.put_many)
    put_frame = _run(QueueCalls.put_frame)
    settle = _run(QueueCalls.settle)
    read = _run(QueueCalls.read)

    def perform(self, operation: QueueOperation[T]) -> T:
        return self._run(self.calls.perform(operation))

    def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens,
        pop: bool = False,
    ) -> list[Delivery]:
        flow = self.calls.take(count, timeout, lease, tokens, pop)
        # What was popped is gone: there is nothing to give back.
        return self._run(flow) if pop else self._backend.take(self.calls, tokens, flow)

    def release_taken(self, tokens: Tokens, retries: int = 0) -> None:
        self._backend.release_taken(self.calls, tokens, retries)
