"""What operators and importers do: adopt what another queue knew, compact, purge, pause, archive."""

import re
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from quivermq.delivery.adoption import ATTEMPTS_MAX, RUNS_MAX
from quivermq.errors import InvalidRequest
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.json import FRAME
from quivermq.model.lanes import Priority
from quivermq.model.topic_settings import PARTITIONS_MAX
from quivermq.server.broker import Broker
from quivermq.server.delivering import queue_of
from quivermq.server.http import Request
from quivermq.server.routes.dead_letters import not_waiting
from quivermq.server.routes.publish import PutOut, frame_stored
from quivermq.server.routing import (
    PRIORITY,
    WHOLE_BODY,
    Calls,
    Parameter,
    Route,
    choice_of,
    number_of,
    number_parameter,
    offset_of,
    partition_of,
)
from quivermq.server.shapes import Count, Offset, PartitionNumber, PastMoment
from quivermq.topic.dedup_index import ADOPTED_MAX

T = TypeVar("T")
_STAMP = re.compile(r"[0-9]{1,19}-[0-9a-f]{8}", re.ASCII)
_PARTITION = number_parameter("partition", "Where they go.", 0, PARTITIONS_MAX - 1, default=0)
_EXPECTED = Parameter(
    "expected",
    {"type": "string", "pattern": "^[0-9]{1,19}-[0-9a-f]{8}$"},
    "The stamp of the frames that are to go: their bytes in all, and the CRC-32C of their headers.",
    required=True,
)
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


class ReplacedOut(msgspec.Struct):
    """How large the segment was, and is."""

    bytes_before: Count
    bytes_after: Count


class Purged(msgspec.Struct):
    """How many messages were taken out of the topic."""

    purged: Count


class CancelIn(msgspec.Struct, forbid_unknown_fields=True):
    """Which delayed messages."""

    schema_extra: ClassVar[dict[str, Any]] = {"examples": [{"ids": ["643f1a2b3c4d5-1-0"]}]}

    ids: Annotated[list[str], Meta(max_length=1000)]


class Cancelled(msgspec.Struct):
    """How many delayed messages were still waiting, and never come."""

    cancelled: Count


class Retried(msgspec.Struct):
    """How many messages have their next attempt now."""

    retried: Count


class ArchiveIn(msgspec.Struct, forbid_unknown_fields=True):
    """Which directory is the archive; none is."""

    schema_extra: ClassVar[dict[str, Any]] = {"examples": [{"directory": "/mnt/archive"}]}

    directory: str | None


class ArchiveOut(msgspec.Struct):
    """Which directory is the archive; none is."""

    directory: str | None


ROUTES: list[Route] = []
_topic = Calls(ROUTES, "/v1/topics/{topic}", "topics", (404, 507))
_delayed = Calls(ROUTES, "/v1/topics/{topic}/scheduled", "delayed messages", (404, 507))
_group = Calls(ROUTES, "/v1/topics/{topic}/groups/{group}", "groups", (404, 507))
_archive = Calls(ROUTES, "/v1/archive", "operations", ())


# What another queue knew of messages that were imported from it.


@_topic(
    "POST",
    "/dead-letters",
    "Append dead letters of another queue",
    PutOut,
    tag="dead letters",
    query=(_PARTITION, PRIORITY),
    consumes=(FRAME,),
    errors=(413, 507),
)
async def adopt_dead_letters(broker: Broker, request: Request) -> dict[str, Any]:
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
    return frame_stored(put, request.body)


@_group(
    "POST",
    "/adopt",
    "Let a group go on where another queue was",
    body_bytes_max=WHOLE_BODY,
    errors=(404, 416, 507),
)
async def adopt(broker: Broker, request: Request, body: AdoptIn) -> AdoptedOut:
    """Let a group go on where another queue was, from which the messages of a lane were imported.

    With a position, only where the group has never been, or is where `expected` says. Without one, only the
    attempts of messages are taken over that the group has not had.
    """
    is_adopted = await broker.run(
        broker.engine.adopt,
        request.params["topic"],
        request.params["group"],
        _made(body.progress, Progress),
        partition=body.partition,
        priority=body.priority,
        expected=None if body.expected is None else _made(body.expected, Progress),
    )
    return AdoptedOut(is_adopted)


