"""Costly answers, made once for all who ask the same."""

import asyncio
import threading

from support.site import Site

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
