"""Groups: how far one has come with a topic, what it has in hand, to go on from elsewhere, to forget it."""

from itertools import islice
from typing import Any, ClassVar, Literal

import msgspec

from quivermq.delivery.state import Unfinished, UnfinishedState
from quivermq.engine import Engine
from quivermq.engine.inspection import group_not_found
from quivermq.engine.looking import BEFORE_ALL
from quivermq.errors import InvalidRequest
from quivermq.model.checks import moment_us
from quivermq.model.lanes import Priority
from quivermq.model.names import check_group_name
from quivermq.model.operations import SeekTarget
from quivermq.server.broker import Broker
from quivermq.server.delivering import queue_of
from quivermq.server.http import Request
from quivermq.server.routing import AFTER, Calls, Parameter, Route, number_of, number_parameter, place_after
from quivermq.server.shapes import (
    Count,
    GroupFigures,
    Offset,
    PartitionNumber,
    PastMoment,
    PriorityOut,
    exactly_one,
)

# So many of the messages in flight are shown.
_HELD_MAX = 100

_LIMIT = number_parameter("limit", "How many at most.", 1, 10_000, default=100)
_STATE = Parameter(
    "state", {"type": "string", "enum": ["in_flight"]}, "Only what somebody has. By default all."
)


class LaneOut(msgspec.Struct):
    """How far a group has come in one partition and priority. `position` is the next one it gets."""

    partition: Count
    priority: PriorityOut
    position: Count
    start: Count
    end: Count
    lag: Count
    in_flight: Count
    retrying: Count
    waiting_for_key: Count


class HeldOut(msgspec.Struct):
    """A message that `owner` has until `deadline`, and when it was delivered first and last.

    Times are unix microseconds.
    """

    partition: Count
    priority: PriorityOut
    offset: Count
    attempt: Count
    deadline: int
    owner: str | None
    first_delivered_at: int | None
    last_delivered_at: int | None


class UnfinishedOut(msgspec.Struct):
    """A message that somebody has until `time`, or that is due again at `time`, in unix microseconds.

    What waits for earlier ones of its key, or was released and never failed, is due at 0. `owner` is who
    received it: its agent, its address and the id of its key; null for what nobody has. It was delivered
    first and last at these times, null where it never was.
    """

    partition: Count
    priority: PriorityOut
    offset: Count
    attempt: Count
    state: UnfinishedState
    time: int
    owner: str | None
    first_delivered_at: int | None
    last_delivered_at: int | None


class DeliveryList(msgspec.Struct):
    """What a group has not finished, lane by lane."""

    deliveries: list[UnfinishedOut]


class SegmentOut(msgspec.Struct):
    """A file of a lane: messages `base_offset` up to before `end_offset`. Times are unix microseconds."""

    partition: Count
    priority: PriorityOut
    base_offset: Count
    end_offset: Count
    bytes: Count
    sealed: bool
    first_timestamp: int | None
    last_timestamp: int | None


class SegmentList(msgspec.Struct):
    """The segments of a topic, lane by lane."""

    segments: list[SegmentOut]


class MemberOut(msgspec.Struct):
    """A member of a group in stream mode, by the beginning of its id, and its partitions of the topic."""

    member: str
    client: str
    partitions: list[int]


class GroupOut(GroupFigures):
    """A topic as one group sees it."""

    lag: Count
    partitions: list[LaneOut]
    deliveries: list[HeldOut]
    members: list[MemberOut]


class SeekIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group goes on: at one of `to`, `offset` and `timestamp`."""

    schema_extra: ClassVar[dict[str, Any]] = {
        **exactly_one("to", "offset", "timestamp"),
        "examples": [{"to": "earliest"}, {"offset": 17, "partition": 0}],
    }

    to: Literal["earliest", "latest"] | None = None
    offset: Offset | None = None
    timestamp: PastMoment | None = None
    partition: PartitionNumber | None = None
    priority: Priority | None = None


ROUTES: list[Route] = []
_topic = Calls(ROUTES, "/v1/topics/{topic}", "topics")
_group = Calls(ROUTES, "/v1/topics/{topic}/groups/{group}", "groups")


@_group("GET", "", "Show how far a group has come with a topic")
async def show_group(broker: Broker, request: Request) -> GroupOut:
    """A topic as one group sees it."""
    return await broker.run(_group_out, broker.engine, request)


@_group("DELETE", "", "Forget a group")
async def delete_group(broker: Broker, request: Request) -> None:
    """Forget what a group knows of a topic. It begins anew when it comes back."""
    topic, group = request.params["topic"], request.params["group"]
    if not await broker.run(broker.engine.delete_group, topic, group):
        raise group_not_found(topic, group)


@_group("POST", "/seek", "Let a group go on from elsewhere", errors=(404, 409, 416, 507))
async def seek(broker: Broker, request: Request, body: SeekIn) -> GroupOut:
    """Let a group go on from elsewhere. One that is new begins there."""
    timestamp_us = None if body.timestamp is None else moment_us("timestamp", body.timestamp)
    target = SeekTarget(body.to, body.offset, timestamp_us, body.partition, body.priority)
    await broker.run(queue_of(broker, request).seek, target)
    return await broker.run(_group_out, broker.engine, request)


@_group(
    "GET",
    "/deliveries",
    "List what a group has been given and has not finished",
    query=(_LIMIT, AFTER, _STATE),
)
async def list_deliveries(broker: Broker, request: Request) -> DeliveryList:
    """What a group has been given and has not finished."""
    topic, group = request.params["topic"], request.params["group"]
    check_group_name(group)
    limit, after = number_of(request, _LIMIT), place_after(request) or BEFORE_ALL
    state = request.query.get("state")
    if state not in (None, "in_flight"):
        raise InvalidRequest(f"state is in_flight, or left out for all, not {state[:80]!r}")

    def look() -> DeliveryList:
        found = broker.engine.inspection.unfinished(
            topic, group, after, limit, only_in_flight=state is not None
        )
        return DeliveryList(
            [
                UnfinishedOut(
                    **_attempt(partition, priority, each),
                    state=each.state,
                    time=each.time_us,
                    owner=each.holder if each.state == "in_flight" else None,
                )
                for partition, priority, each in islice(found, limit)
            ]
        )

    return await broker.run(look)


@_topic("GET", "/segments", "List the segments of a topic", query=(_LIMIT, AFTER))
async def list_segments(broker: Broker, request: Request) -> SegmentList:
    """The files of a topic's lanes."""
    inspection, topic = broker.engine.inspection, request.params["topic"]
    limit, after = number_of(request, _LIMIT), place_after(request) or BEFORE_ALL

    def look() -> SegmentList:
        return SegmentList([SegmentOut(*each) for each in islice(inspection.segments(topic, after), limit)])

    return await broker.run(look)


def _group_out(engine: Engine, request: Request) -> GroupOut:
    topic, name = request.params["topic"], request.params["group"]
    check_group_name(name)
    group = engine.inspection.group(topic, name, _HELD_MAX)
    return GroupOut(
        **group.stats.as_dict(),
        lag=group.stats.pending,
        partitions=[LaneOut(*lane) for lane in group.lanes],
        deliveries=[
            HeldOut(**_attempt(partition, priority, held), deadline=held.time_us, owner=held.holder)
            for partition, priority, held in group.in_flight
        ],
        members=[
            MemberOut(
                member.member,
                member.client,
                [each.partition for each in member.partitions if each.topic == topic],
            )
            for member in group.members
        ],
    )


def _attempt(partition: int, priority: str, each: Unfinished) -> dict[str, Any]:
    """What is known of a message that was delivered, whoever has it now."""
    return {
        "partition": partition,
        "priority": priority,
        "offset": each.offset,
        "attempt": each.attempt,
        "first_delivered_at": each.first_us,
        "last_delivered_at": each.last_us,
    }
