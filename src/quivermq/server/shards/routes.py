"""The calls of a broker that belong to the cluster rather than to a shard."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from quivermq.cluster.admin import ClusterAdmin
from quivermq.cluster.placement import SHARDS_MAX
from quivermq.cluster.topics import narrow, widen
from quivermq.errors import NotFound, Unavailable
from quivermq.model.names import DEAD_LETTER_SUFFIX
from quivermq.server.access import Permission, check_topics, may_see
from quivermq.server.figures import PROMETHEUS, exposition
from quivermq.server.http import Request, Response, json_response
from quivermq.server.routes.operations import who
from quivermq.server.routing import Parameter, Route, flag_of, number_given, number_parameter
from quivermq.server.shards.figures import FIGURES, figures_of_all, figures_of_own
from quivermq.server.shards.measuring import measure_all
from quivermq.server.shards.merging import merged_stats, merged_topics

if TYPE_CHECKING:
    from quivermq.server.shards.app import ClusterApp

_OPEN, _READ_EACH = Permission("none"), Permission("read", "each")
_ADMIN = Permission("admin", "all")
_LIMIT = number_parameter("limit", "List at most this many; by default all.", 1, 100_000)
_AFTER = Parameter("after", {"type": "string"}, "Only the topics behind this one, by name.")
_OWN = Parameter(
    "own", {"type": "boolean", "default": False}, "Only of the shards that this broker serves."
)
_TOPICS = Parameter("topics", {"type": "string"}, "Names and patterns, separated by commas; otherwise all.")


class WideTopicIn(msgspec.Struct, forbid_unknown_fields=True):
    """A topic that is to be on several shards."""

    name: str
    spread: Annotated[int, Meta(ge=1, le=SHARDS_MAX)]


class MoveIn(msgspec.Struct, forbid_unknown_fields=True):
    """The broker that is to have a shard; `any` leaves it to placement again."""

    broker: str


def cluster(app: "ClusterApp", request: Request) -> Response:
    """The map of the cluster: its brokers, who owns which shard, and what is wrong with them."""
    shown = {"cluster": app.keys.cluster, "broker": app.node.id, **app.view.to_json()}
    shown["topics"] = {n: topic for n, topic in shown["topics"].items() if _is_told_of(request, n)}
    return json_response({**shown, "alerts": [*map(asdict, app.alerts())]})


def _is_told_of(request: Request, topic: str) -> bool:
    """Whether who asks may know where a topic is, or the dead letters of it, which are there, too."""
    return may_see(request, topic) or may_see(request, topic + DEAD_LETTER_SUFFIX)


async def figures(app: "ClusterApp", request: Request) -> dict[str, Any]:
    """What every shard does with its store, and what that would cost: an estimate."""
    if flag_of(request, _OWN):
        return {"time": app.clock.now_us(), "shards": figures_of_own(app), "silent": []}
    return await figures_of_all(app, request)


async def move_shard(app: "ClusterApp", request: Request, body: MoveIn) -> dict[str, Any]:
    """Let a shard belong to a broker. Its owner gives it away as soon as it sees that."""
    number = request.params["shard"]
    if not (number.isascii() and number.isdigit() and len(number) < 5):
        raise NotFound(f"there is no shard {number[:20]!r}: the cluster has {app.view.shards}")
    await app.run(_admin(app).move, int(number), body.broker)
    return {"shard": int(number), "broker": body.broker}


async def drain_broker(app: "ClusterApp", request: Request) -> dict[str, Any]:
    """Let a broker give all its shards to the others, and take no more."""
    await app.run(_admin(app).drain, request.params["broker"])
    return {"broker": request.params["broker"], "draining": True}


async def undo_drain(app: "ClusterApp", request: Request) -> dict[str, Any]:
    """Let a broker own shards again."""
    await app.run(_admin(app).undo_drain, request.params["broker"])
    return {"broker": request.params["broker"], "draining": False}


def _admin(app: "ClusterApp") -> ClusterAdmin:
    return ClusterAdmin(app.node.etcd, app.keys, app.view.shards)


async def widen_topic(app: "ClusterApp", request: Request, body: WideTopicIn) -> dict[str, Any]:
    """Spread a topic that is new over several shards. One that is spread so already stays as it is."""
    check_topics(request, [body.name])
    shards = await app.run(widen, app.node.etcd, app.keys, body.name, body.spread, app.view.shards)
    return {"name": body.name, "spread": len(shards), "shards": list(shards)}


async def narrow_topic(app: "ClusterApp", request: Request) -> None:
    """Forget that a topic is on several shards, once it is deleted there."""
    await app.run(narrow, app.node.etcd, app.keys, request.params["topic"])


async def topics(app: "ClusterApp", request: Request) -> dict[str, Any]:
    """The topics of all shards."""
    answers = await app.ask_all(request, "/v1/topics")
    return merged_topics(answers, number_given(request, _LIMIT))


async def stats(app: "ClusterApp", request: Request) -> dict[str, Any]:
    """The figures of all shards together."""
    whole = merged_stats(await app.ask_all(request, "/v1/stats"))
    alerts = [*map(asdict, app.alerts()), *whole["alerts"]]
    # Those of a severity stay in their order.
    return {**whole, "alerts": sorted(alerts, key=lambda alert: alert["severity"] != "page")}


def key(_: "ClusterApp", request: Request) -> Response:
    """What the key allows."""
    return who(None, request)  # type: ignore[arg-type]


def health(_: "ClusterApp", __: Request) -> Response:
    """That the process answers."""
    return json_response({"status": "ok"})


def readiness(app: "ClusterApp", _: Request) -> Response:
    """Whether this broker is in the cluster."""
    if app.is_draining or app.node.is_leaving:
        raise Unavailable("the broker is stopping")
    if not app.node.is_fresh:
        raise Unavailable("the broker has no fresh lease: etcd does not answer, or it has yet to join")
    return json_response({"status": "ok"})


def first_shard(_: "ClusterApp", __: Request) -> Response:
    """The dashboard is one of a shard."""
    return Response(307, b"", "text/plain; charset=utf-8", {"Location": "/shards/0/"})


async def metrics(app: "ClusterApp", request: Request) -> Response:
    """Everything that is measured of this broker's shards, and of the cluster as it sees it."""
    text = await app.run(lambda: exposition(measure_all(app, lambda topic: may_see(request, topic))))
    return Response(200, text, PROMETHEUS)


