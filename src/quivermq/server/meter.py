"""How many requests of each kind there were, what they were answered with, and how long that took."""

from quivermq.metrics import Counter, Histogram, Metrics
from quivermq.server.routing import Route

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
