"""From a request to its answer: find the route, ask who it is, call it, put errors into words, count it."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from quivermq.clock import Clock
from quivermq.errors import NotFound, QuiverError
from quivermq.metrics import Counter, Histogram, Metrics
from quivermq.server.access import ApiKey
from quivermq.server.broker import Broker
from quivermq.server.history import Recorder
from quivermq.server.http import Later, Request, Response, answered, error_response, problem
from quivermq.server.memory import Memory
from quivermq.server.routing import Answer, Route, RouteTable
from quivermq.settings import ServerSettings

logger = logging.getLogger(__name__)

# Raises Denied, Unauthenticated or RateLimited when the request may not use the route.
Gate = Callable[[Request, Route], None]

# What a request is counted as when nobody knows its path: a label must not be what a stranger sent.
_UNKNOWN = "other"


class RequestMeter:
    """Counts requests by method, path as the table of routes has it, and status."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # By route and status: asked for once, because this is done for every request.
        self._known: dict[tuple[int, int], tuple[Counter, Histogram]] = {}

    def count(self, route: Route | None, status: int, seconds: float) -> None:
        """A request was answered."""
        found = self._known.get((id(route), status)) or self._meet(route, status)
        found[0].add(1)
        found[1].observe(seconds)

    def _meet(self, route: Route | None, status: int) -> tuple[Counter, Histogram]:
        method, path = (_UNKNOWN, _UNKNOWN) if route is None else (route.method, route.path)
        requests = self._metrics.counter(
            "quiver_http_requests_total",
            "Requests that were answered.",
            method=method,
            route=path,
            status=str(status),
        )
        duration = self._metrics.histogram(
            "quiver_http_request_seconds",
            "How long requests took, waiting included that the client asked for.",
            method=method,
            route=path,
        )
        self._known[id(route), status] = (requests, duration)
        return requests, duration


class App:
    """Answers requests. Handlers either answer at once or return something to wait for."""

    def __init__(self, broker: Broker, routes: list[Route], gate: Gate | None = None) -> None:
        self.broker = broker
        self.router = RouteTable(routes)
        self._gate = gate
        self._meter = RequestMeter(broker.engine.metrics)
        self._time = broker.engine.clock.monotonic

    # What whoever accepts connections asks of it.

    @property
    def settings(self) -> ServerSettings:
        return self.broker.settings

    @property
    def clock(self) -> Clock:
        return self.broker.engine.clock

    @property
    def memory(self) -> Memory:
        return self.broker.memory

    def start(self, count_connections: Callable[[], int]) -> None:
        """Begin to look around, on the event loop."""
        self.broker.count_connections = count_connections
        self.broker.part(Recorder).start()

    def stop(self) -> None:
        """Look around no more. Calling twice is allowed."""
        self.broker.part(Recorder).stop()

    def drain(self) -> None:
        """Let go of everybody who waits, and make nobody wait from now on."""
        self.broker.drain()

    def check_keys(self) -> bool:
        """Look whether keys have changed, and if so, send away who may not stay."""
        return self.broker.check_keys()

    def is_welcome(self, key: ApiKey | None) -> bool:
        """Whether who came with this key, or without one, may stay."""
        return self.broker.is_welcome(key)

    def answer(self, request: Request) -> Answer:
        """The answer, or what has to be awaited for it. Never raises; nor does the awaitable."""
        start = self._time()
        routes, request.params = self.router.find(request.path)
        route = routes.get("GET" if request.method == "HEAD" else request.method)
        answer = _no_route(request, routes) if route is None else self._call(request, route)
        if isinstance(answer, Response):
            self._count(route, start, answer)
            return answer
        if isinstance(answer, Later):
            answer.before = partial(self._count, route, start)
            return answer
        return self._settled(answer, request, route, start)

    def admit(self, request: Request) -> Response | None:
        """Look at a request whose body is large and has yet to be read: None, or why it will not be.

        So nobody can make the broker hold large bodies who may not make the call.
        """
        start = self._time()
        routes, request.params = self.router.find(request.path)
        route = routes.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            response = _no_route(request, routes)
        else:
            try:
                if self._gate is not None:
                    self._gate(request, route)
            except Exception as error:
                response = self._failed(request, error)
            else:
                request.is_admitted = True
                request.body_bytes_max = route.body_limit
                return None
        self._count(route, start, response)
        return response

    def _call(self, request: Request, route: Route) -> Answer:
        try:
            if self._gate is not None and not (request.is_admitted and self.broker.is_welcome(request.key)):
                # A key may have been revoked while a large body arrived.
                self._gate(request, route)
            topic = request.params.get("topic") if self.broker.engine.catalog.table.has_closed else None
            if topic is not None and self.broker.has_to_open(topic):
                return self._after_opening(topic, request, route)
            return route.call(self.broker, request)
        except Exception as error:
            return self._failed(request, error)

    async def _after_opening(self, topic: str, request: Request, route: Route) -> Response:
        """Have topics opened in a thread: a handler finds them open, and nobody waits for the disk here."""
        await self.broker.run(self.broker.open_topic, topic)
        answer = route.call(self.broker, request)
        return answer if isinstance(answer, Response) else answered(await answer)

    async def _settled(
        self, answer: Awaitable[Any], request: Request, route: Route | None, start: float
    ) -> Response:
        try:
            response = answered(await answer)
        except Exception as error:
            response = self._failed(request, error)
        self._count(route, start, response)
        return response

    def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, QuiverError):
            self.broker.note(error)
            return error_response(error, self.broker.hiding)
        # The client learns nothing of it but the id by which the log can be searched.
        logger.error(
            "%s %s failed", request.method, request.path, exc_info=error, extra={"request_id": request.id}
        )
        return error_response(QuiverError("the broker failed: its log has the details of this request id"))

    def _count(self, route: Route | None, start: float, response: Response) -> None:
        self._meter.count(route, response.status, self._time() - start)


def _no_route(request: Request, routes: dict[str, Route]) -> Response:
    if not routes:
        message = f"there is nothing at {request.path[:200]}: /docs shows every call"
        return error_response(NotFound(message))
    message = f"{request.path[:200]} takes {', '.join(routes)}, not {request.method[:20]}"
    response = problem(405, "method_not_allowed", message)
    response.headers = {"Allow": ", ".join(routes)}
    return response
