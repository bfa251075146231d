"""The consumer for asyncio, which shares all but its waits with the one for threads."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving

import quivermq
from quivermq import aio
from quivermq.client.blocking.backend import HttpBackend
from quivermq.errors import Fenced

Body = Callable[[aio.AsyncConnection, str], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Body], None]:
    """Runs a coroutine with a connection to a broker, and its URL."""

    async def main(body: Body) -> None:
        with serving(tmp_path / "data") as broker:
            async with await aio.connect(broker.url) as mq:
                await mq.create_topic("orders", partitions=4)
                await body(mq, broker.url)

    return lambda body: asyncio.run(main(body))


async def fill(mq: aio.AsyncConnection, count: int = 40, start: int = 0) -> None:
    for partition in range(4):
        numbers = range(start + partition, start + count, 4)
        messages = [quivermq.Message(b"%d" % number, partition=partition) for number in numbers]
        await mq.queue("orders").put_many(messages)


def consumer_of(mq: aio.AsyncConnection, **options: Any) -> aio.AsyncConsumer:
    return mq.consumer("orders", "billing", **{"session_timeout_ms": 1000, **options})


async def read(consumer: aio.AsyncConsumer, count: int) -> list[int]:
    values: list[int] = []
    while len(values) < count:
        values += [int(message.value) for message in await consumer.poll(0.1)]
    return values


def test_everything_is_read_in_order_and_not_again(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, _: str) -> None:
        await fill(mq)
        async with consumer_of(mq) as consumer:
            values = await read(consumer, 40)
            assert sorted(values) == list(range(40))
            for partition in range(4):
                assert [v for v in values if v % 4 == partition] == list(range(partition, 40, 4))
            assert [each.partition for each in consumer.assignment] == [0, 1, 2, 3]
            assert set((await consumer.lag()).values()) == {0}
        await fill(mq, 4, start=100)
        async with consumer_of(mq) as consumer:
            assert sorted(await read(consumer, 4)) == [100, 101, 102, 103]

    run(body)


def test_messages_are_iterated_over(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, _: str) -> None:
        await fill(mq, 8)
        seen = []
        async with consumer_of(mq) as consumer, aclosing(aiter(consumer)) as messages:
            async for message in messages:
                seen.append(int(message.value))
                if len(seen) == 8:
                    break
        assert sorted(seen) == list(range(8))

    run(body)


def test_a_message_is_returned_as_soon_as_it_comes(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, _: str) -> None:
        async with consumer_of(mq) as consumer:
            assert await consumer.poll(0) == []
            waiting = asyncio.create_task(consumer.poll(60))
            await mq.queue("orders").put(b"new", key=b"k")
            assert [message.value for message in await waiting] == [b"new"]

    run(body)


def test_members_share_partitions_and_callbacks_may_be_awaited(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, url: str) -> None:
        assigned: list[Any] = []
        revoked: list[Any] = []

        async def on_assigned(partitions: list[Any]) -> None:
            await asyncio.sleep(0)
            assigned.extend(partitions)

        async with await aio.connect(url) as other:
            first = consumer_of(mq, on_assigned=on_assigned, on_revoked=revoked.extend)
            await fill(mq)
            seen = await read(first, 40)
            assert len(assigned) == 4
            second = consumer_of(other)
            while len(second.assignment) < 2 or len(first.assignment) != 2:
                seen += [int(m.value) for m in await first.poll(0.05)]
                seen += [int(m.value) for m in await second.poll(0.05)]
            assert set(revoked) == set(second.assignment)
            await fill(mq, 40, start=40)
            while len(set(seen)) < 80:
                seen += [int(m.value) for m in await first.poll(0.05)]
                seen += [int(m.value) for m in await second.poll(0.05)]
            assert sorted(seen) == list(range(80))
            await second.close()
            while len(first.assignment) < 4:
                assert await first.poll(0.05) == []
            await first.close()
        assert (await mq.queue("orders", "billing").stats()).pending == 0

    run(body)


def test_what_a_callback_raises_is_raised_and_nothing_is_missed(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, _: str) -> None:
        await fill(mq, 4)
        calls: list[Any] = []

        async def on_assigned(partitions: list[Any]) -> None:
            calls.append(partitions)
            raise ZeroDivisionError

        async with consumer_of(mq, on_assigned=on_assigned) as consumer:
            with pytest.raises(ZeroDivisionError):
                await consumer.poll(60)
            assert sorted(await read(consumer, 4)) == [0, 1, 2, 3]
            assert len(calls) == 1

    run(body)


def test_commits_and_seeks_are_as_told(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, _: str) -> None:
        await fill(mq)
        async with consumer_of(mq, auto_commit_ms=None) as consumer:
            await read(consumer, 40)
            assert consumer.position("orders", 2) == 10
            consumer.seek("orders", 2, 7)
            assert [message.offset for message in await consumer.poll(60)] == [7, 8, 9]
        async with consumer_of(mq, auto_commit_ms=None) as consumer:
            await read(consumer, 40)
            await consumer.commit()
        assert (await mq.queue("orders", "billing").stats()).pending == 0

    run(body)


def test_a_member_that_was_thrown_out_joins_again(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, url: str) -> None:
        await fill(mq)
        async with consumer_of(mq) as consumer:
            await read(consumer, 40)
            member = consumer._membership.member
            assert member is not None
            with quivermq.connect(url) as other:
                leave = consumer._membership._calls.leave(member[0])
                assert isinstance(other.backend, HttpBackend)
                await asyncio.to_thread(other.backend.shell.run, leave)
            with pytest.raises(Fenced):
                await consumer.commit()
            assert len(await read(consumer, 40)) == 40
            await consumer.commit()

    run(body)


def test_closing_the_connection_closes_its_consumers(run: Callable[[Body], None]) -> None:
    async def body(mq: aio.AsyncConnection, _: str) -> None:
        consumer = consumer_of(mq)
        await consumer.poll(0)
        await mq.close()
        with pytest.raises(quivermq.Closing):
            await consumer.poll(0)
        assert not consumer._tasks
        with pytest.raises(quivermq.Closing):
            consumer_of(mq)

    run(body)


def test_what_a_block_of_the_connection_was_given_last_before_it_raised_comes_again(
    run: Callable[[Body], None],
) -> None:
    async def handle_one(url: str) -> None:
        async with await aio.connect(url) as other, aclosing(aiter(consumer_of(other))) as messages:
            async for message in messages:
                raise ValueError(message.value)

    async def body(mq: aio.AsyncConnection, url: str) -> None:
        await mq.queue("orders").put(b"0")
        with pytest.raises(ValueError, match="0"):
            await handle_one(url)
        async with consumer_of(mq) as consumer:
            assert await read(consumer, 1) == [0]

    run(body)
