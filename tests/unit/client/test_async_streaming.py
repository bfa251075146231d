"""A stream of an event loop, whose acks outlive whoever waits for them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from quivermq.client.asynchronous.streaming import AsyncStream


class SlowQueue:
    """Takes acks, and answers when it is told to."""

    topic = "orders"

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.acked: list[Any] = []

    async def ack(self, messages: list[Any]) -> None:
        self.heard.set()
        await self.may_answer.wait()
        self.acked += messages


def test_an_ack_goes_on_when_nobody_waits_for_it_any_more() -> None:
    async def main() -> None:
        queue: Any = SlowQueue()
        connection: Any = SimpleNamespace()
        stream = AsyncStream(connection, queue, None, None, 4)
        messages: list[Any] = [SimpleNamespace(is_settled=False) for _ in range(2)]
        stream._take_in(messages, 2)
        batch = stream._window.begin()
        assert batch is not None
        batch.passed = 2
        telling = asyncio.create_task(stream.tell())
        await queue.heard.wait()
        telling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await telling
        queue.may_answer.set()
        # Whoever tells next returns when that ack is through.
        await stream.tell()
        assert queue.acked == messages

    asyncio.run(main())
