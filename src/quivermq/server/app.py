"""From a request to its answer: find the route, ask who it is, call the handler, put errors into words."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from quivermq.errors import NotFound, QuiverError, Unavailable
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.routing import Answer, Route, Router

logger = logging.getLogger(__name__)

# Raises Denied, Unauthenticated or RateLimited when the request may not use the route.
Gate = Callable[[Request, Route], None]


class App:
    """Answers requests. Handlers either answer at once or return something to wait for."""

    def __init__(self, broker: Broker, routes: list[Route], gate: Gate | None = None) -> None:
        self.broker = broker
        self.router = Router(routes)
        self._gate = gate

    def answer(self, request: Request) -> Answer:
        """The answer, or what has to be awaited for it. Never raises; nor does the awaitable."""
        try:
            route = self._route(request)
            if isinstance(route, Response):
                return route
            if self._gate is not None:
                self._gate(request, route)
            answer = route.call(self.broker, request)
        except QuiverError as error:
            return error_response(error)
        except Exception:
            return _unforeseen(request)
        # A future, unlike a coroutine, takes care of its errors itself.
        return answer if isinstance(answer, Response | asyncio.Future) else _settled(answer, request)

    def _route(self, request: Request) -> Route | Response:
        routes, request.params = self.router.find(request.path)
        if not routes:
            raise NotFound(f"there is nothing at {request.path[:200]}: GET /openapi.json lists every call")
        route = routes.get("GET" if request.method == "HEAD" else request.method)
        if route is not None:
            return route
        message = f"{request.path[:200]} takes {', '.join(routes)}, not {request.method[:20]}"
        response = json_response(
            {"error": {"code": "method_not_allowed", "message": message, "retryable": False}}, 405
        )
        response.headers = {"Allow": ", ".join(routes)}
        return response


async def _settled(answer: Awaitable[Response], request: Request) -> Response:
    try:
        return await answer
    except QuiverError as error:
        return error_response(error)
    except Exception:
        return _unforeseen(request)


def _unforeseen(request: Request) -> Response:
    # The client is told nothing of it but the id by which the log can be searched.
    logger.exception("request %s failed: %s %s", request.id, request.method, request.path)
    return error_response(QuiverError("the broker failed: its log has the details of this request id"))


def error_response(error: QuiverError) -> Response:
    """An error in JSON, with the fields it was raised with."""
    told = {"code": error.code, "message": str(error), "retryable": error.retryable}
    fields = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    response = json_response({"error": {**fields, **told}}, error.http_status)
    if isinstance(error, Unavailable):
        response.headers = {"Retry-After": "1"}
    return response


def _plain(value: object) -> object:
    if value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
