"""A broker as an asynchronous backend: every call is a flow, which a task of the caller runs."""

import asyncio
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from quivermq.client.asynchronous.consumer import AsyncConsumer
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.pool import AsyncPool
from quivermq.client.asynchronous.producer import AsyncProducer
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.core.call import Act, Call, Flow, Outcome, Step
from quivermq.client.core.queue import QueueCalls
from quivermq.client.core.retry import Retry
from quivermq.client.core.topics import TopicCalls
from quivermq.client.producing.options import ProducerOptions
from quivermq.model.checks import Period
from quivermq.model.operations import Operation, QueueOperation, Tokens
from quivermq.model.settler import QueueSettler

P = ParamSpec("P")
T = TypeVar("T")


def _run(
    flow: Callable[Concatenate[QueueCalls, P], Flow[T]],
) -> "Callable[Concatenate[AsyncHttpQueue, P], Coroutine[Any, Any, T]]":
    """The flow of that name, run."""

    async def run(self: "AsyncHttpQueue", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(flow(self._calls, *args, **kwargs))

    return run


class AsyncHttpBackend:
    """A broker, and what all objects of one connection to it share. It belongs to one event loop."""

    def __init__(self, name: str, pool: AsyncPool, retry: Retry) -> None:
        self.name = name
        self.calls = TopicCalls(retry)
        self.clock = self.calls.clock
        self._pool = pool
        self._closed = asyncio.Event()

    async def run(self, flow: Flow[T]) -> T:
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
            result: T = end.value
            return result

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

    def queue(self, topic: str, group: str) -> "AsyncHttpQueue":
        return AsyncHttpQueue(self, topic, group)

    async def perform(self, operation: Operation[T]) -> T:
        return await self.run(self.calls.perform(operation))

    async def producer(self, topic: str, options: ProducerOptions) -> AsyncProducer:
        return await AsyncProducer(topic, self.run, options).begin()

    def consumer(self, options: ConsumerOptions) -> AsyncConsumer:
        self.check_open()
        return AsyncConsumer(self.run, self.calls, options)

    def check_open(self) -> None:
        """Raise Closing once the connection was closed."""
        self._pool.check_open()

    async def close(self) -> None:
        """End everything that runs."""
        await self._pool.close()
        self._closed.set()


class AsyncHttpQueue:
    """A queue of a broker."""

    def __init__(self, backend: AsyncHttpBackend, topic: str, group: str) -> None:
        self._run = backend.run
        self._calls = QueueCalls(backend.calls, topic, group, self._make_settler)

    def _make_settler(self, topic: str, partition: int) -> QueueSettler:
        return QueueSettler(_settle_elsewhere, topic, partition, self._calls.group)

    put = _run(QueueCalls.put)
    put_many = _run(QueueCalls.put_many)
    put_frame = _run(QueueCalls.put_frame)
    release_taken = _run(QueueCalls.release_taken)
    settle = _run(QueueCalls.settle)
    read = _run(QueueCalls.read)

    async def perform(self, operation: QueueOperation[T]) -> T:
        return await self._run(self._calls.perform(operation))

    async def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens,
        pop: bool = False,
    ) -> list[AsyncDelivery]:
        found = await self._run(self._calls.take(count, timeout, lease, tokens, pop))
        return [AsyncDelivery(each, self.settle) for each in found]


def _settle_elsewhere(*_: object) -> NoReturn:
    raise AssertionError("an asynchronous delivery settles through its queue")
