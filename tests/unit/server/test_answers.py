"""Costly answers, made once for all who ask the same."""

import asyncio
import gc
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from support.site import Site

from quivermq.server.broker import Broker
from quivermq.server.figures import Answers


def test_one_answer_is_made_at_a_time_for_all_who_ask_the_same() -> None:
    made: list[int] = []
    go = threading.Semaphore(0)

    def make() -> bytes:
        made.append(len(made))
        go.acquire()
        return b"%d" % made[-1]

    async def ask(answers: Answers) -> list[bytes]:
        first = asyncio.create_task(answers.answer("metrics", make))
        while not made:
            await asyncio.sleep(0)
        # These have to see what was answered after the first one began, so they share the next.
        later = [asyncio.create_task(answers.answer("metrics", make)) for _ in range(5)]
        await asyncio.sleep(0)
        later[0].cancel()
        other = await answers.answer("groups", lambda: b"not kept waiting")
        assert (made, other) == ([0], b"not kept waiting")
        go.release(2)
        told = await asyncio.gather(first, *later[1:])
        assert (answers._next, answers._running) == ({}, {})
        return told

    with Site([]) as site:
        assert asyncio.run(ask(Answers(site.broker))) == [b"0", b"1", b"1", b"1", b"1"]


def test_a_failure_is_told_to_all_and_not_kept() -> None:
    def fail() -> bytes:
        raise ValueError("no")

    async def ask(answers: Answers) -> bytes:
        asked = [answers.answer("topic", fail) for _ in range(3)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(error) for error in told if isinstance(error, ValueError)] == ["no"] * 3
        return await answers.answer("topic", lambda: b"well again")

    with Site([]) as site:
        assert asyncio.run(ask(Answers(site.broker))) == b"well again"


def fail(*_: object) -> bytes:
    raise ValueError("the broker is closed")


@pytest.mark.parametrize(
    "asked",
    [
        lambda broker: Answers(broker).answer("topic", fail),
        lambda broker: Answers(broker).answer_of_look("stats", fail),
    ],
    ids=["answers", "looks"],
)
def test_a_failure_after_all_who_asked_are_gone_is_no_news(asked: Any) -> None:
    """As at the end of a broker, when its threads are gone: nobody could do anything about it."""
    news: list[dict[str, Any]] = []

    async def ask(broker: Broker) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, event: news.append(event))
        call: Coroutine[Any, Any, bytes] = asked(broker)
        one = asyncio.create_task(call)
        await asyncio.sleep(0)
        one.cancel()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
        del one, call
        gc.collect()

    with Site([]) as site:
        asyncio.run(ask(site.broker))
    assert news == []


def test_few_threads_compute_figures_whoever_asks() -> None:
    begun: list[int] = []
    go = threading.Semaphore(0)

    def work(number: int) -> int:
        begun.append(number)
        go.acquire()
        return number

    async def ask(broker: Broker) -> list[int]:
        asked = [asyncio.create_task(broker.figure(work, number)) for number in range(4)]
        while len(begun) < 2:
            await asyncio.sleep(0)
        # Others are not kept from the threads, which wait for the disk most of the time.
        assert await broker.run(lambda: b"a put") == b"a put"
        assert begun == [0, 1]
        go.release(4)
        return await asyncio.gather(*asked)

    with Site([]) as site:
        assert asyncio.run(ask(site.broker)) == [0, 1, 2, 3]
