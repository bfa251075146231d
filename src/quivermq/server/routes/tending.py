"""What an operator does: purge a topic, pause a group, and let things come before their time."""

from quivermq.engine import Queue
from quivermq.errors import NotFound
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.routing import Route
from quivermq.server.shapes import CancelIn, Cancelled, Purged, Retried


async def purge(broker: Broker, request: Request) -> Response:
    """Take every message out of a topic for good, delayed ones included. Dead letters stay."""
    return json_response(Purged(await broker.run(broker.engine.queue(request.params["topic"]).purge)))


async def cancel_many(broker: Broker, request: Request, body: CancelIn) -> Response:
    """Call delayed messages off. Those that do not wait any more are passed over."""
    topic = broker.engine.hosted(request.params["topic"]).name
    return json_response(Cancelled(await broker.run(broker.engine.queue(topic).cancel_many, body.ids)))


async def deliver_now(broker: Broker, request: Request) -> Response:
    """Let a delayed message come before it is due."""
    topic, scheduled_id = broker.engine.hosted(request.params["topic"]).name, request.params["id"]
    if not await broker.run(broker.engine.queue(topic).deliver_now, scheduled_id):
        raise NotFound(
            f"no delayed message {scheduled_id[:80]} waits: it was delivered or cancelled before"
        )
    return Response(204)


async def pause(broker: Broker, request: Request) -> Response:
    """Give a group nothing more of a topic until it is resumed, also after a restart."""
    await broker.run(_group(broker, request).pause)
    return Response(204)


async def resume(broker: Broker, request: Request) -> Response:
    """Let a group go on that was paused."""
    await broker.run(_group(broker, request).resume)
    return Response(204)


async def retry_now(broker: Broker, request: Request) -> Response:
    """Let everything that failed and waits for its next attempt have it now."""
    return json_response(Retried(await broker.run(_group(broker, request).retry_now)))


def _group(broker: Broker, request: Request) -> Queue:
    return broker.engine.queue(request.params["topic"], request.params["group"])


ROUTES: list[Route] = [
    Route(
        "POST",
        "/v1/topics/{topic}/purge",
        purge,
        summary="Take every message out of a topic for good",
        tag="topics",
        returns={200: Purged},
        errors=(404, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/scheduled/cancel",
        cancel_many,
        summary="Cancel delayed messages",
        tag="delayed messages",
        body=CancelIn,
        returns={200: Cancelled},
        errors=(404, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/scheduled/{id}/deliver",
        deliver_now,
        summary="Deliver a delayed message now",
        tag="delayed messages",
        returns={204: None},
        errors=(404, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/groups/{group}/pause",
        pause,
        summary="Pause a group",
        tag="groups",
        returns={204: None},
        errors=(404, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/groups/{group}/resume",
        resume,
        summary="Let a paused group go on",
        tag="groups",
        returns={204: None},
        errors=(404, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/groups/{group}/retry",
        retry_now,
        summary="Retry now what failed",
        tag="groups",
        returns={200: Retried},
        errors=(404, 507),
    ),
]
