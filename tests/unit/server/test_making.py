"""Answers in the making: who may begin, who waits, and what is counted meanwhile."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.site import Site

from quivermq.server.http import Request
from quivermq.server.memory import STALLED_S, Making, Memory


class Holding:
    """Somebody who holds bytes."""

    has_given_up = False

    def give_up(self) -> None:
        self.has_given_up = True


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def beginning(making: Making, count: int) -> "asyncio.Task[Any]":
    return asyncio.ensure_future(making.begin(count))


async def turns() -> None:
    """Let everything happen that can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_quarter_of_the_budget_is_for_answers_in_the_making() -> None:
    async def work() -> None:
        memory = Memory(400)
        making = Making(memory, 9, lambda: 0.0)
        first, second = await making.begin(60), await making.begin(40)
        third = beginning(making, 1)
        await turns()
        assert (memory.held_bytes, making.count, third.done()) == (100, 2, False)
        second.end()
        second.end()
        await turns()
        assert (memory.held_bytes, making.count) == (61, 2)
        first.end()
        third.result().end()
        assert (memory.held_bytes, making.count) == (0, 0)

    run(work())


def test_one_may_always_begin_and_counts_as_no_more_than_there_is() -> None:
    async def work() -> None:
        memory = Memory(400)
        making = Making(memory, 9, lambda: 0.0)
        # Others hold everything, and get on.
        memory.hold(Holding(), 400, 0.0)
        portion = await making.begin(5000)
        assert memory.held_bytes == 500
        portion.end()
        assert memory.held_bytes == 400

    run(work())


def test_who_stands_still_makes_room() -> None:
    async def work() -> None:
        memory, still = Memory(400), Holding()
        making = Making(memory, 9, lambda: STALLED_S)
        memory.hold(still, 400, 0.0)
        await making.begin(10)
        assert still.has_given_up
        assert memory.held_bytes == 10

    run(work())


def test_no_more_than_so_many_are_made_at_once_and_in_their_order() -> None:
    async def work() -> None:
        making = Making(Memory(4000), 2, lambda: 0.0)
        portions = [await making.begin(1), await making.begin(1)]
        large, small = beginning(making, 900), beginning(making, 1)
        await turns()
        assert (large.done(), small.done()) == (False, False)
        portions[0].end()
        await turns()
        assert (large.done(), small.done()) == (True, False)

    run(work())


@pytest.mark.parametrize("is_late", [False, True])
def test_who_waits_no_longer_takes_no_room(is_late: bool) -> None:
    async def work() -> None:
        memory = Memory(4000)
        making = Making(memory, 1, lambda: 0.0)
        first = await making.begin(1)
        waiting, last = beginning(making, 5), beginning(making, 7)
        await turns()
        if is_late:
            # It was just let in.
            first.end()
        waiting.cancel()
        await turns()
        first.end()
        await turns()
        assert (waiting.cancelled(), last.done(), memory.held_bytes) == (True, True, 7)

    run(work())


def test_what_a_thread_makes_for_nobody_counts_until_it_is_done() -> None:
    begun, may_end = threading.Event(), threading.Event()
    undone: list[int] = []

    def act() -> int:
        begun.set()
        may_end.wait()
        return 7

    async def ended(is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0)

    async def work(site: Site) -> None:
        broker, request = site.broker, Request("GET", "/")
        made = asyncio.ensure_future(
            broker.make(request, 1000, act, lambda work: undone.append(work.result()))
        )
        await ended(begun.is_set)
        made.cancel()
        await ended(made.done)
        assert (broker.memory.held_bytes, request.portion) == (1000, None)
        may_end.set()
        await ended(lambda: broker.memory.held_bytes == 0)
        assert undone == [7]

    with Site([]) as site:
        site.run(work(site))
