"""Receiving: what is there at once, or what comes first."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from quivermq.delivery.taken import Grant, Taken, deliveries_of
from quivermq.engine import EngineQueue
from quivermq.model.json import DELIVERY, delivery_json
from quivermq.model.names import is_pattern
from quivermq.server.answers import FRAME_COPIES, JSON_COPIES, making_bytes
from quivermq.server.broker import Broker
from quivermq.server.delivering import Token, Withdrawn, may_wait, packed, queue_of
from quivermq.server.http import Request, Response, json_response
from quivermq.server.polling import Polls
from quivermq.server.routing import Answer, Calls, Route
from quivermq.server.shapes import WAIT_MS_MAX, MessageOut

_RECEIVE_MAX = 10_000
# An answer is made in memory, so that large messages come a few at a time.
_RECEIVE_BYTES = 8 * 1024 * 1024
# What a message has, where nobody knows better.
_USUAL_BYTES = 4096
_AGENT_MAX = 120


class ReceiveIn(msgspec.Struct, forbid_unknown_fields=True):
    """How many messages, and how long to wait for the first."""

    max: Annotated[int, Meta(ge=1, le=_RECEIVE_MAX)] = 1
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0
    lease_ms: Annotated[int, Meta(ge=1, le=WAIT_MS_MAX)] | None = None
    pop: bool = False
    """Whether they are acknowledged at once."""
    token: Token | None = None
    """The token of the leases: a random number, new for each call, with which `release` takes it back."""


class ReceiveOut(msgspec.Struct):
    """The messages, each with the receipt that settles it."""

    messages: list[MessageOut]


class WaitIn(msgspec.Struct, forbid_unknown_fields=True):
    """How long to wait at most."""

    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0


class WaitOut(msgspec.Struct):
    """Whether there seems to be something to receive."""

    ready: bool


ROUTES: list[Route] = []
_group = Calls(ROUTES, "/v1/topics/{topic}/groups/{group}", "messages", (409, 507))


@_group(
    "POST",
    "/receive",
    "Receive messages, waiting for the first one",
    (ReceiveOut, DELIVERY),
    is_body_optional=True,
)
def receive(broker: Broker, request: Request, body: ReceiveIn) -> Answer:
    """Hand out messages. What is there is answered at once, where that needs no disk."""
    queue = queue_of(broker, request)
    lease = None if body.lease_ms is None else body.lease_ms / 1000
    is_packed, holder = request.accepts(DELIVERY), holder_of(request)
    token, withdrawn = None if body.token is None else int(body.token, 16), broker.part(Withdrawn)

    def take() -> list[Taken]:
        if withdrawn.has(queue, token):
            return []
        count = _affordable(broker, queue, body.max)
        found = queue.take_batches(
            count, lease=lease, pop=body.pop, whole=is_packed, holder=holder, token=token
        )
        if found and withdrawn.has(queue, token):
            # Meanwhile: whoever took it back may have found nothing yet.
            _give_back([batch.grant() for batch in found])
            return []
        return found

    def respond(found: list[Taken]) -> Response:
        response = _response(broker, found, is_packed=is_packed)
        if found and not body.pop:
            # Not the messages: they would stay for as long as the client does not take the answer.
            response.unsent = partial(_give_back_later, broker, [batch.grant() for batch in found])
        return response

    if broker.is_draining:
        return respond([])
    if not may_wait(broker, queue):
        found = take()
        if found or not body.wait_ms:
            return respond(found)
    return _receive(broker, request, queue, take, body.max, body.wait_ms, respond)


@_group(
    "POST",
    "/wait",
    "Wait until there seems to be something to receive, and receive nothing",
    WaitOut,
    is_body_optional=True,
)
async def wait(broker: Broker, request: Request, body: WaitIn) -> Response:
    """For clients that wait for the shards of a topic at once. Somebody else may be faster."""
    queue, loop = queue_of(broker, request), asyncio.get_running_loop()

    async def look() -> list[bool]:
        # In a thread: what is due may have to be written first.
        return [True] if await loop.run_in_executor(broker.threads, queue.is_ready) else []

    seconds = min(body.wait_ms, broker.settings.wait_ms_max) / 1000
    found = await broker.part(Polls).wait_for(queue, look, seconds, request.key)
    if found:
        await loop.run_in_executor(broker.threads, queue.pass_on)
    return json_response({"ready": bool(found)})


def holder_of(request: Request) -> str | None:
    """Who asks, in words for people: the name of its program, its address, the id of its key."""
    agent = request.headers.get("user-agent", "")[:_AGENT_MAX]
    key = "" if request.key is None else f"key {request.key.id}"
    return ", ".join(filter(None, (agent, request.client, key))) or None


async def _receive(
    broker: Broker,
    request: Request,
    queue: EngineQueue,
    take: Callable[[], list[Taken]],
    wanted: int,
    wait_ms: int,
    respond: Callable[[list[Taken]], Response],
) -> Response:
    async def taken() -> list[Taken]:
        if not may_wait(broker, queue):
            return take()
        # When the client has gone, what the thread takes in its name, the same thread gives back, also
        # while the broker is closed.
        found = await broker.make(
            request, _making_bytes(broker, request, queue, wanted), take, _give_back_taken
        )
        if not found and request.portion is not None:
            # It may wait for a long time now.
            request.portion.end()
        return found

    seconds = min(wait_ms, broker.settings.wait_ms_max) / 1000
    found = await broker.part(Polls).wait_for(queue, taken, seconds, request.key)
    return respond(found)


def _give_back_taken(taking: "Future[list[Taken]]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        _give_back([batch.grant() for batch in taking.result()])


def _give_back_later(broker: Broker, grants: list[Grant]) -> None:
    """In a thread, because the disk may have to be waited for."""
    broker.threads.submit(_give_back, grants)


def _give_back(grants: list[Grant]) -> None:
    for grant in grants:
        grant.give_back()


def _affordable(broker: Broker, queue: EngineQueue, wanted: int) -> int:
    """How many messages fit into an answer, going by their average size, of topics the largest one."""
    if wanted == 1:
        return wanted
    largest = broker.engine.inspection.average_bytes(queue.topic) or 1
    return max(1, min(wanted, _RECEIVE_BYTES // largest))


def _making_bytes(broker: Broker, request: Request, queue: EngineQueue, wanted: int) -> int:
    copies = FRAME_COPIES if request.accepts(DELIVERY) else JSON_COPIES
    if not is_pattern(queue.topic) and broker.engine.catalog.find(queue.topic) is not None:
        return making_bytes(broker.engine, queue.topic, wanted, copies)
    # Of a pattern, nobody asks thousands of topics for their sizes on the event loop.
    return min(wanted * _USUAL_BYTES, _RECEIVE_BYTES) * copies


def _response(broker: Broker, found: list[Taken], *, is_packed: bool) -> Response:
    if is_packed:
        return Response(200, packed(found, broker.engine.clock.now_us()), DELIVERY)
    return json_response({"messages": list(map(delivery_json, deliveries_of(found)))})
