"""The state of the queue in full, page by page: what tables are made of."""

from collections.abc import Iterator
from itertools import islice

from quivermq.delivery.state import Unfinished
from quivermq.engine.hosted import Hosted
from quivermq.errors import GroupNotFound, InvalidRequest
from quivermq.frame import OFFSET_MAX
from quivermq.log.contents import contents
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.query import PLACE_PATTERN, Place, number_of, number_parameter, place_after
from quivermq.server.routes.members import members_of
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import DeliveryList, SegmentList, SegmentOut, UnfinishedOut
from quivermq.topic.names import check_group_name
from quivermq.topic.partition import LANES

_LIMIT = number_parameter("limit", "How many at most.", 1, 10_000, default=100)
_AFTER = Parameter(
    "after",
    {"type": "string", "pattern": PLACE_PATTERN},
    "PARTITION-LANE-OFFSET of the last one you have: those behind it. Lanes are 0 to 2, high to low.",
)


_STATE = Parameter(
    "state", {"type": "string", "enum": ["in_flight"]}, "Only what somebody has. By default all."
)


async def list_deliveries(broker: Broker, request: Request) -> Response:
    """What a group has been given and has not finished."""
    topic, group = request.params["topic"], request.params["group"]
    check_group_name(group)
    hosted = broker.engine.hosted(topic)
    limit, after = number_of(request, _LIMIT), place_after(request) or (0, -1, OFFSET_MAX)
    state = request.query.get("state")
    if state not in (None, "in_flight"):
        raise InvalidRequest(f"state is in_flight, or left out for all, not {state[:80]!r}")

    def look() -> DeliveryList:
        now_us = broker.engine.clock.now_us()
        if state is not None and group in hosted.groups:
            return DeliveryList(list(islice(_held(hosted, group, now_us, after, limit), limit)))
        is_read = bool(members_of(broker.engine, hosted.name, group))
        found = _unfinished(hosted, group, now_us, after, limit, is_read=is_read)
        return DeliveryList(list(islice(found, limit)))

    return json_response(await broker.run(look))


async def list_segments(broker: Broker, request: Request) -> Response:
    """The files of a topic's lanes."""
    hosted = broker.engine.hosted(request.params["topic"])
    limit, after = number_of(request, _LIMIT), place_after(request) or (0, -1, OFFSET_MAX)

    def look() -> SegmentList:
        return SegmentList(list(islice(_segments(hosted, after), limit)))

    return json_response(await broker.run(look))


def _unfinished(
    hosted: Hosted, name: str, now_us: int, after: Place, limit: int, *, is_read: bool
) -> Iterator[UnfinishedOut]:
    """What a group has; nothing where only its members, if it has some, have read so far."""
    group = hosted.groups.get(name)
    if group is None and is_read:
        return
    if group is None:
        raise GroupNotFound(
            f"{hosted.name} has no group {name}: it comes to be with the first receive or seek"
        )
    for cursor in group.cursors[after[0] :]:
        for lane, priority in enumerate(LANES):
            place = cursor.partition, lane
            if place < after[:2]:
                continue
            behind = after[2] if place == after[:2] else -1
            for found in cursor.unfinished(lane, now_us, behind, limit):
                yield _out(cursor.partition, priority, found)


def _held(hosted: Hosted, name: str, now_us: int, after: Place, limit: int) -> Iterator[UnfinishedOut]:
    """What somebody has, behind a place."""
    for cursor in hosted.groups[name].cursors[after[0] :]:
        for lane, priority in enumerate(LANES):
            place = cursor.partition, lane
            if place < after[:2]:
                continue
            behind = after[2] if place == after[:2] else -1
            for found in cursor.held(lane, now_us, behind, limit):
                yield _out(cursor.partition, priority, found)


def _out(partition: int, priority: str, found: Unfinished) -> UnfinishedOut:
    return UnfinishedOut(
        partition=partition,
        priority=priority,
        offset=found.offset,
        attempt=found.attempt,
        state=found.state,
        time=found.time_us,
        owner=found.owner if found.state == "in_flight" else None,
        first_delivered_at=found.first_us,
        last_delivered_at=found.last_us,
    )


def _segments(hosted: Hosted, after: Place) -> Iterator[SegmentOut]:
    for (partition, lane), log in sorted(hosted.topic.lanes().items()):
        segments = log.segments
        for segment in segments:
            if (partition, lane, segment.base_offset) <= after:
                continue
            try:
                found = contents(segment)
            except FileNotFoundError:
                continue  # Retention was faster.
            yield SegmentOut(
                partition=partition,
                priority=LANES[lane],
                base_offset=found.base_offset,
                end_offset=found.end_offset,
                bytes=found.size_bytes,
                sealed=segment is not segments[-1],
                first_timestamp=found.first_timestamp,
                last_timestamp=found.last_timestamp,
            )


ROUTES: list[Route] = [
    Route(
        "GET",
        "/v1/topics/{topic}/groups/{group}/deliveries",
        list_deliveries,
        summary="List what a group has been given and has not finished",
        tag="groups",
        query=(_LIMIT, _AFTER, _STATE),
        returns={200: DeliveryList},
        errors=(404,),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/segments",
        list_segments,
        summary="List the segments of a topic",
        tag="topics",
        query=(_LIMIT, _AFTER),
        returns={200: SegmentList},
        errors=(404,),
    ),
]
