"""The same queue for asyncio: `await aio.connect(url)` or `await aio.open(path)`, and methods to await.

The names are those of `quivermq`; `process` is for `async with`, `stream` for `async for`.
"""

from quivermq.aio.connection import AsyncConnection
from quivermq.aio.opening import connect
from quivermq.aio.opening import open_directory as open  # noqa: A004 - As quivermq.open.
from quivermq.aio.queue import AsyncQueue
from quivermq.client.asynchronous.consumer import AsyncConsumer
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.producer import AsyncProducer, AsyncSent

__all__ = [
    "AsyncConnection",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncSent",
    "connect",
    "open",
]
