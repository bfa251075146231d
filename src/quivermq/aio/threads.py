"""Any backend, such as the engine, as an asynchronous one: every call runs in a thread."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from quivermq.backend import Backend, QueueBackend
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.errors import QuiverError
from quivermq.model.checks import Period, needs_broker, seconds_of
from quivermq.model.deliveries import Delivery
from quivermq.model.operations import Operation, QueueOperation, Tokens
from quivermq.queue.finishing import log_unreleased

# Calls that wait for messages have threads of their own, so that a put never waits for them.
_WAITING_THREADS = 64
_THREADS = 16
# A cancelled call leaves its thread after this long.
_SLICE_S = 0.5

P = ParamSpec("P")
T = TypeVar("T")


def _run(
    operation: Callable[Concatenate[QueueBackend, P], T],
) -> "Callable[Concatenate[ThreadedQueue, P], Coroutine[Any, Any, T]]":
    """The method of that name, run in a thread."""
    name = operation.__name__

    async def run(self: "ThreadedQueue", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._backend.run(partial(getattr(self._queue, name), *args, **kwargs))

    return run


class ThreadedBackend:
    """A backend that blocks, and the threads in which it is called."""

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self.clock = backend.clock
        self.backend = backend
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="quiver-aio")
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="quiver-aio-wait")

    async def run(self, act: Callable[[], T]) -> T:
        """What it returns, in a thread."""
        self.backend.check_open()
        return await asyncio.wrap_future(self._threads.submit(act))

    async def run_taking(
        self, take: Callable[[], T], give_back: Callable[[], None], *, may_wait: bool
    ) -> T:
        """As `run`, for what takes messages: what comes after it was cancelled or closed is given back."""
        self.backend.check_open()
        future = (self._waiting if may_wait else self._threads).submit(take)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except (asyncio.CancelledError, GeneratorExit):

            def given_back(_: "Future[T]") -> None:
                self._threads.submit(give_back)

            future.add_done_callback(given_back)
            raise

    def queue(self, topic: str, group: str) -> "ThreadedQueue":
        return ThreadedQueue(self, self.backend.queue(topic, group))

    async def perform(self, operation: Operation[T]) -> T:
        return await self.run(partial(self.backend.perform, operation))

    async def producer(self, topic: str, options: object) -> NoReturn:  # noqa: ARG002 - Whatever these are.
        raise needs_broker("a producer")

    def consumer(self, options: object) -> NoReturn:  # noqa: ARG002 - Whatever these are.
        raise needs_broker("a consumer")

    def check_open(self) -> None:
        """Raise Closing once the queue was closed."""
        self.backend.check_open()

    async def close(self) -> None:
        """Close the backend, and end the threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self.backend.close()
        self._waiting.shutdown()
        self._threads.shutdown()


class ThreadedQueue:
    """A queue of such a backend."""

    def __init__(self, backend: ThreadedBackend, queue: QueueBackend) -> None:
        self._backend = backend
        self._queue = queue

    put = _run(QueueBackend.put)
    put_many = _run(QueueBackend.put_many)
    put_frame = _run(QueueBackend.put_frame)
    settle = _run(QueueBackend.settle)
    release_taken = _run(QueueBackend.release_taken)
    read = _run(QueueBackend.read)

    async def perform(self, operation: QueueOperation[T]) -> T:
        return await self._backend.run(partial(self._queue.perform, operation))

    async def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens,
        pop: bool = False,
    ) -> list[AsyncDelivery]:
        """Wait in slices, because nothing can end a thread that waits."""
        if timeout == 0:
            return await self._take(count, 0, lease, tokens, pop)
        clock = self._backend.clock
        end = None if timeout is None else clock.monotonic() + seconds_of("timeout", timeout, lowest=0)
        while True:
            wait_s = _SLICE_S if end is None else min(_SLICE_S, max(0.0, end - clock.monotonic()))
            found = await self._take(count, wait_s, lease, tokens, pop)
            if found or (end is not None and clock.monotonic() >= end):
                return found

    async def _take(
        self, count: int, wait_s: Period, lease: Period | None, tokens: Tokens, pop: bool
    ) -> list[AsyncDelivery]:
        # Of this slice: what the slices before it asked for has come to nothing.
        tokens.clear()
        take = partial(self._queue.take, count, wait_s, lease, tokens, pop)
        found: list[Delivery] = await self._backend.run_taking(
            take, partial(self._release_quietly, tokens), may_wait=wait_s != 0
        )
        return [AsyncDelivery(each, self.settle) for each in found]

    def _release_quietly(self, tokens: Tokens) -> None:
        try:
            self._queue.release_taken(tokens)
        except QuiverError as error:
            log_unreleased(error)
