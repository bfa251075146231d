"""Producers whose batches may be repeated: beginning anew as one of them."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from quivermq.errors import InvalidRequest
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.messages_json import Lane
from quivermq.server.routing import Route
from quivermq.server.shapes import Count, Offset
from quivermq.topic.put import PRODUCER_ID_MAX

_KNOWN_SINCE = "Producers that were last heard of before that time may be forgotten; 0 when none is."
_ID = re.compile(r"[0-9]{1,20}", re.ASCII)


class FirstFrameOut(msgspec.Struct):
    """Where the first frame lies that the producer ever sent to a lane."""

    partition: Count
    priority: Lane
    offset: Offset


class ProducerOut(msgspec.Struct):
    """The epoch to send with from now on, and the lanes that have frames of earlier ones."""

    epoch: Annotated[int, Meta(ge=0, lt=2**16 - 1)]
    batches: list[FirstFrameOut]
    known_since_us: Annotated[int, Meta(ge=0, description=_KNOWN_SINCE)]


async def begin_producer(broker: Broker, request: Request) -> Response:
    """Give a producer its next epoch. Frames of its earlier epochs are refused from then on, with 409."""
    text = request.params["producer_id"]
    if not _ID.fullmatch(text):
        raise InvalidRequest(f"producer_id is a number from 1 to {PRODUCER_ID_MAX}, not {text[:80]!r}")
    state = await broker.run(broker.engine.begin_producer, request.params["topic"], int(text))
    batches = [FirstFrameOut(*batch) for batch in state.batches]
    return json_response(ProducerOut(state.epoch, batches, state.known_since_us))


ROUTES: list[Route] = [
    Route(
        "POST",
        "/v1/topics/{topic}/producers/{producer_id}",
        begin_producer,
        summary="Begin anew as a producer; a topic that is new is created",
        tag="messages",
        returns={200: ProducerOut},
        errors=(404, 409, 507),
    ),
]
