"""Topics: create, list, look at, alter, delete."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.engine import Engine
from quivermq.engine.statistics import Survey
from quivermq.errors import InvalidRequest
from quivermq.model.names import DEAD_LETTER_SUFFIX, check_topic_name
from quivermq.model.stats_json import topic_stats_json
from quivermq.model.topic_settings import TopicSettings
from quivermq.model.turns import in_turns
from quivermq.server.access import check_topics, may_see
from quivermq.server.broker import Broker
from quivermq.server.figures import Answers, Wanted
from quivermq.server.http import Request, Response, encode_json, json_response
from quivermq.server.routing import Calls, Parameter, Route, number_given, number_parameter
from quivermq.server.shapes import NAME_SCHEMA, Count, GroupFigures, PriorityOut, settings_schema
from quivermq.settings.setting import settings_of

_LIMIT = number_parameter("limit", "List at most this many; by default all.", 1, 100_000)
_AFTER = Parameter(
    "after",
    NAME_SCHEMA,
    "Only the topics behind this one, by name: the `next` of an answer that was cut short by `limit`.",
)
_EXIST_OK: dict[str, Any] = {
    "type": "boolean",
    "description": "Whether a topic that is there already is left as it is, and answered with 200.",
}

# Unknown ones are left to the engine, which names them and knows which one was meant.
SettingsIn = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={**settings_schema(), "examples": [{"lease_ms": 60000, "attempts_max": 5}]}),
]
TopicIn = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            **settings_schema(name=NAME_SCHEMA, exist_ok=_EXIST_OK),
            "required": ["name"],
            "examples": [{"name": "orders", "partitions": 3, "lease_ms": 60000}],
        }
    ),
]


class TopicOut(msgspec.Struct):
    """A topic, and its groups by name."""

    name: str
    partitions: Count
    messages: Count
    bytes: Count
    delayed: Count
    dead_letters: Count
    dead_letters_of: str | None
    groups: dict[str, GroupFigures]


class TopicLaneOut(msgspec.Struct):
    """What one partition and priority holds: `start` up to `end`. Below `sealed` nothing changes.

    What lies below `synced` survives power loss.
    """

    partition: Count
    priority: PriorityOut
    start: Count
    sealed: Count
    end: Count
    bytes: Count
    synced: Count


class TopicWithSettings(TopicOut):
    """A topic, when it was made, in unix microseconds, how it is set and what its logs hold.

    The settings may be sent back with PATCH as they are.
    """

    created_at: Count
    settings: SettingsIn
    lanes: list[TopicLaneOut]


class TopicList(msgspec.Struct):
    """The topics, by name. `next` is there when `limit` left some out: send it as `after`."""

    topics: list[TopicOut]
    next: str | UnsetType = UNSET


_CREATED = {200: TopicWithSettings, 201: TopicWithSettings}

ROUTES: list[Route] = []
_topics = Calls(ROUTES, "/v1/topics", "topics")


@_topics("POST", "", "Create a topic", _CREATED, errors=(409, 507))
async def create_topic(broker: Broker, request: Request, body: TopicIn) -> Response:
    """Make a topic that is not there yet. With `exist_ok`, one that is there stays as it is."""
    name, exist_ok = body.pop("name", None), body.pop("exist_ok", False)
    if name is None:
        raise InvalidRequest('a topic needs a name: send {"name": …} and the settings beside it')
    check_topic_name(name)
    check_topics(request, [name])
    if not isinstance(exist_ok, bool):
        raise InvalidRequest(f"exist_ok is true or false, not {exist_ok!r:.80}")
    _check_names(body)
    _check_suffix(request, name, body)
    is_new = broker.engine.catalog.find(name) is None
    await broker.run(lambda: broker.engine.create_topic(name, exist_ok, body))
    return json_response(await broker.run(_with_settings, broker.engine, name), 201 if is_new else 200)


@_topics("GET", "", "List the topics", TopicList, query=(_LIMIT, _AFTER), errors=())
async def list_topics(broker: Broker, request: Request) -> bytes:
    """Every topic that the key may know of, or some of them."""
    key, limit, after = request.key, number_given(request, _LIMIT), request.query.get("after", "")
    if "after" in request.query:
        check_topic_name(after)
    return await broker.part(Answers).answer_of_look(
        ("topics", key, limit, after),
        lambda survey: encode_json(_listed(survey, lambda name: may_see(request, name), limit, after)),
    )


@_topics("GET", "/{topic}", "Show a topic and its settings", TopicWithSettings)
async def show_topic(broker: Broker, request: Request) -> bytes:
    """One topic, its settings and what its logs hold."""
    name = request.params["topic"]
    return await broker.part(Answers).answer(
        ("topic", name), lambda: encode_json(_with_settings(broker.engine, name))
    )


@_topics(
    "PATCH",
    "/{topic}",
    "Change settings of a topic",
    TopicWithSettings,
    errors=(404, 409, 507),
)
async def alter_topic(broker: Broker, request: Request, body: SettingsIn) -> dict[str, Any]:
    """Change some settings and leave the others as they are."""
    name = request.params["topic"]
    _check_names(body)
    await broker.run(lambda: broker.engine.alter_topic(name, body))
    return await broker.run(_with_settings, broker.engine, name)


@_topics("DELETE", "/{topic}", "Delete a topic and its messages")
async def delete_topic(broker: Broker, request: Request) -> None:
    """Remove a topic, its messages and what its groups know. Its dead letters stay."""
    await broker.run(broker.engine.delete_topic, request.params["topic"])


@_topics(
    "POST",
    "/{topic}/sync",
    "Wait until everything that was put into a topic is on stable storage",
    errors=(404, 507),
)
async def sync_topic(broker: Broker, request: Request) -> None:
    """Answer once everything that was put into the topic so far is on stable storage."""
    await broker.run(broker.engine.catalog.get(request.params["topic"]).sync)


def _listed(survey: Survey, wanted: Wanted, limit: int | None, after: str) -> dict[str, Any]:
    topics = survey.stats.topics
    names = [name for name in topics if name > after and wanted(name)]
    shown = [topic_stats_json(topics[name]) for name in in_turns(names[:limit])]
    # What to send as `after` for those that follow.
    return {"topics": shown, **({"next": names[limit - 1]} if limit and limit < len(names) else {})}


def _check_names(settings: dict[str, Any]) -> None:
    """Raise InvalidSettings for one that there is not: only known names may become arguments."""
    unknown = [name for name in settings if name not in settings_of(TopicSettings)]
    if unknown:
        TopicSettings.from_json(dict.fromkeys(unknown), origin="the request")


def _check_suffix(request: Request, name: str, settings: dict[str, Any]) -> None:
    """Raise Denied when dead letters are to go where a key is not for: it would get that topic by it."""
    suffix = settings.get("dead_letter_suffix", DEAD_LETTER_SUFFIX)
    if isinstance(suffix, str) and suffix != DEAD_LETTER_SUFFIX:
        check_topics(request, [name + suffix])


def _with_settings(engine: Engine, name: str) -> dict[str, Any]:
    stats, extent = engine.inspection.topic(name), engine.extent(name)
    return {
        **topic_stats_json(stats),
        "created_at": extent.created_us,
        "settings": extent.settings.to_json(),
        "lanes": [
            {"partition": lane.partition, "priority": lane.priority, **bounds._asdict()}
            for lane, bounds in extent.lanes.items()
        ],
    }
