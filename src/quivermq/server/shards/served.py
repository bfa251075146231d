"""A shard as it is served: the whole API over its engine, as long as this broker certainly owns it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from quivermq.cluster.shard import OwnedShard
from quivermq.errors import Unreachable
from quivermq.server.app import App
from quivermq.server.http import Later, Request, Response, answered, error_response
from quivermq.server.routing import Answer

# What the engine says that found out that somebody else is the owner.
_FENCED, _FENCED_CODE = 409, b"not_owner"
_FAILED = 500
_READING = ("GET", "HEAD")
_LOST = "the broker lost the shard while it worked on this call: whether it was carried out, nobody knows"


class ServedShard:
    """`elsewhere` answers who has to ask another broker. Belongs to the event loop's thread."""

    def __init__(self, shard: OwnedShard, app: App, elsewhere: Callable[[Request], Response]) -> None:
        self.shard = shard
        self.app = app
        self._elsewhere = elsewhere
        self._calls = 0
        self._emptied = asyncio.Event()
        self._is_gone = False

    def answer(self, request: Request) -> Answer:
        """The answer, or what has to be awaited for it. Never raises; nor does the awaitable."""
        if not self.shard.is_fresh:
            return self._elsewhere(request)
        self._calls += 1
        answer = self.app.answer(request)
        if isinstance(answer, Response):
            return self._ended(request, answer)
        if isinstance(answer, Later):
            outer = Later()
            answer.then = lambda response: outer.set(self._ended(request, response))
            return outer
        return self._settled(request, answer)

    async def _settled(self, request: Request, answer: Awaitable[Any]) -> Response:
        try:
            response = answered(await answer)
        except BaseException:
            self._count_down()
            raise
        return self._ended(request, response)

    def _ended(self, request: Request, response: Response) -> Response:
        """What the client gets. Looked at again: this process may have stood still for long meanwhile.

        A call that was begun may have been carried out, so a client is sent elsewhere only with what
        changes nothing: it would take that for a call that was not.
        """
        self._count_down()
        is_ours = self.shard.is_fresh and not (self._is_gone and response.status >= _FAILED)
        if is_ours and not (response.status == _FENCED and _is_fenced(response)):
            return response
        if response.unsent is not None:
            response.unsent()
        return (
            self._elsewhere(request) if request.method in _READING else error_response(Unreachable(_LOST))
        )

    def _count_down(self) -> None:
        self._calls -= 1
        if not self._calls:
            self._emptied.set()

    async def end(self, timeout_s: float) -> None:
        """Return once nobody works on it any more; who waits for messages is let go.

        Whoever comes from now on has to be sent elsewhere.
        """
        self._is_gone = True
        self.app.drain()
        self._emptied.clear()
        if self._calls:
            try:
                await asyncio.wait_for(self._emptied.wait(), timeout_s)
            except TimeoutError:
                # They find the engine closed.
                self._emptied.set()
        self.app.stop()
        await asyncio.get_running_loop().run_in_executor(None, self.app.broker.close)


def _is_fenced(response: Response) -> bool:
    if _FENCED_CODE not in response.body:
        return False
    code: object = json.loads(response.body)["error"]["code"]
    return code == _FENCED_CODE.decode()
