"""A broker without sockets: requests go straight to its routes, and everything happens on one loop."""

import asyncio
import json
from collections.abc import Awaitable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

import quivermq
from quivermq.disk import Disk
from quivermq.engine import engine_of
from quivermq.server.app import App
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response
from quivermq.server.routing import Route
from quivermq.settings import ServerSettings
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.queues import DATA, START_US

T = TypeVar("T")


class Site:
    """An engine in memory, whose clock belongs to the test, and an application with some routes."""

    def __init__(self, routes: list[Route], disk: Disk | None = None, **settings: Any) -> None:
        self.disk = FaultyDisk()
        self.clock = ManualClock(START_US)
        self.engine = quivermq.open(
            DATA, disk=disk or self.disk, clock=self.clock, scheduler=ManualScheduler(self.clock)
        )
        self.broker = Broker(engine_of(self.engine), ServerSettings(**settings))
        self.app = App(self.broker, routes)
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop."""
        return self._runner.run(work)

    def ask(
        self, method: str, path: str, body: object = b"", headers: dict[str, str] | None = None
    ) -> Response:
        """What a request is answered with; a body that is not bytes goes as JSON."""
        return self.run(self.answer(method, path, body, headers))

    async def answer(
        self, method: str, path: str, body: object = b"", headers: dict[str, str] | None = None
    ) -> Response:
        """The same, from within the loop."""
        headers = {name.lower(): value for name, value in (headers or {}).items()}
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("content-type", "application/json")
        path, _, query = path.partition("?")
        request = Request(method, path, query, headers, body)
        answer = self.app.answer(request)
        response = await answer if isinstance(answer, Awaitable) else answer
        if request.portion is not None:
            request.portion.end()
        return response

    def post(self, path: str, body: object = b"", headers: dict[str, str] | None = None) -> Any:
        """The JSON of an answer that has to be a success."""
        response = self.ask("POST", path, body, headers)
        assert response.status == 200, response.body
        return json.loads(response.body)

    def refusal(
        self, path: str, body: object = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and code of an answer that has to be an error in the usual form."""
        response = self.ask("POST", path, body, headers)
        error = json.loads(response.body)["error"]
        assert error["message"]
        assert isinstance(error["retryable"], bool)
        return response.status, error["code"]

    def close(self) -> None:
        self._runner.close()
        self.broker.close()
        self.engine.close()

    def __enter__(self) -> "Site":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
