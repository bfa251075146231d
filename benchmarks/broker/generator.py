"""The load: `python -m benchmarks.broker.generator`, with a plan on stdin and what came of it on stdout.

A closed loop: every connection sends its next request when the answer to one before has come. It does as
little as it can for each, because it shares the machine with the server: it counts one byte in what comes.
"""

import asyncio
import pickle
import sys
import time
from functools import partial
from typing import cast

import uvloop

from benchmarks.broker.plan import Done, Plan
from benchmarks.broker.processes import HOST
from benchmarks.broker.request import CONNECTION


class _Run:
    """What the connections share."""

    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop) -> None:
        self.plan = plan
        self.left = sys.maxsize if plan.requests is None else plan.requests
        self.answers = 0
        self.under_way = 0
        self.last = b""
        self.greeted = 0
        self.is_greeted = loop.create_future()
        self.is_over = loop.create_future()

    def greet(self) -> None:
        self.greeted += 1
        if self.greeted == self.plan.connections:
            self.is_greeted.set_result(None)

    def end(self) -> None:
        """Send nothing more; over when the answers that are due have come."""
        self.left = 0
        if self.under_way <= 0 and not self.is_over.done():
            self.is_over.set_result(None)

    def fail(self, reason: str) -> None:
        for future in (self.is_greeted, self.is_over):
            if not future.done():
                future.set_exception(ConnectionError(reason))


class _Line(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self, run: _Run, number: int) -> None:
        request = run.plan.request
        self._run = run
        self._data, self._greeting = (
            data.replace(CONNECTION, b"%06d" % number) for data in (request.data, request.greeting)
        )
        self._mark, self._marks = request.mark, request.marks
        self._most_marks = request.marks * request.depth
        self._seen = 0
        self._said = b""
        self._is_greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has all the methods of asyncio's, but is none by class.
        self._transport = cast(asyncio.Transport, transport)
        if self._greeting:
            self._transport.write(self._greeting)
        else:
            self._is_greeted = True
            self._run.greet()

    def begin(self) -> None:
        for _ in range(self._run.plan.request.depth):
            self._send()

    def data_received(self, data: bytes) -> None:
        if not self._is_greeted:
            self._hear(data)
            return
        self._seen += data.count(self._mark)
        if self._seen < self._marks:
            return
        run = self._run
        run.last = data
        if self._seen > self._most_marks:
            run.fail(f"the server answered more than it was asked, or with an error: {data!r}")
            return
        while self._seen >= self._marks:
            self._seen -= self._marks
            run.answers += 1
            run.under_way -= 1
            self._send()
        if run.under_way <= 0:
            run.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.fail(f"the server closed a connection: {exc}; before that it said {self._run.last!r}")

    def _send(self) -> None:
        run = self._run
        if run.left > 0:
            run.left -= 1
            run.under_way += 1
            self._transport.write(self._data)

    def _hear(self, data: bytes) -> None:
        self._said += data
        if self._said.endswith(self._run.plan.request.greeted):
            self._is_greeted = True
            self._run.greet()


async def _load(plan: Plan) -> Done:
    loop = asyncio.get_running_loop()
    run = _Run(plan, loop)
    lines = [_Line(run, number) for number in range(plan.connections)]
    for line in lines:
        await loop.create_connection(partial(_itself, line), HOST, plan.port)
    await run.is_greeted
    start, used = time.perf_counter(), time.process_time()
    for line in lines:
        line.begin()
    if plan.seconds is not None:
        loop.call_later(plan.seconds, run.end)
    await run.is_over
    return Done(run.answers, time.perf_counter() - start, time.process_time() - used, run.last[-300:])


def _itself(line: _Line) -> _Line:
    return line


def main() -> None:
    plan: Plan = pickle.load(sys.stdin.buffer)
    done = uvloop.run(_load(plan))
    pickle.dump(done, sys.stdout.buffer)


if __name__ == "__main__":
    main()
