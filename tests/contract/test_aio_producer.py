"""The producer for asyncio, which shares all but its waits with the one for threads."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving

import quivermq
from quivermq import aio

Body = Callable[[aio.AsyncConnection], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Body], None]:
    """Runs a coroutine that is connected to a broker."""

    async def main(body: Body) -> None:
        with serving(tmp_path / "data") as broker:
            async with await aio.connect(broker.url) as mq:
                await body(mq)

    return lambda body: asyncio.run(main(body))


async def stored(mq: aio.AsyncConnection, partition: int = 0) -> list[bytes]:
    return [message.value for message in await mq.queue("orders").read(partition, limit=10_000)]


def test_what_is_sent_is_stored_in_order(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        values = [b"%d" % number for number in range(5000)]
        async with await mq.producer("orders", batch_messages=100) as producer:
            sent = [await producer.send(value) for value in values]
        assert await stored(mq) == values
        last = sent[-1]
        assert last is not None
        assert last.done()
        assert await last.result() == quivermq.Put("orders", 0, "normal", 4999)
        assert await last.exception() is None

    run(body)


def test_a_message_goes_after_a_moment_without_a_flush(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        producer = await mq.producer("orders", linger_ms=1)
        sent = await producer.send(b"x", key=b"k", headers={"a": b"1"}, priority="high")
        assert sent is not None
        assert (await sent.result(60)).priority == "high"
        (message,) = await mq.queue("orders").read(priority="high")
        assert (message.key, message.headers) == (b"k", {"a": b"1"})

    run(body)


def test_closing_the_connection_loses_nothing(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        producer = await mq.producer("orders", linger_ms=60_000)
        sent = [await producer.send(b"%d" % number) for number in range(10)]
        await mq.close()
        offsets = [(await each.result()).offset for each in sent if each is not None]
        assert offsets == list(range(10))
        with pytest.raises(quivermq.Closing):
            await producer.send(b"late")

    run(body)


def test_a_full_buffer_raises_or_waits(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        async with await mq.producer("orders", buffer_bytes=1000, linger_ms=60_000) as producer:
            for _ in range(50):
                await producer.send(b"x" * 300)
        assert len(await stored(mq)) == 50
        rude = await mq.producer("orders", buffer_bytes=1000, linger_ms=60_000, when_full="raise")
        await rude.send(b"x" * 900)
        with pytest.raises(quivermq.Overloaded):
            await rude.send(b"x" * 900)
        await rude.flush()
        await rude.send(b"x" * 900)

    run(body)


def test_a_failure_is_told_to_all_who_ask(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        await mq.create_topic("orders", backlog_messages_max=1)
        await mq.queue("orders").put(b"in the way")
        producer = await mq.producer("orders", retries=0)
        sent = await producer.send(b"x")
        assert sent is not None
        with pytest.raises(quivermq.Overloaded):
            await producer.flush()
        with pytest.raises(quivermq.Overloaded):
            await sent.result()
        await mq.alter_topic("orders", backlog_messages_max=None)
        await producer.send(b"y")
        await producer.flush()
        assert await stored(mq) == [b"in the way", b"y"]

    run(body)


def test_a_flush_waits_no_longer_than_it_says(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        await mq.create_topic("orders", backlog_messages_max=1)
        await mq.queue("orders").put(b"in the way")
        producer = await mq.producer("orders")
        sent = await producer.send(b"x")
        assert sent is not None
        with pytest.raises(quivermq.Unavailable, match="1 messages"):
            await producer.flush(0.01)
        with pytest.raises(quivermq.Unavailable, match="on its way"):
            await sent.result(0.01)
        await mq.alter_topic("orders", backlog_messages_max=None)

    run(body)


def test_tasks_share_a_producer(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        async with await mq.producer("orders", batch_messages=50) as producer:

            async def send_all(name: int) -> None:
                for number in range(200):
                    await producer.send(b"%d %d" % (name, number))
                    await asyncio.sleep(0)

            await asyncio.gather(*map(send_all, range(4)))
        values = await stored(mq)
        for name in range(4):
            own = [value for value in values if value.startswith(b"%d " % name)]
            assert own == [b"%d %d" % (name, number) for number in range(200)]

    run(body)


def test_a_bad_message_and_a_bad_option_are_refused(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection) -> None:
        async with await mq.producer("orders") as producer:
            wrong: list[dict[str, Any]] = [{"partition": 7}, {"priority": "urgent"}, {"key": "text"}]
            for options in wrong:
                with pytest.raises(quivermq.InvalidRequest):
                    await producer.send(b"x", **options)
            with pytest.raises(quivermq.InvalidRequest):
                await producer.send("text")  # type: ignore[arg-type]
        with pytest.raises(quivermq.InvalidRequest):
            await mq.producer("orders", linger_ms=-1)
        assert await mq.topics() == []

    run(body)


def test_an_embedded_queue_has_neither_producer_nor_consumer(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "data") as mq:
            with pytest.raises(quivermq.InvalidRequest, match=r"aio\.connect"):
                await mq.producer("orders")
            with pytest.raises(quivermq.InvalidRequest, match=r"aio\.connect"):
                mq.consumer("orders", "g")

    asyncio.run(main())
