"""The engine of this process as an asynchronous backend: every operation runs in a thread."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.engine import Engine, EngineQueue
from quivermq.errors import QuiverError
from quivermq.model.checks import Period, seconds_of
from quivermq.model.deliveries import Delivery
from quivermq.model.operations import Tokens
from quivermq.queue.finishing import log_unreleased

# Calls that wait for messages have threads of their own, so that a put never waits for them.
_WAITING_THREADS = 64
_THREADS = 16
# A cancelled call leaves its thread after this long.
_SLICE_S = 0.5

P = ParamSpec("P")
T = TypeVar("T")


def _run(
    method: Callable[Concatenate[Engine, P], T],
) -> "Callable[Concatenate[ThreadedBackend, P], Coroutine[Any, Any, T]]":
    """An operation of the whole queue: the method of that name, run in a thread."""

    async def run(self: "ThreadedBackend", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(partial(method, self.engine, *args, **kwargs))

    return run


def _run_one(
    method: Callable[Concatenate[EngineQueue, P], T],
) -> "Callable[Concatenate[ThreadedQueue, P], Coroutine[Any, Any, T]]":
    """The same for an operation of one queue."""

    async def run(self: "ThreadedQueue", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._backend.run(partial(method, self._queue, *args, **kwargs))

    return run


class ThreadedBackend:
    """An engine, and the threads in which it is called."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.clock = engine.clock
        self.engine = engine
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="quiver-aio")
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="quiver-aio-wait")

    async def run(self, act: Callable[[], T]) -> T:
        """What it returns, in a thread."""
        self.engine.check_open()
        return await asyncio.wrap_future(self._threads.submit(act))

    async def run_taking(
        self, take: Callable[[], T], give_back: Callable[[], None], *, may_wait: bool
    ) -> T:
        """As `run`, for what takes messages: what comes after it was cancelled or closed is given back."""
        self.engine.check_open()
        future = (self._waiting if may_wait else self._threads).submit(take)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except (asyncio.CancelledError, GeneratorExit):

            def given_back(_: "Future[T]") -> None:
                self._threads.submit(give_back)

            future.add_done_callback(given_back)
            raise

    def queue(self, topic: str, group: str) -> "ThreadedQueue":
        return ThreadedQueue(self, self.engine.queue(topic, group))

    create_topic = _run(Engine.create_topic)
    alter_topic = _run(Engine.alter_topic)
    delete_topic = _run(Engine.delete_topic)
    topics = _run(Engine.topics)
    topic = _run(Engine.topic)
    groups = _run(Engine.groups)
    delete_group = _run(Engine.delete_group)
    begin_producer = _run(Engine.begin_producer)
    adopt = _run(Engine.adopt)
    adopt_ids = _run(Engine.adopt_ids)
    adopt_dead_letters = _run(Engine.adopt_dead_letters)
    replace_segment = _run(Engine.replace_segment)
    sync = _run(Engine.sync)
    stats = _run(Engine.stats)
    compact = _run(Engine.compact)
    use_archive = _run(Engine.use_archive)
    verify = _run(Engine.verify)

    async def producer(self, topic: str, options: object) -> NoReturn:
        self.engine.producer(topic, options)

    def consumer(self, options: object) -> NoReturn:
        self.engine.consumer(options)

    def check_open(self) -> None:
        """Raise Closing once the queue was closed."""
        self.engine.check_open()

    async def close(self) -> None:
        """Close the engine, and end the threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self.engine.close()
        self._waiting.shutdown()
        self._threads.shutdown()


class ThreadedQueue:
    """A queue of an engine."""

    def __init__(self, backend: ThreadedBackend, queue: EngineQueue) -> None:
        self._backend = backend
        self._queue = queue

    put = _run_one(EngineQueue.put)
    put_many = _run_one(EngineQueue.put_many)
    put_frame = _run_one(EngineQueue.put_frame)
    sync = _run_one(EngineQueue.sync)
    settle = _run_one(EngineQueue.settle)
    lease_s = _run_one(EngineQueue.lease_s)
    partitions = _run_one(EngineQueue.partitions)
    seek = _run_one(EngineQueue.seek)
    read = _run_one(EngineQueue.read)
    peek = _run_one(EngineQueue.peek)
    stats = _run_one(EngineQueue.stats)
    deliveries = _run_one(EngineQueue.deliveries)
    dead_letters = _run_one(EngineQueue.dead_letters)
    dead_letter_reasons = _run_one(EngineQueue.dead_letter_reasons)
    redrive = _run_one(EngineQueue.redrive)
    discard = _run_one(EngineQueue.discard)
    scheduled = _run_one(EngineQueue.scheduled)
    timeline = _run_one(EngineQueue.timeline)
    cancel = _run_one(EngineQueue.cancel)
    deliver_now = _run_one(EngineQueue.deliver_now)
    purge = _run_one(EngineQueue.purge)
    pause = _run_one(EngineQueue.pause)
    retry_now = _run_one(EngineQueue.retry_now)

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

    async def release_taken(self, tokens: Tokens, retries: int = 0) -> None:
        await self._backend.run(partial(self._queue.release_taken, tokens, retries))
