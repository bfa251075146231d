"""Topics: create, list, look at, alter, delete."""

from typing import Any

from quivermq.engine import Engine
from quivermq.engine.lanes import lanes_of
from quivermq.engine.stats import TopicStats
from quivermq.engine.survey import Survey
from quivermq.engine.turns import in_turns
from quivermq.errors import InvalidRequest
from quivermq.server.access import check_topics, may_see
from quivermq.server.broker import Broker
from quivermq.server.figures import Answers, Looks, Wanted
from quivermq.server.http import JSON, Request, Response, encode_json, json_response
from quivermq.server.query import number_given, number_parameter
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import NAME_SCHEMA, SettingsIn, TopicIn, TopicList, TopicWithSettings
from quivermq.settings.setting import settings_of
from quivermq.topic.names import DEAD_LETTER_SUFFIX, check_topic_name
from quivermq.topic.settings import TopicSettings

_LIMIT = number_parameter("limit", "List at most this many; by default all.", 1, 100_000)
_AFTER = Parameter(
    "after",
    NAME_SCHEMA,
    "Only the topics behind this one, by name: the `next` of an answer that was cut short by `limit`.",
)


async def create_topic(broker: Broker, request: Request, body: dict[str, Any]) -> Response:
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
    is_new = broker.engine.find(name) is None
    await broker.run(lambda: broker.engine.create_topic(name, exist_ok=exist_ok, **body))
    return json_response(await broker.run(_with_settings, broker.engine, name), 201 if is_new else 200)


async def alter_topic(broker: Broker, request: Request, body: dict[str, Any]) -> Response:
    """Change some settings and leave the others as they are."""
    name = request.params["topic"]
    _check_names(body)
    await broker.run(lambda: broker.engine.alter_topic(name, **body))
    return json_response(await broker.run(_with_settings, broker.engine, name))


async def list_topics(broker: Broker, request: Request) -> Response:
    """Every topic that the key may know of, or some of them."""
    key, limit, after = request.key, number_given(request, _LIMIT), request.query.get("after", "")
    if "after" in request.query:
        check_topic_name(after)
    answer = await broker.part(Looks).answer(
        ("topics", key, limit, after),
        lambda survey: encode_json(_listed(survey, lambda name: may_see(request, name), limit, after)),
    )
    return Response(200, answer, JSON)


def _listed(survey: Survey, wanted: Wanted, limit: int | None, after: str) -> dict[str, Any]:
    topics = survey.stats.topics
    names = [name for name in topics if name > after and wanted(name)]
    shown = [_figures(topics[name]) for name in in_turns(names[:limit])]
    # What to send as `after` for those that follow.
    return {"topics": shown, **({"next": names[limit - 1]} if limit and limit < len(names) else {})}


async def show_topic(broker: Broker, request: Request) -> Response:
    """One topic, its settings and what its logs hold."""
    name = request.params["topic"]
    answer = await broker.part(Answers).answer(
        ("topic", name), lambda: encode_json(_with_settings(broker.engine, name))
    )
    return Response(200, answer, JSON)


async def delete_topic(broker: Broker, request: Request) -> Response:
    """Remove a topic, its messages and what its groups know. Its dead letters stay."""
    await broker.run(broker.engine.delete_topic, request.params["topic"])
    return Response(204)


async def sync_topic(broker: Broker, request: Request) -> Response:
    """Answer once everything that was put into the topic so far is on stable storage."""
    await broker.run(broker.engine.hosted(request.params["topic"]).sync)
    return Response(204)


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
    hosted = engine.hosted(name)
    return {
        **_figures(engine.topic_stats(hosted)),
        "created_at": engine.created_us(name),
        "settings": hosted.settings.to_json(),
        "lanes": [lane._asdict() for lane in lanes_of(hosted)],
    }


def _figures(stats: TopicStats) -> dict[str, Any]:
    figures = stats.as_dict()
    return {"name": figures.pop("topic"), **figures}


ROUTES: list[Route] = [
    Route(
        "POST",
        "/v1/topics",
        create_topic,
        summary="Create a topic",
        tag="topics",
        body=TopicIn,
        returns={200: TopicWithSettings, 201: TopicWithSettings},
        errors=(409, 507),
    ),
    Route(
        "GET",
        "/v1/topics",
        list_topics,
        summary="List the topics",
        tag="topics",
        query=(_LIMIT, _AFTER),
        returns={200: TopicList},
    ),
    Route(
        "GET",
        "/v1/topics/{topic}",
        show_topic,
        summary="Show a topic and its settings",
        tag="topics",
        returns={200: TopicWithSettings},
        errors=(404,),
    ),
    Route(
        "PATCH",
        "/v1/topics/{topic}",
        alter_topic,
        summary="Change settings of a topic",
        tag="topics",
        body=SettingsIn,
        returns={200: TopicWithSettings},
        errors=(404, 409, 507),
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}",
        delete_topic,
        summary="Delete a topic and its messages",
        tag="topics",
        returns={204: None},
        errors=(404,),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/sync",
        sync_topic,
        summary="Wait until everything that was put into a topic is on stable storage",
        tag="topics",
        returns={204: None},
        errors=(404, 507),
    ),
]
