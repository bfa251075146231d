"""A port of a broker for each life of a program, which is killed at a call that comes in there.

Whoever is left of an earlier life still has its own port: what it sends is stored as everything is, and is
taken for nobody else's.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import TracebackType

from quivermq.queue.connection import Connection
from quivermq.server.http import Later, Request, Response
from quivermq.server.routing import Answer
from support.broker import Served, serving_engine


class Door:
    """One port. Something is done before or after one of its calls, once."""

    def __init__(self, served: Served, call: str, when: str, number: int, act: Callable[[], None]) -> None:
        self._call, self._when, self._number = re.compile(call), when, number
        self._act = act
        self._count = 0
        self._answer = served.server.edge.answer
        served.server.edge.answer = self.answer
        self.url = served.url
        self.is_reached = False

    def __str__(self) -> str:
        return f"{self._when} call {self._number} of {self._call.pattern}, of {self._count}"

    def answer(self, request: Request) -> Answer:
        is_counted = self._call.fullmatch(f"{request.method} {request.path}") is not None
        self._count += is_counted
        is_meant = is_counted and self._count >= self._number and not self.is_reached
        if is_meant and self._when == "before":
            self._do()
        answer = self._answer(request)
        if not (is_meant and self._when == "after"):
            return answer
        assert not isinstance(answer, Response | Later), "calls that change something are waited for"
        return self._done_after(answer)

    async def _done_after(self, answer: Awaitable[Response]) -> Response:
        # If whoever calls is gone before, it is done after a later call.
        response = await answer
        self._do()
        return response

    def _do(self) -> None:
        if not self.is_reached:
            self.is_reached = True
            self._act()


class Doors:
    """All ports of one engine, open until the end of the `with` statement."""

    def __init__(self, engine: Connection, act: Callable[[], None]) -> None:
        self._engine = engine
        self._act = act
        self._open = ExitStack()

    def open(self, call: str = "", when: str = "", number: int = 0) -> Door:
        """A port, where something is done at a call: a method and a pattern of its path."""
        served = self._open.enter_context(serving_engine(self._engine))
        return Door(served, call, when, number, self._act)

    def __enter__(self) -> "Doors":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()
