"""The same queue for asyncio: `await aio.connect(url)` or `await aio.open(path)`, and methods to await.

The names are those of `quivermq`; `process` is for `async with`, `stream` for `async for`.
"""

from quivermq.client.asynchronous.connection import AsyncConnection
from quivermq.client.asynchronous.connection import connect_async as connect
from quivermq.client.asynchronous.connection import open_async as open  # noqa: A004 - As quivermq.open.
from quivermq.client.asynchronous.consumer import AsyncConsumer
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.producer import AsyncProducer, AsyncSent
from quivermq.client.asynchronous.queue import AsyncQueue

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