def _route(
    method: str, path: str, handler: Any, summary: str, permission: Permission, **more: Any
) -> Route:
    return Route(method, path, handler, summary, "cluster", permission=permission, **more)


ROUTES: list[Route] = [
    _route("GET", "/v1/cluster", cluster, "Who owns which shard", _READ_EACH),
    _route("GET", FIGURES, figures, "What the shards do with their store", _READ_EACH, query=(_OWN,)),
    _route("POST", "/v1/cluster/shards/{shard}/move", move_shard, "Move a shard", _ADMIN, body=MoveIn),
    _route("POST", "/v1/cluster/brokers/{broker}/drain", drain_broker, "Drain a broker", _ADMIN),
    _route("DELETE", "/v1/cluster/brokers/{broker}/drain", undo_drain, "Undo a drain", _ADMIN),
    _route(
        "POST",
        "/v1/cluster/topics",
        widen_topic,
        "Spread a topic over several shards",
        Permission("admin", "each"),
        body=WideTopicIn,
    ),
    _route(
        "DELETE",
        "/v1/cluster/topics/{topic}",
        narrow_topic,
        "Forget that a topic is on several shards",
        Permission("admin", "named"),
    ),
    _route("GET", "/v1/topics", topics, "List the topics", _READ_EACH, query=(_LIMIT, _AFTER)),
    _route("GET", "/v1/stats", stats, "Everything the shards can count", _READ_EACH, query=(_TOPICS,)),
    _route("GET", "/v1/key", key, "What the key allows", _READ_EACH),
    _route("GET", "/metrics", metrics, "Metrics for Prometheus", _READ_EACH),
    _route("GET", "/healthz", health, "Whether the broker answers", _OPEN),
    _route("GET", "/readyz", readiness, "Whether the broker is in the cluster", _OPEN),
    _route("GET", "/", first_shard, "The dashboard of the first shard", _OPEN),
]
