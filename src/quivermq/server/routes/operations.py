"""Looking after the broker: figures, events, metrics, health, and the description of all of it."""

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from quivermq.engine import Engine
from quivermq.errors import InvalidRequest, Unavailable
from quivermq.server import events, prometheus
from quivermq.server.access import ALL_TOPICS, ApiKey, may_see
from quivermq.server.broker import Broker
from quivermq.server.docs_page import DOCS_PAGE, DOCS_POLICY
from quivermq.server.events import Events
from quivermq.server.figures import look, told, why_not_ready
from quivermq.server.http import JSON, Request, Response, Stream, json_response
from quivermq.server.openapi import openapi_document
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import CompactedOut, Health, KeyOut, ReportOut, Stats
from quivermq.topic.names import Pattern

HTML = "text/html; charset=utf-8"

_TOPICS_MAX = 100
_TOPICS = Parameter(
    "topics",
    {"type": "string", "minLength": 1, "maxLength": 8192, "pattern": "^[A-Za-z0-9._*>,-]+$"},
    "Names or patterns, separated by commas; by default all.",
)

_ARCHIVED = Parameter(
    "archived",
    {"type": "boolean", "default": False},
    "Also the segments that are in the archive and that all groups have finished with.",
)


async def stats(broker: Broker, request: Request) -> Response:
    """What there is, and how far every group has come."""
    figures = await broker.run(look, broker)
    return json_response(told(figures, lambda topic: may_see(request, topic)))


def who(_: Broker, request: Request) -> Response:
    """What the key that was sent allows. Where no key is asked for, everything is allowed."""
    key = request.key
    if key is None:
        return json_response(KeyOut(False, None, "admin", [ALL_TOPICS]))
    return json_response(KeyOut(True, key.id, key.scope, list(key.topics)))


def listen(broker: Broker, request: Request) -> Response:
    """Events without an end."""
    wanted = _wanted(request)
    response = Response(200, b"", events.CONTENT_TYPE, {"Cache-Control": "no-store"})

    def begin(stream: Stream) -> None:
        broker.part(Events).listen(stream, wanted)

    response.stream = begin
    return response


async def compact(broker: Broker, request: Request) -> Response:
    """Remove now what the settings no longer keep, and shorten the journals."""
    archived = request.query.get("archived", "false")
    if archived not in ("true", "false"):
        raise InvalidRequest(f"archived is true or false, not {archived[:80]!r}")
    compacted = await broker.run(broker.engine.compact, archived=archived == "true")
    return json_response(asdict(compacted))


async def verify(broker: Broker, _: Request) -> Response:
    """Check every byte of every log, while the queue is in use."""
    return json_response(await broker.run(_verified, broker.engine))


async def metrics(broker: Broker, request: Request) -> Response:
    """Everything that is measured, for Prometheus."""
    connections = broker.engine.metrics.gauge("quiver_http_connections", "Connections that are open.")
    connections.set(broker.count_connections())
    samples = [
        sample
        for sample in await broker.run(broker.engine.collect_metrics)
        if "topic" not in sample["labels"] or may_see(request, sample["labels"]["topic"])
    ]
    return Response(200, prometheus.exposition(samples), prometheus.CONTENT_TYPE)


def health(_: Broker, __: Request) -> Response:
    """That the process answers."""
    return json_response(Health())


def readiness(broker: Broker, _: Request) -> Response:
    """Whether messages are taken."""
    broker.engine.check_open()
    if (reason := why_not_ready(broker)) is not None:
        raise Unavailable(reason)
    return json_response(Health())


def openapi(broker: Broker, _: Request) -> Response:
    """This API, for programs."""
    return Response(200, broker.part(_document), JSON)


def docs(_: Broker, __: Request) -> Response:
    """This API, for people."""
    return Response(200, DOCS_PAGE, HTML, {"Content-Security-Policy": DOCS_POLICY})


def _document(_: Broker) -> bytes:
    # Here, because the table of all routes is made from this module as well.
    from quivermq.server.routes import all_routes

    return msgspec.json.encode(openapi_document(all_routes()))


@dataclass(frozen=True, slots=True)
class _Interest:
    """Which topics a listener asks for, and may know of."""

    key: ApiKey | None
    asked: frozenset[Pattern]

    def __call__(self, topic: str) -> bool:
        return (self.key is None or self.key.allows(topic)) and (
            not self.asked or any(pattern.matches(topic) for pattern in self.asked)
        )


def _wanted(request: Request) -> _Interest:
    """Which topics a listener asks for, and may know of. Raises InvalidRequest, InvalidName."""
    texts = request.query["topics"].split(",") if "topics" in request.query else []
    if len(texts) > _TOPICS_MAX:
        raise InvalidRequest(f"topics has at most {_TOPICS_MAX} names, not {len(texts)}")
    return _Interest(request.key, frozenset(map(Pattern, texts)))


def _verified(engine: Engine) -> dict[str, object]:
    report = engine.verify()
    findings = [
        {**asdict(finding), "path": str(finding.path.relative_to(engine.path))}
        for finding in report.findings
    ]
    return {**asdict(report), "is_sound": report.is_sound, "findings": findings}


ROUTES: list[Route] = [
    Route(
        "GET",
        "/v1/stats",
        stats,
        summary="Everything the queue can count",
        scope="read",
        tag="operations",
        returns={200: Stats},
        checks_topics=True,
    ),
    Route(
        "GET",
        "/v1/key",
        who,
        summary="What the key allows",
        scope="read",
        tag="operations",
        returns={200: KeyOut},
        checks_topics=True,
    ),
    Route(
        "GET",
        "/v1/events",
        listen,
        summary="Live events: figures once a second, and changes of topics",
        scope="read",
        tag="operations",
        query=(_TOPICS,),
        returns={200: events.CONTENT_TYPE},
        checks_topics=True,
    ),
    Route(
        "POST",
        "/v1/compact",
        compact,
        summary="Remove now what the settings no longer keep",
        scope="admin",
        tag="operations",
        query=(_ARCHIVED,),
        returns={200: CompactedOut},
        errors=(507,),
    ),
    Route(
        "POST",
        "/v1/verify",
        verify,
        summary="Check every byte of every log",
        scope="admin",
        tag="operations",
        returns={200: ReportOut},
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        summary="Metrics for Prometheus",
        scope="read",
        tag="operations",
        returns={200: prometheus.CONTENT_TYPE},
        checks_topics=True,
    ),
    Route(
        "GET",
        "/healthz",
        health,
        summary="Whether the broker answers",
        scope="none",
        tag="operations",
        returns={200: Health},
    ),
    Route(
        "GET",
        "/readyz",
        readiness,
        summary="Whether the broker takes messages",
        scope="none",
        tag="operations",
        returns={200: Health},
    ),
    Route(
        "GET",
        "/openapi.json",
        openapi,
        summary="This description",
        scope="none",
        tag="operations",
        returns={200: dict[str, Any]},
    ),
    Route(
        "GET",
        "/docs",
        docs,
        summary="This description as a page",
        scope="none",
        tag="operations",
        returns={200: HTML},
    ),
]
