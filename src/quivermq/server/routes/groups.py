"""Groups: how far one has come with a topic, to go on from elsewhere, to forget it."""

from dataclasses import asdict

from quivermq.engine import Engine
from quivermq.engine.hosted import Hosted
from quivermq.errors import GroupNotFound
from quivermq.group.group import Group
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.routes.members import members_of
from quivermq.server.routing import Route
from quivermq.server.shapes import GroupOut, HeldOut, LaneOut, SeekIn
from quivermq.topic.names import check_group_name
from quivermq.topic.partition import LANES

# So many of the messages in flight are shown.
_HELD_MAX = 100


async def show_group(broker: Broker, request: Request) -> Response:
    """A topic as one group sees it."""
    return json_response(await broker.run(_group_out, broker.engine, request))


async def seek(broker: Broker, request: Request, body: SeekIn) -> Response:
    """Let a group go on from elsewhere. One that is new begins there."""
    queue = broker.engine.queue(request.params["topic"], request.params["group"])
    await broker.run(
        queue.seek,
        body.to,
        offset=body.offset,
        timestamp=body.timestamp,
        partition=body.partition,
        priority=body.priority,
    )
    return json_response(await broker.run(_group_out, broker.engine, request))


async def delete_group(broker: Broker, request: Request) -> Response:
    """Forget what a group knows of a topic. It begins anew when it comes back."""
    topic, group = request.params["topic"], request.params["group"]
    if not await broker.run(broker.engine.delete_group, topic, group):
        raise _not_found(topic, group)
    return Response(204)


def _group_out(engine: Engine, request: Request) -> GroupOut:
    name = request.params["group"]
    check_group_name(name)
    hosted = engine.hosted(request.params["topic"])
    stats = engine.queue_stats(hosted, name)
    group, members = hosted.groups.get(name), members_of(engine, hosted.name, name)
    # Members that read the topic, and have not committed anything yet, have all of it before them.
    if group is None and not members:
        raise _not_found(hosted.name, name)
    return GroupOut(
        **asdict(stats),
        backlog=stats.backlog,
        lag=stats.pending,
        partitions=_untouched_lanes(hosted) if group is None else _lanes_out(hosted, group),
        deliveries=[] if group is None else _held_out(group, engine.clock.now_us()),
        members=members,
    )


def _untouched_lanes(hosted: Hosted) -> list[LaneOut]:
    lanes = []
    for (partition, lane), log in hosted.topic.lanes().items():
        owner = hosted.topic.partitions[partition]
        start = owner.first_told(lane, 0)
        lanes.append(
            LaneOut(
                partition=partition,
                priority=LANES[lane],
                position=start,
                start=start,
                end=log.end,
                lag=owner.removals.lanes[lane].missing_between(start, log.end),
                in_flight=0,
                retrying=0,
                waiting_for_key=0,
            )
        )
    return lanes


def _lanes_out(hosted: Hosted, group: Group) -> list[LaneOut]:
    """Every lane that is in use."""
    counts = [cursor.counts() for cursor in group.cursors]
    lanes = []
    for (partition, lane), log in hosted.topic.lanes().items():
        if partition < len(counts):
            found, owner = counts[partition][lane], hosted.topic.partitions[partition]
            lanes.append(
                LaneOut(
                    partition=partition,
                    priority=LANES[lane],
                    position=owner.first_told(lane, group.cursors[partition].lanes[lane].next),
                    start=owner.first_told(lane, 0),
                    end=log.end,
                    lag=found.pending,
                    in_flight=found.in_flight,
                    retrying=found.retrying,
                    waiting_for_key=found.waiting_for_key,
                )
            )
    return lanes


def _held_out(group: Group, now_us: int) -> list[HeldOut]:
    """The first messages that somebody has."""
    return [
        HeldOut(
            partition=cursor.partition,
            priority=LANES[lane],
            offset=held.offset,
            attempt=held.attempt,
            deadline=held.time_us,
            owner=held.owner,
            first_delivered_at=held.first_us,
            last_delivered_at=held.last_us,
        )
        for cursor in group.cursors
        for lane, held in cursor.in_flight(_HELD_MAX, now_us)
    ][:_HELD_MAX]


def _not_found(topic: str, group: str) -> GroupNotFound:
    return GroupNotFound(f"{topic} has no group {group}: it comes to be with the first receive or seek")


ROUTES: list[Route] = [
    Route(
        "GET",
        "/v1/topics/{topic}/groups/{group}",
        show_group,
        summary="Show how far a group has come with a topic",
        tag="groups",
        returns={200: GroupOut},
        errors=(404,),
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}/groups/{group}",
        delete_group,
        summary="Forget a group",
        tag="groups",
        returns={204: None},
        errors=(404,),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/groups/{group}/seek",
        seek,
        summary="Let a group go on from elsewhere",
        tag="groups",
        body=SeekIn,
        returns={200: GroupOut},
        errors=(404, 409, 416, 507),
    ),
]
