"""Looking after the broker: figures, events, metrics, health, and the description of all of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from quivermq.engine import Engine
from quivermq.engine.turns import in_turns
from quivermq.errors import GroupNotFound, InvalidRequest, Unavailable
from quivermq.server import events, prometheus
from quivermq.server.access import ALL_TOPICS, ApiKey, check_topics, may_see
from quivermq.server.broker import Broker
from quivermq.server.events import Events
from quivermq.server.figures import Answers, Looks, told, why_not_ready
from quivermq.server.gzip_blocks import accepts_gzip
from quivermq.server.http import JSON, Request, Response, Stream, encode_json, json_response
from quivermq.server.openapi import openapi_document
from quivermq.server.query import flag_of, number_of, number_parameter
from quivermq.server.recorder import Recorder
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import NAME_SCHEMA, CompactedOut, Health, HistoryOut, KeyOut, ReportOut, Stats
from quivermq.topic.names import Pattern

_TOPICS_MAX = 100
_TOPICS = Parameter(
    "topics",
    {"type": "string", "minLength": 1, "maxLength": 8192, "pattern": "^[A-Za-z0-9._*>,-]+$"},
    "Names or patterns, separated by commas; by default all.",
)

_TOPIC = Parameter("topic", NAME_SCHEMA, "Only this topic.")
_GROUP = Parameter("group", NAME_SCHEMA, "Only this group of the topic.")

_SINCE = number_parameter("since", "Only points after this, in unix microseconds.", 0, 2**62, default=0)

_CHANGES = Parameter(
    "changes",
    {"type": "boolean", "default": False},
    "Tell everything once, as `stats` with its `version`, and then only what is new, as `changes`: a JSON"
    " merge patch of the version that `since` names.",
)

_ARCHIVED = Parameter(
    "archived",
    {"type": "boolean", "default": False},
    "Also the segments that are in the archive and that all groups have finished with.",
)


async def stats(broker: Broker, request: Request) -> Response:
    """What there is, and how far every group has come."""
    wanted = _wanted(request, broker.engine)
    answer = await broker.part(Looks).answer(
        ("stats", wanted), lambda survey: encode_json(told(survey, wanted))
    )
    return Response(200, answer, JSON)


async def history(broker: Broker, request: Request) -> Response:
    """The last hour of a group, of a topic, or of all topics that the key is for."""
    return json_response(await broker.figure(_history, broker, request))


def who(_: Broker, request: Request) -> Response:
    """What the key that was sent allows. Where no key is asked for, everything is allowed."""
    key = request.key
    if key is None:
        return json_response(KeyOut(False, None, "admin", [ALL_TOPICS]))
    return json_response(KeyOut(True, key.id, key.scope, list(key.topics)))


def listen(broker: Broker, request: Request) -> Response:
    """Events without an end."""
    wanted, changes = _wanted(request, broker.engine), flag_of(request, _CHANGES)
    gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if gzip:
        headers["Content-Encoding"] = "gzip"
    response = Response(200, b"", events.CONTENT_TYPE, headers)

    def begin(stream: Stream) -> None:
        broker.part(Events).listen(stream, wanted, changes=changes, gzip=gzip)

    response.stream = begin
    return response


async def sync(broker: Broker, _: Request) -> Response:
    """Answer once everything that was put so far is on stable storage, whatever the durability."""
    await broker.run(broker.engine.sync)
    return Response(204)


async def compact(broker: Broker, request: Request) -> Response:
    """Remove now what the settings no longer keep, and shorten the journals."""
    compacted = await broker.run(broker.engine.compact, archived=flag_of(request, _ARCHIVED))
    return json_response(asdict(compacted))


async def verify(broker: Broker, _: Request) -> Response:
    """Check every byte of every log, while the queue is in use."""
    return json_response(await broker.run(_verified, broker.engine))


async def metrics(broker: Broker, request: Request) -> Response:
    """Everything that is measured, for Prometheus."""
    connections = broker.engine.metrics.gauge("quiver_http_connections", "Connections that are open.")
    connections.set(broker.count_connections())
    answer = await broker.part(Answers).answer(
        ("metrics", request.key), lambda: _exposed(broker.engine, request)
    )
    return Response(200, answer, prometheus.CONTENT_TYPE)


def _exposed(engine: Engine, request: Request) -> bytes:
    return prometheus.exposition(
        sample
        for sample in in_turns(engine.collect_metrics())
        if "topic" not in sample["labels"] or may_see(request, sample["labels"]["topic"])
    )


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


def _history(broker: Broker, request: Request) -> dict[str, Any]:
    kept = broker.part(Recorder).history
    topic, group = request.query.get("topic"), request.query.get("group")
    since = number_of(request, _SINCE)
    if topic is None:
        if group is not None:
            raise InvalidRequest("a group has a history in each topic: say which topic, too")
        is_for_all = request.key is None or request.key.is_for_all_topics
        return kept.whole(None if is_for_all else lambda topic: may_see(request, topic), since=since)
    check_topics(request, [topic])
    hosted = broker.engine.hosted(topic)
    if group is None:
        return kept.topic(topic, since=since)
    # Members that read the topic may not have committed anything yet.
    if group not in hosted.groups and topic not in broker.engine.members.topics(group):
        raise GroupNotFound(f"{topic} has no group {group[:300]}")
    return kept.group(topic, group, since=since)


def _document(_: Broker) -> bytes:
    # Here, because the table of all routes is made from this module as well.
    from quivermq.server.routes import all_routes

    return msgspec.json.encode(openapi_document(all_routes()))


@dataclass(frozen=True, slots=True)
class _Interest:
    """Which topics a listener asks for, and may know of."""

    key: ApiKey | None
    asked: frozenset[Pattern]
    origin_of: Callable[[str], str | None]

    def __call__(self, topic: str) -> bool:
        origin = self.origin_of(topic)
        return (self.key is None or self.key.allows(topic, origin)) and (
            not self.asked or any(pattern.matches(topic, origin) for pattern in self.asked)
        )


def _wanted(request: Request, engine: Engine) -> _Interest:
    """Which topics a listener asks for, and may know of. Raises InvalidRequest, InvalidName."""
    texts = request.query["topics"].split(",") if "topics" in request.query else []
    if len(texts) > _TOPICS_MAX:
        raise InvalidRequest(f"topics has at most {_TOPICS_MAX} names, not {len(texts)}")
    return _Interest(request.key, frozenset(map(Pattern, texts)), engine.origin_of)


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
        tag="operations",
        query=(_TOPICS,),
        returns={200: Stats},
    ),
    Route(
        "GET",
        "/v1/history",
        history,
        summary="The last hour, in points: rates, lag, latencies",
        tag="operations",
        query=(_TOPIC, _GROUP, _SINCE),
        returns={200: HistoryOut},
        errors=(404,),
    ),
    Route(
        "GET",
        "/v1/key",
        who,
        summary="What the key allows",
        tag="operations",
        returns={200: KeyOut},
    ),
    Route(
        "GET",
        "/v1/events",
        listen,
        summary="Live events: figures once a second, and changes of topics",
        tag="operations",
        query=(_TOPICS, _CHANGES),
        returns={200: events.CONTENT_TYPE},
    ),
    Route(
        "POST",
        "/v1/sync",
        sync,
        summary="Wait until everything that was put is on stable storage",
        tag="operations",
        returns={204: None},
        errors=(507,),
    ),
    Route(
        "POST",
        "/v1/compact",
        compact,
        summary="Remove now what the settings no longer keep",
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
        tag="operations",
        returns={200: ReportOut},
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        summary="Metrics for Prometheus",
        tag="operations",
        returns={200: prometheus.CONTENT_TYPE},
    ),
    Route(
        "GET",
        "/healthz",
        health,
        summary="Whether the broker answers",
        tag="operations",
        returns={200: Health},
    ),
    Route(
        "GET",
        "/readyz",
        readiness,
        summary="Whether the broker takes messages",
        tag="operations",
        returns={200: Health},
    ),
    Route(
        "GET",
        "/openapi.json",
        openapi,
        summary="This description",
        tag="operations",
        returns={200: dict[str, Any]},
    ),
]
