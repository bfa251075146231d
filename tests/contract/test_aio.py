"""What only asyncio has: calls that are cancelled, and many that run at the same time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.broker import serving
from support.manual_clock import ManualClock

import quivermq
from quivermq import aio

Body = Callable[[aio.AsyncConnection], Awaitable[None]]


@pytest.fixture(params=["open", "connect"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Body], None]:
    """Runs a coroutine with a queue, opened in both ways."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[aio.AsyncConnection]:
        if request.param == "open":
            async with await aio.open(tmp_path / "data") as mq:
                yield mq
            return
        with serving(tmp_path / "data") as broker:
            async with await aio.connect(broker.url) as mq:
                yield mq

    async def main(body: Body) -> None:
        async with opened() as mq:
            await body(mq)

    return lambda body: asyncio.run(main(body))


def test_a_cancelled_get_keeps_no_message(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        orders = mq.queue("orders")
        await orders.put(b"first")
        assert await orders.pop() is not None
        waiting = asyncio.create_task(orders.get(timeout=None, lease=0.2))
        # Far enough to be waiting, wherever that is.
        await orders.stats()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await orders.put(b"second")
        message = await orders.get(timeout=60)
        assert message is not None
        assert message.value == b"second"

    run(body)


def test_a_coroutine_that_nobody_awaits_to_its_end_can_be_closed(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        orders = mq.queue("orders")
        for call in (orders.get(timeout=0.01, lease=0.2), orders.get_many(5, timeout=0.01, lease=0.2)):
            # There is a connection by now, so that it asks as far as it goes without being awaited.
            await orders.stats()
            call.send(None)
            call.close()
        await orders.put(b"x")
        message = await orders.get(timeout=60)
        assert message is not None
        assert message.value == b"x"

    run(body)


def test_many_calls_run_at_the_same_time(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        orders = mq.queue("orders")
        waiting = [asyncio.create_task(orders.get(timeout=60)) for _ in range(20)]
        puts = await asyncio.gather(*[orders.put(b"%d" % number) for number in range(20)])
        assert sorted(put.offset or 0 for put in puts) == list(range(20))
        messages = [message for message in await asyncio.gather(*waiting) if message is not None]
        assert sorted(int(message.value) for message in messages) == list(range(20))
        await asyncio.gather(*[message.ack() for message in messages])
        assert (await orders.stats()).backlog == 0

    run(body)


def test_the_close_wakes_every_task(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        orders = mq.queue("orders")
        waiting = [asyncio.create_task(orders.get(timeout=None)) for _ in range(3)]
        await orders.put(b"x")
        done, waiting_still = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        await mq.close()
        for task in waiting_still:
            with pytest.raises(quivermq.Closing):
                await task

    run(body)


def test_a_test_may_move_the_clock_of_an_embedded_queue(tmp_path: Path) -> None:
    clock = ManualClock()

    async def late() -> list[bytes | None]:
        async with await aio.open(tmp_path / "data", clock=clock) as mq:
            orders = mq.queue("orders")
            await orders.put(b"x", delay=60)
            early = await orders.get()
            clock.advance(61)
            due = await orders.get()
            return [None if found is None else found.value for found in (early, due)]

    assert asyncio.run(late()) == [None, b"x"]
