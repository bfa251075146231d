"""A stream of an event loop, whose acks outlive whoever waits for them."""

import asyncio
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from support.manual_clock import ManualClock

from quivermq.aio.streaming import AsyncStream


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
        renewer: Any = SimpleNamespace()
        streams = WeakSet[AsyncStream]()
        stream = AsyncStream(queue, renewer, streams, ManualClock(), None, None, 4)
        messages: list[Any] = [SimpleNamespace(is_settled=False) for _ in range(2)]
        stream._window.came(messages, 2)
        batch = stream._window.begin()
        assert batch is not None
        batch.passed = 2
        acking = asyncio.create_task(stream.ack_passed())
        await queue.heard.wait()
        acking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acking
        queue.may_answer.set()
        # Whoever acknowledges next returns when that ack is through.
        await stream.ack_passed()
        assert queue.acked == messages

    asyncio.run(main())