@_topic(
    "POST",
    "/dedup_ids",
    "Remember deduplication ids of another queue",
    tag="messages",
    body_bytes_max=WHOLE_BODY,
    errors=(404, 416, 507),
)
async def adopt_ids(broker: Broker, request: Request, body: AdoptIdsIn) -> AdoptedIdsOut:
    """Remember deduplication ids that another queue knew. An id may be `sha256:` and the hash of one."""
    ids = _made(body.ids, list[AdoptedId])
    return AdoptedIdsOut(await broker.run(broker.engine.adopt_ids, request.params["topic"], ids))


def _made(given: object, kind: type[T]) -> T:
    """What was given, which has the same fields, as the engine takes it."""
    return msgspec.convert(given, kind, from_attributes=True)


# How compaction reaches a broker.


@_topic(
    "PUT",
    "/partitions/{partition}/segments/{base_offset}",
    "Replace frames of a sealed segment, to compact it",
    query=(_EXPECTED, PRIORITY),
    consumes=(FRAME,),
    errors=(404, 409, 507),
)
async def replace_segment(broker: Broker, request: Request) -> ReplacedOut:
    """Replace frames of a sealed segment by others that take the same offsets.

    The topic has `cleanup` set to `compact`. Frames that were changed since they were read are a 409.
    """
    topic = request.params["topic"]
    partition = partition_of(request, broker.engine.topic(topic).partitions)
    text, expected = request.params["base_offset"], request.query.get("expected", "")
    if (base_offset := offset_of(text)) is None:
        raise InvalidRequest(f"a segment is named by its first offset, not {text[:80]!r}")
    if not _STAMP.fullmatch(expected):
        raise InvalidRequest(
            f"expected is the stamp of the old frames, like 4711-0a1b2c3d, not {expected[:80]!r}"
        )
    if request.content_type != FRAME:
        raise InvalidRequest(f"the body is frames, so its Content-Type is {FRAME}")
    done = await broker.run(
        broker.engine.replace_segment,
        topic,
        partition,
        base_offset,
        request.body,
        expected=expected,
        priority=choice_of(request, PRIORITY),
    )
    return ReplacedOut(*done)


# What an operator does.


@_topic("POST", "/purge", "Take every message out of a topic for good")
async def purge(broker: Broker, request: Request) -> Purged:
    """Take every message out of a topic for good, delayed ones included. Dead letters stay."""
    return Purged(await broker.run(broker.engine.queue(request.params["topic"]).purge))


@_delayed("POST", "/cancel", "Cancel delayed messages")
async def cancel_many(broker: Broker, request: Request, body: CancelIn) -> Cancelled:
    """Call delayed messages off. Those that do not wait any more are passed over."""
    topic = broker.engine.topic(request.params["topic"]).name
    return Cancelled(await broker.run(broker.engine.queue(topic).cancel, body.ids))


@_delayed("POST", "/{id}/deliver", "Deliver a delayed message now")
async def deliver_now(broker: Broker, request: Request) -> None:
    """Let a delayed message come before it is due."""
    topic = broker.engine.topic(request.params["topic"]).name
    if not await broker.run(broker.engine.queue(topic).deliver_now, request.params["id"]):
        raise not_waiting(request)


@_group("POST", "/pause", "Pause a group")
async def pause(broker: Broker, request: Request) -> None:
    """Give a group nothing more of a topic until it is resumed, also after a restart."""
    await broker.run(queue_of(broker, request).pause, True)


@_group("POST", "/resume", "Let a paused group go on")
async def resume(broker: Broker, request: Request) -> None:
    """Let a group go on that was paused."""
    await broker.run(queue_of(broker, request).pause, False)


@_group("POST", "/retry", "Retry now what failed")
async def retry_now(broker: Broker, request: Request) -> Retried:
    """Let everything that failed and waits for its next attempt have it now."""
    return Retried(await broker.run(queue_of(broker, request).retry_now))


# Where the archive is: what was moved out of the logs and is read as if it had not been.


@_archive("GET", "", "Where the archive is")
async def show(broker: Broker, _: Request) -> ArchiveOut:
    """The directory of the archive."""
    directory = await broker.run(broker.engine.archive.look)
    return ArchiveOut(None if directory is None else str(directory))


@_archive("POST", "", "Name the archive, a directory that the broker can read", errors=(404,))
async def use(broker: Broker, request: Request, body: ArchiveIn) -> ArchiveOut:
    """Name the directory of the archive, or none."""
    await broker.run(broker.engine.use_archive, body.directory)
    return await show(broker, request)
