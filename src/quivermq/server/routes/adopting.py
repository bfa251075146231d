"""What another queue knew of messages that were imported from it."""

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from quivermq.delivery.adoption import ATTEMPTS_MAX, RUNS_MAX, Progress, Tried
from quivermq.errors import InvalidRequest
from quivermq.frame import parse_header
from quivermq.server.broker import Broker
from quivermq.server.http import FRAME, Request, Response, json_response
from quivermq.server.messages_json import PastMoment, Priority
from quivermq.server.query import PRIORITY, choice_of, number_of, number_parameter
from quivermq.server.routes.publish import PutOut
from quivermq.server.routing import WHOLE_BODY, Route
from quivermq.server.shapes import Count, Offset
from quivermq.topic.adopted_ids import ADOPTED_MAX, AdoptedId

PartitionNumber = Annotated[int, Meta(ge=0, le=1023)]
_PARTITION = number_parameter("partition", "Where they go.", 0, 1023, default=0)
_EXAMPLE = {"position": 12, "tried": [{"start": 4, "end": 5, "attempts": 2}]}


class TriedIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages that follow each other, from `start` up to before `end`, each delivered so often."""

    start: Offset
    end: Offset
    attempts: Annotated[int, Meta(ge=0, le=ATTEMPTS_MAX)]


class ProgressIn(msgspec.Struct, forbid_unknown_fields=True):
    """How far a group came: before `position` all is finished but for what was `tried`."""

    position: Offset | None = None
    tried: Annotated[list[TriedIn], Meta(max_length=RUNS_MAX)] = []

    def made(self) -> Progress:
        return Progress(self.position, [Tried(run.start, run.end, run.attempts) for run in self.tried])


class AdoptIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group goes on; `expected` is where it was put before, if it was."""

    schema_extra: ClassVar[dict[str, Any]] = {"examples": [{"progress": _EXAMPLE}]}

    progress: ProgressIn
    partition: PartitionNumber = 0
    priority: Priority = "normal"
    expected: ProgressIn | None = None


class AdoptedOut(msgspec.Struct):
    """False says that the group has been elsewhere meanwhile, and is left alone."""

    adopted: bool


class AdoptedIdIn(msgspec.Struct, forbid_unknown_fields=True):
    """A deduplication id, until when it is remembered, and where its message is, if it is here."""

    dedup_id: Annotated[str, Meta(min_length=1, max_length=1024)]
    expires_at: PastMoment
    partition: PartitionNumber = 0
    priority: Priority = "normal"
    offset: Offset | None = None


class AdoptIdsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Deduplication ids."""

    ids: Annotated[list[AdoptedIdIn], Meta(max_length=ADOPTED_MAX)]


class AdoptedIdsOut(msgspec.Struct):
    """How many of them still hold."""

    adopted: Count


async def adopt(broker: Broker, request: Request, body: AdoptIn) -> Response:
    """Let a group go on where another queue was, from which the messages of a lane were imported.

    With a position, only where the group has never been, or is where `expected` says. Without one, only the
    attempts of messages are taken over that the group has not had.
    """
    is_adopted = await broker.run(
        broker.engine.adopt,
        request.params["topic"],
        request.params["group"],
        body.progress.made(),
        partition=body.partition,
        priority=body.priority,
        expected=None if body.expected is None else body.expected.made(),
    )
    return json_response(AdoptedOut(is_adopted))


async def adopt_ids(broker: Broker, request: Request, body: AdoptIdsIn) -> Response:
    """Remember deduplication ids that another queue knew. An id may be `sha256:` and the hash of one."""
    ids = [AdoptedId(*msgspec.structs.astuple(each)) for each in body.ids]
    return json_response(
        AdoptedIdsOut(await broker.run(broker.engine.adopt_ids, request.params["topic"], ids))
    )


async def adopt_dead_letters(broker: Broker, request: Request) -> Response:
    """Append a frame of messages that another queue gave up, and believe what their headers tell of it.

    Which topic they are dead letters of follows from where they are, not from a header.
    """
    if request.content_type != FRAME:
        raise InvalidRequest(f"the body is a frame, so its Content-Type is {FRAME}")
    put = await broker.run(
        broker.engine.adopt_dead_letters,
        request.params["topic"],
        request.body,
        partition=number_of(request, _PARTITION),
        priority=choice_of(request, PRIORITY),
    )
    return json_response({**put._asdict(), "count": parse_header(request.body).message_count})


ROUTES: list[Route] = [
    Route(
        "POST",
        "/v1/topics/{topic}/dead-letters",
        adopt_dead_letters,
        summary="Append dead letters of another queue",
        tag="dead letters",
        query=(_PARTITION, PRIORITY),
        consumes=(FRAME,),
        returns={200: PutOut},
        errors=(413, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/groups/{group}/adopt",
        adopt,
        summary="Let a group go on where another queue was",
        tag="groups",
        body=AdoptIn,
        body_bytes_max=WHOLE_BODY,
        returns={200: AdoptedOut},
        errors=(404, 416, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/dedup_ids",
        adopt_ids,
        summary="Remember deduplication ids of another queue",
        tag="messages",
        body=AdoptIdsIn,
        body_bytes_max=WHOLE_BODY,
        returns={200: AdoptedIdsOut},
        errors=(404, 416, 507),
    ),
]
