"""Looking after the broker: figures, events, metrics, health, and the description of all of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import msgspec

from quivermq.engine import Engine
from quivermq.errors import GroupNotFound, InvalidRequest, Unavailable
from quivermq.model.names import Pattern
from quivermq.model.stats import FindingKind
from quivermq.model.stats_json import report_json
from quivermq.model.turns import in_turns
from quivermq.server.access import ALL_TOPICS, ApiKey, KeyScope, check_topics, may_see
from quivermq.server.broker import Broker
from quivermq.server.events import EVENTS, Events, accepts_gzip
from quivermq.server.figures import PROMETHEUS, Answers, exposition, stats_json, why_not_ready
from quivermq.server.history import Recorder
from quivermq.server.http import Request, Response, ResponseStream, encode_json, json_response
from quivermq.server.openapi import openapi_document
from quivermq.server.routing import Calls, Parameter, Route, flag_of, number_of, number_parameter
from quivermq.server.shapes import NAME_SCHEMA, Count, GroupFigures, PriorityOut

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


class GroupActivityFigures(GroupFigures):
    """How far a group has come with a topic, and what it has had since the broker was started."""

    delivered: Count
    acked: Count
    oldest_unacked_ms: Count
    oldest_unacked_at: Count
    dead_lettered: Count
    leases_expired: Count


class TopicFigures(msgspec.Struct):
    """What there is of a topic, and how many messages came since the broker was started."""

    topic: str
    partitions: Count
    messages: Count
    bytes: Count
    delayed: Count
    dead_letters: Count
    dead_letters_of: str | None
    groups: dict[str, GroupActivityFigures]
    published: Count
    refused: Count
    dropped: Count


class ProblemOut(msgspec.Struct):
    """A part of the queue that does not work, and why; null stands for all of them."""

    message: str
    topic: str | None
    partition: Count | None
    priority: PriorityOut | None
    group: str | None


class AlertOut(msgspec.Struct):
    """Something that is wrong, by a rule of that name, and since when it is known, in unix microseconds."""

    alert: str
    severity: Literal["page", "ticket"]
    summary: str
    topic: str | None
    group: str | None
    partition: Count | None
    priority: PriorityOut | None
    value: float
    since: int


class Stats(msgspec.Struct):
    """Everything the queue can count, what does not work, and what is wrong, the worst first."""

    topics: dict[str, TopicFigures]
    messages: Count
    bytes: Count
    free_bytes: Count
    problems: list[ProblemOut]
    alerts: list[AlertOut]


class HistoryOut(msgspec.Struct):
    """The last hour: `times` of its points in unix microseconds, and a number for each in every series.

    `published`, `delivered` and `acked` are a second; what ends in `_p50` or `_p99` is in milliseconds.
    null is what nobody knows.
    """

    interval_ms: Count
    times: list[int]
    series: dict[str, list[float | None]]


class KeyOut(msgspec.Struct):
    """What a key allows. A scope includes those before it. The topic `>` is all."""

    is_required: bool
    id: str | None
    scope: KeyScope
    topics: list[str]


class CompactedOut(msgspec.Struct):
    """What was removed from the disk."""

    segments: Count
    messages: Count
    bytes: Count


class FindingOut(msgspec.Struct):
    """Something about a file that is not as it should be; only `damage` means loss."""

    kind: FindingKind
    path: str
    position: int
    end: int
    offsets: tuple[int, int | None]
    reason: str


class ReportOut(msgspec.Struct):
    """What a look at every byte saw."""

    is_sound: bool
    logs: Count
    segments: Count
    frames: Count
    messages: Count
    bytes: Count
    findings: list[FindingOut]


class Health(msgspec.Struct):
    """That the broker is there."""

    status: Literal["ok"] = "ok"


ROUTES: list[Route] = []
_broker = Calls(ROUTES, "", "operations", ())


@_broker("GET", "/v1/stats", "Everything the queue can count", Stats, query=(_TOPICS,))
async def stats(broker: Broker, request: Request) -> bytes:
    """What there is, and how far every group has come."""
    wanted = _wanted(request, broker.engine)
    return await broker.part(Answers).answer_of_look(
        ("stats", wanted), lambda survey: encode_json(stats_json(survey, wanted))
    )


@_broker(
    "GET",
    "/v1/history",
    "The last hour, in points: rates, lag, latencies",
    HistoryOut,
    query=(_TOPIC, _GROUP, _SINCE),
    errors=(404,),
)
async def history(broker: Broker, request: Request) -> dict[str, Any]:
    """The last hour of a group, of a topic, or of all topics that the key is for."""
    return await broker.figure(_history, broker, request)


@_broker("GET", "/v1/key", "What the key allows", KeyOut)
def who(_: Broker, request: Request) -> Response:
    """What the key that was sent allows. Where no key is asked for, everything is allowed."""
    key = request.key
    if key is None:
        return json_response(KeyOut(False, None, "admin", [ALL_TOPICS]))
    return json_response(KeyOut(True, key.id, key.scope, list(key.topics)))


@_broker(
    "GET",
    "/v1/events",
    "Live events: figures once a second, and changes of topics",
    EVENTS,
    query=(_TOPICS, _CHANGES),
)
def listen(broker: Broker, request: Request) -> Response:
    """Events without an end."""
    wanted, changes = _wanted(request, broker.engine), flag_of(request, _CHANGES)
    gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if gzip:
        headers["Content-Encoding"] = "gzip"
    response = Response(200, b"", EVENTS, headers)

    def begin(stream: ResponseStream) -> None:
        broker.part(Events).listen(stream, wanted, changes=changes, gzip=gzip)

    response.stream = begin
    return response


@_broker("POST", "/v1/sync", "Wait until everything that was put is on stable storage", errors=(507,))
async def sync(broker: Broker, _: Request) -> None:
    """Answer once everything that was put so far is on stable storage, whatever the durability."""
    await broker.run(broker.engine.sync)


@_broker(
    "POST",
    "/v1/compact",
    "Remove now what the settings no longer keep",
    CompactedOut,
    query=(_ARCHIVED,),
    errors=(507,),
)
async def compact(broker: Broker, request: Request) -> dict[str, Any]:
    """Remove now what the settings no longer keep, and shorten the journals."""
    return asdict(await broker.run(broker.engine.compact, archived=flag_of(request, _ARCHIVED)))


@_broker("POST", "/v1/verify", "Check every byte of every log", ReportOut)
async def verify(broker: Broker, _: Request) -> dict[str, object]:
    """Check every byte of every log, while the queue is in use."""
    engine = broker.engine
    return await broker.run(lambda: report_json(engine.verify(), engine.path))


@_broker("GET", "/metrics", "Metrics for Prometheus", PROMETHEUS)
async def metrics(broker: Broker, request: Request) -> Response:
    """Everything that is measured, for Prometheus."""
    connections = broker.engine.metrics.gauge("quiver_http_connections", "Connections that are open.")
    connections.set(broker.count_connections())
    answer = await broker.part(Answers).answer(
        ("metrics", request.key), lambda: _exposed(broker.engine, request)
    )
    return Response(200, answer, PROMETHEUS)


@_broker("GET", "/healthz", "Whether the broker answers", Health)
def health(_: Broker, __: Request) -> Response:
    """That the process answers."""
    return json_response(Health())


@_broker("GET", "/readyz", "Whether the broker takes messages", Health)
def readiness(broker: Broker, _: Request) -> Response:
    """Whether messages are taken."""
    broker.engine.check_open()
    if (reason := why_not_ready(broker)) is not None:
        raise Unavailable(reason)
    return json_response(Health())


@_broker("GET", "/openapi.json", "This description", {200: dict[str, Any]})
def openapi(broker: Broker, _: Request) -> Response:
    """This API, for programs."""
    return Response(200, broker.part(_document))


def _document(_: Broker) -> bytes:
    # Here, because the table of all routes is made from this module as well.
    from quivermq.server.routes import all_routes

    return msgspec.json.encode(openapi_document(all_routes()))


def _exposed(engine: Engine, request: Request) -> bytes:
    return exposition(
        sample
        for sample in in_turns(engine.collect_metrics())
        if "topic" not in sample["labels"] or may_see(request, sample["labels"]["topic"])
    )


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
    broker.engine.topic(topic)
    if group is None:
        return kept.topic(topic, since=since)
    if not broker.engine.inspection.is_read_by(topic, group):
        raise GroupNotFound(f"{topic} has no group {group[:300]}")
    return kept.group(topic, group, since=since)


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
    return _Interest(request.key, frozenset(map(Pattern, texts)), engine.catalog.table.origin_of)
