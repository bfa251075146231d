"""What has to be done at the end: of a call that failed, of a loop that was left, of everything.

For tasks; `quivermq.queue.finishing` has the same for threads.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ParamSpec
from weakref import WeakKeyDictionary

from quivermq.queue.finishing import log_unreleased

if TYPE_CHECKING:
    from quivermq.aio.backend import AsyncBackend
    from quivermq.aio.renewing import AsyncRenewer
    from quivermq.aio.streaming import AsyncStream
    from quivermq.client.asynchronous.consumer import AsyncConsumer
    from quivermq.client.asynchronous.producer import AsyncProducer

__all__ = ["close_all", "finish", "log_unreleased"]

P = ParamSpec("P")

# What is being finished in each event loop: closing waits for it.
_finishing: "WeakKeyDictionary[asyncio.AbstractEventLoop, set[asyncio.Task[None]]]" = WeakKeyDictionary()


async def finish(act: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do it also when whoever waits for it is cancelled, even a second time."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        # A generator that is closed when there is no event loop any more: nothing can be sent.
        return
    task = loop.create_task(act(*args, **kwargs))
    tasks = _finishing.setdefault(loop, set())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    await asyncio.shield(task)


async def _finished() -> None:
    if tasks := _finishing.get(asyncio.get_running_loop()):
        await asyncio.wait(list(tasks))


async def close_all(
    backend: "AsyncBackend",
    renewer: "AsyncRenewer",
    streams: "Iterable[AsyncStream]",
    producers: "Iterable[AsyncProducer]",
    consumers: "Iterable[AsyncConsumer]",
    is_finished: bool,
) -> None:
    """Close everything that a connection has made, and its backend."""
    async with AsyncExitStack() as stack:
        # From the last to the first, each of them whatever the others raise.
        stack.push_async_callback(backend.close)
        stack.push_async_callback(renewer.close)
        stack.push_async_callback(_finished)
        stack.push_async_callback(renewer.give_back)
        for stream in list(streams):
            stack.push_async_callback(stream.close)
        for producer in list(producers):
            stack.push_async_callback(producer.close)
        for consumer in list(consumers):
            stack.push_async_callback(consumer.end, is_finished=is_finished)
