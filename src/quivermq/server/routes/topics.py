"""Topics: create, list, look at, alter, delete."""

from typing import Any

from quivermq.engine import Engine
from quivermq.engine.lanes import lanes_of
from quivermq.engine.stats import TopicStats
from quivermq.errors import InvalidRequest
from quivermq.server.access import check_topics, may_see
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.routing import Route
from quivermq.server.shapes import SettingsIn, TopicIn, TopicList, TopicWithSettings
from quivermq.settings.setting import settings_of
from quivermq.topic.names import check_topic_name
from quivermq.topic.settings import TopicSettings


async def create_topic(broker: Broker, request: Request, body: dict[str, Any]) -> Response:
    """Make a topic that is not there yet."""
    name = body.pop("name", None)
    if name is None:
        raise InvalidRequest('a topic needs a name: send {"name": …} and the settings beside it')
    check_topic_name(name)
    check_topics(request, [name])
    _check_names(body)
    await broker.run(lambda: broker.engine.create_topic(name, **body))
    return json_response(await broker.run(_with_settings, broker.engine, name), 201)


async def alter_topic(broker: Broker, request: Request, body: dict[str, Any]) -> Response:
    """Change some settings and leave the others as they are."""
    name = request.params["topic"]
    _check_names(body)
    await broker.run(lambda: broker.engine.alter_topic(name, **body))
    return json_response(await broker.run(_with_settings, broker.engine, name))


async def list_topics(broker: Broker, request: Request) -> Response:
    """Every topic that the key may know of."""
    topics = (await broker.run(broker.engine.stats)).topics
    shown = [_figures(stats) for name, stats in topics.items() if may_see(request, name)]
    return json_response({"topics": shown})


async def show_topic(broker: Broker, request: Request) -> Response:
    """One topic, its settings and what its logs hold."""
    return json_response(await broker.run(_with_settings, broker.engine, request.params["topic"]))


async def delete_topic(broker: Broker, request: Request) -> Response:
    """Remove a topic, its messages and what its groups know. Its dead letters stay."""
    await broker.run(broker.engine.delete_topic, request.params["topic"])
    return Response(204)


def _check_names(settings: dict[str, Any]) -> None:
    """Raise InvalidSettings for one that there is not: only known names may become arguments."""
    unknown = [name for name in settings if name not in settings_of(TopicSettings)]
    if unknown:
        TopicSettings.from_json(dict.fromkeys(unknown), origin="the request")


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
        scope="admin",
        tag="topics",
        body=TopicIn,
        returns={201: TopicWithSettings},
        errors=(409, 507),
        checks_topics=True,
    ),
    Route(
        "GET",
        "/v1/topics",
        list_topics,
        summary="List the topics",
        scope="read",
        tag="topics",
        returns={200: TopicList},
        checks_topics=True,
    ),
    Route(
        "GET",
        "/v1/topics/{topic}",
        show_topic,
        summary="Show a topic and its settings",
        scope="read",
        tag="topics",
        returns={200: TopicWithSettings},
        errors=(404,),
    ),
    Route(
        "PATCH",
        "/v1/topics/{topic}",
        alter_topic,
        summary="Change settings of a topic",
        scope="admin",
        tag="topics",
        body=SettingsIn,
        returns={200: TopicWithSettings},
        errors=(404, 507),
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}",
        delete_topic,
        summary="Delete a topic and its messages",
        scope="admin",
        tag="topics",
        returns={204: None},
        errors=(404,),
    ),
]
