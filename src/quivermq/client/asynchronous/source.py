"""Where an asynchronous queue gets its answers: from a broker, or from the embedded queue in threads.

Both have the same names, so that everything above is written once.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, Protocol

from quivermq.client.asynchronous.pool import AsyncPool
from quivermq.client.core.call import Act, Call, Flow, Outcome, Step
from quivermq.client.core.place import Place
from quivermq.client.core.queue import QueueCalls, Tokens
from quivermq.client.core.topics import TopicCalls
from quivermq.clock import Clock
from quivermq.delivery.delivery import is_stop, release_quietly
from quivermq.engine import Engine, Queue
from quivermq.errors import QuiverError
from quivermq.model.checks import Period, seconds_of
from quivermq.model.deliveries import Delivery, InFlight

logger = logging.getLogger(__name__)

# Calls that wait for messages have threads of their own, so that a put never waits for them.
_WAITING_THREADS = 64
_THREADS = 16
# A cancelled call leaves its thread after this long.
_SLICE_S = 0.5


class QueueSource(Protocol):
    """The methods of one queue, by name."""

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any: ...

    async def lease_s(self, topic: str, lease: Period | None) -> float: ...

    async def in_flight(self, limit: int, after: InFlight | None) -> list[InFlight]: ...


class Source(Protocol):
    """A whole queue."""

    name: str
    clock: Clock

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any: ...

    def queue(self, topic: str, group: str) -> QueueSource: ...

    async def close(self) -> None: ...


class RemoteSource:
    """A broker."""

    def __init__(self, name: str, pool: AsyncPool, calls: TopicCalls) -> None:
        self.name = name
        self.clock = calls.clock
        self._pool = pool
        self.calls = calls
        self._closed = asyncio.Event()
        self._finishing: set[asyncio.Task[None]] = set()

    async def run(self, flow: Flow[Any]) -> Any:
        """The result of a flow. Raises what it raises, and Closing."""
        self._pool.check_open()
        try:
            step = next(flow)
            while True:
                try:
                    outcome = await self._outcome(step)
                except BaseException as error:
                    # What a step raises, the flow may have something to do about.
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as end:
            return end.value

    async def _outcome(self, step: Step) -> Outcome:
        if isinstance(step, Call):
            return await self._pool.exchange(step)
        if isinstance(step, Act):
            result = step.call()
            if isawaitable(result):
                await result
        else:
            await self._pause(step.seconds)
        return None

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
        self._pool.check_open()

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self.run(getattr(self.calls, name)(*args, **kwargs))

    def queue(self, topic: str, group: str) -> "RemoteQueueSource":
        self._pool.check_open()
        return RemoteQueueSource(self, QueueCalls(self.calls, topic, group, Place))

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it also when whoever waits for it is cancelled once more; closing waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        await asyncio.shield(task)

    def check_open(self) -> None:
        """Raise Closing once the connection was closed."""
        self._pool.check_open()

    async def close(self) -> None:
        if self._finishing:
            await asyncio.wait(list(self._finishing))
        await self._pool.close()
        self._closed.set()


class RemoteQueueSource:
    """A queue of a broker."""

    def __init__(self, source: RemoteSource, calls: QueueCalls) -> None:
        self._source = source
        self._calls = calls

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        method = getattr(self._calls, name)
        if name not in ("get", "get_many"):
            return await self._source.run(method(*args, **kwargs))
        tokens: Tokens = []
        try:
            return await self._source.run(method(*args, **kwargs, tokens=tokens))
        except BaseException as error:
            # Nobody knows what the broker hands out to a task that was cancelled: it gives that back.
            if tokens and not isinstance(error, GeneratorExit):
                await self._source.finish(self._give_back(tokens, retries=1 if is_stop(error) else 0))
            raise

    async def _give_back(self, tokens: Tokens, retries: int) -> None:
        try:
            await self._source.run(self._calls.release_taken(tokens, retries))
        except QuiverError as error:
            # The leases end by themselves.
            logger.info("could not give back what was on its way: %s", error)

    async def lease_s(self, topic: str, lease: Period | None) -> float:
        found: float = await self._source.run(self._calls.lease_s(topic, lease))
        return found

    async def in_flight(self, limit: int, after: InFlight | None) -> list[InFlight]:
        found: list[InFlight] = await self._source.run(self._calls.deliveries_in_flight(limit, after))
        return found


class EmbeddedSource:
    """An engine of this process, called in threads."""

    def __init__(self, engine: Engine) -> None:
        self.name = str(engine.path)
        self.clock: Clock = engine.clock
        self.engine = engine
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="quiver-aio")
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="quiver-aio-wait")

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self.run(lambda: getattr(self.engine, name)(*args, **kwargs))

    async def run(self, act: Callable[[], Any]) -> Any:
        self.engine.check_open()
        return await asyncio.wrap_future(self._threads.submit(act))

    async def take(
        self, act: Callable[[], Any], give_back: Callable[[Any], object], *, may_wait: bool
    ) -> Any:
        """As `run`, for what takes messages. What comes after it was cancelled is given back."""
        self.engine.check_open()
        future = (self._waiting if may_wait else self._threads).submit(act)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._threads.submit(_given_back, done, give_back))
            raise

    def queue(self, topic: str, group: str) -> "EmbeddedQueueSource":
        return EmbeddedQueueSource(self, self.engine.queue(topic, group))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self.engine.close()
        self._waiting.shutdown()
        self._threads.shutdown()


def _given_back(done: "Future[Any]", give_back: Callable[[Any], object]) -> None:
    if not done.cancelled() and done.exception() is None and done.result():
        give_back(done.result())


class EmbeddedQueueSource:
    """A queue of an engine of this process."""

    def __init__(self, source: EmbeddedSource, queue: Queue) -> None:
        self._source = source
        self._queue = queue

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        method = getattr(self._queue, name)
        if name in ("get", "get_many", "pop"):
            return await self._wait(method, name, *args, **kwargs)
        return await self._source.run(lambda: method(*args, **kwargs))

    async def lease_s(self, topic: str, lease: Period | None) -> float:
        if lease is not None:
            return seconds_of("lease", lease, lowest=0.001)
        info = await self._source.call("topic", topic)
        seconds: float = info.settings.lease_ms / 1000
        return seconds

    async def in_flight(self, limit: int, after: InFlight | None) -> list[InFlight]:
        found: list[InFlight] = await self._source.run(lambda: self._queue.deliveries(limit, after))
        return found

    async def _wait(self, method: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        """Wait in slices, because nothing can end a thread that waits."""
        timeout = kwargs.pop("timeout", 0)
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        give_back = self._no_return if name == "pop" else self._give_back
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            # It does not wait, or is refused by the queue itself.
            take = partial(method, *args, timeout=timeout, **kwargs)
            return await self._source.take(take, give_back, may_wait=False)
        clock = self._source.clock
        end = None if timeout is None else clock.monotonic() + timeout
        while True:
            wait_s = _SLICE_S if end is None else min(_SLICE_S, max(0.0, end - clock.monotonic()))
            take = partial(method, *args, timeout=wait_s, **kwargs)
            found = await self._source.take(take, give_back, may_wait=True)
            if found or (end is not None and clock.monotonic() >= end):
                return found

    def _no_return(self, _: Any) -> None:
        """A message that was popped is gone with whoever asked for it."""

    def _give_back(self, found: Delivery | list[Delivery]) -> None:
        release_quietly(self._queue.release, found if isinstance(found, list) else [found])
