"""Members of a group in stream mode: they share partitions, read them, and say how far they came."""

import asyncio
from contextlib import suppress

from quivermq.engine import Engine
from quivermq.engine.offsets import (
    Commit,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    topics_by_group,
    topics_of_group,
)
from quivermq.engine.turns import in_turns
from quivermq.errors import Fenced, GroupNotFound, TopicNotFound
from quivermq.group.assignment import TopicPartition
from quivermq.group.coordinator import REBALANCE_TIMEOUT_MS
from quivermq.group.member import Joined, MembersState, MembersView, SyncedMember
from quivermq.group.waiters import Waiter, leave
from quivermq.server.access import check_topics, may_see
from quivermq.server.broker import Broker
from quivermq.server.figures import Answers
from quivermq.server.http import JSON, Request, Response, encode_json, json_response
from quivermq.server.member_shapes import (
    CommitIn,
    CommittedList,
    CommittedOut,
    GroupList,
    GroupMemberOut,
    GroupSummary,
    GroupWithMembers,
    HeartbeatIn,
    HeartbeatOut,
    JoinIn,
    JoinOut,
    LeaveIn,
    PartitionOut,
    SyncIn,
    SyncOut,
)
from quivermq.server.polling import Polls
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import MemberOut
from quivermq.topic.names import Pattern, check_group_name, is_pattern

# A list of all partitions of many topics.
_PARTITIONS_BYTES = 8 * 1024 * 1024
_TOPIC = Parameter("topic", {"type": "string"}, "A topic or a pattern; by default all topics of the group.")


async def join_group(broker: Broker, request: Request, body: JoinIn) -> Response:
    """Take in a member. It has nothing before it has synced."""
    check_topics(request, body.topics)

    def join() -> Joined:
        if body.member_id is not None:
            _check_member(broker, request, body.member_id)
        return broker.engine.members.join(
            request.params["group"],
            body.topics,
            strategy=body.strategy,
            session_timeout_ms=body.session_timeout_ms or broker.settings.session_timeout_ms,
            rebalance_timeout_ms=body.rebalance_timeout_ms or REBALANCE_TIMEOUT_MS,
            member_id=body.member_id,
            client=request.client,
        )

    joined = await broker.run(join)
    return json_response(JoinOut(joined.member_id, joined.generation, joined.members))


async def sync_member(broker: Broker, request: Request, body: SyncIn) -> Response:
    """Tell a member what is its own. It may wait for what others have yet to give up."""
    members, group = broker.engine.members, request.params["group"]
    owned = frozenset(TopicPartition(each.topic, each.partition) for each in body.owned)

    def sync() -> SyncedMember:
        broker.engine.check_open()
        _check_member(broker, request, body.member_id)
        return members.sync(group, body.member_id, body.generation, owned)

    synced = await broker.run(sync)
    loop, polls = asyncio.get_running_loop(), broker.part(Polls)
    begun = loop.time()
    while body.wait_ms and _is_to_wait(synced, owned) and not broker.is_draining:
        waiters, session_s = await broker.run(members.waiters, group, body.member_id)
        # Whoever waits is silent, and must be heard of in time.
        seconds = min(min(body.wait_ms, broker.settings.wait_ms_max) / 1000, session_s / 2)
        end = begun + seconds
        if loop.time() >= end:
            break
        ring: asyncio.Future[None] = loop.create_future()
        waiter = Waiter(lambda ring=ring: polls.wake(ring))  # type: ignore[misc]
        waiters.wait(waiter)
        try:
            # Something may have been given up between the last look and the wait.
            synced = await broker.run(sync)
            if _is_to_wait(synced, owned) and not broker.is_draining:
                await polls.rung(ring, end, request.key)
                synced = await broker.run(sync)
        finally:
            leave(waiter, [waiters])
    return json_response(
        SyncOut(synced.generation, _partitions_out(synced.assignment), _partitions_out(synced.revoked))
    )


def _is_to_wait(synced: SyncedMember, owned: frozenset[TopicPartition]) -> bool:
    """Whether there is nothing new for a member, but will be."""
    return synced.is_owed and not synced.revoked and owned.issuperset(synced.assignment)


async def beat_heart(broker: Broker, request: Request, body: HeartbeatIn) -> Response:
    """Let a member live on."""

    def beat() -> MembersState:
        _check_member(broker, request, body.member_id)
        return broker.engine.members.heartbeat(request.params["group"], body.member_id, body.generation)

    return json_response(HeartbeatOut(await broker.run(beat)))


async def leave_group(broker: Broker, request: Request, body: LeaveIn) -> Response:
    """Let a member go. One that is gone already is gone."""

    def go() -> None:
        check_group_name(request.params["group"])
        with suppress(Fenced):
            _check_member(broker, request, body.member_id)
            broker.engine.members.leave(request.params["group"], body.member_id)

    await broker.run(go)
    return Response(204)


def _check_member(broker: Broker, request: Request, member_id: str) -> None:
    """Raise Denied for a key that may not read what the member reads."""
    if request.key is not None:
        check_topics(request, broker.engine.members.subscribed(request.params["group"], member_id))


async def show_offsets(broker: Broker, request: Request) -> Response:
    """How far the group has come."""
    topic = request.query.get("topic")
    if topic is not None:
        check_topics(request, [topic])

    found = await broker.run(_offsets, broker.engine, request, topic)
    return json_response(CommittedList([CommittedOut(*each) for each in found]))


def _offsets(engine: Engine, request: Request, topic: str | None) -> list[CommittedOffset]:
    group = request.params["group"]
    if topic is not None and not is_pattern(topic):
        return committed_offsets(engine, group, [topic])
    if topic is None:
        topics = topics_of_group(engine, group)
    else:
        pattern = Pattern(topic)
        topics = {each for each in engine.topics() if pattern.matches(each, engine.origin_of(each))}
    found: list[CommittedOffset] = []
    for name in _seen(request, topics):
        # Somebody may delete one meanwhile.
        with suppress(TopicNotFound):
            found += committed_offsets(engine, group, [name])
    return found


async def commit(broker: Broker, request: Request, body: CommitIn) -> Response:
    """Let the group go on from these offsets."""
    check_topics(request, {each.topic for each in body.offsets})
    commits = [Commit(each.topic, each.partition, each.offset, each.priority) for each in body.offsets]
    await broker.run(
        commit_offsets,
        broker.engine,
        request.params["group"],
        commits,
        member_id=body.member_id,
        generation=body.generation,
    )
    return Response(204)


async def list_groups(broker: Broker, request: Request) -> Response:
    """Every group of a topic that the key may know of."""

    def listed() -> bytes:
        found = topics_by_group(broker.engine)
        seen = {group: _seen(request, topics) for group, topics in in_turns(sorted(found.items()))}
        groups = [
            GroupSummary(
                group,
                view.state if view else "empty",
                topics,
                0 if view is None else len(_members_out(request, view, topics)),
            )
            for group, topics in in_turns(seen.items())
            if topics or request.key is None
            for view in [broker.engine.members.view(group)]
        ]
        return encode_json(GroupList(groups))

    answer = await broker.part(Answers).answer(("groups", request.key), listed)
    return Response(200, answer, JSON)


async def show_members(broker: Broker, request: Request) -> Response:
    """One group: its topics and its members."""

    def shown() -> GroupWithMembers:
        group = request.params["group"]
        topics = _seen(request, topics_of_group(broker.engine, group))
        view = broker.engine.members.view(group)
        # Whoever may see none of its topics does not learn that it is there.
        if not topics and (view is None or request.key is not None):
            raise GroupNotFound(
                f"there is no group {group}: it comes to be with a join, a commit or a receive"
            )
        if view is None:
            return GroupWithMembers(group, "empty", None, None, topics, [])
        members = _members_out(request, view, topics)
        return GroupWithMembers(group, view.state, view.strategy, view.generation, topics, members)

    return json_response(await broker.run(shown))


def members_of(engine: Engine, topic: str, group: str) -> list[MemberOut]:
    """The members of a group that read a topic, and which of its partitions each has."""
    view = engine.members.view(group)
    return [
        MemberOut(
            member.member,
            member.client,
            [each.partition for each in member.partitions if each.topic == topic],
        )
        for member in (() if view is None else view.members)
        if member.subscription.matches(topic, engine.origin_of(topic))
    ]


def _seen(request: Request, topics: set[str]) -> list[str]:
    return sorted(topic for topic in topics if may_see(request, topic))


def _members_out(request: Request, view: MembersView, topics: list[str]) -> list[GroupMemberOut]:
    """Those who read one of these topics, which are all that the key may know of."""
    return [
        GroupMemberOut(
            member.member,
            member.client,
            [topic for topic in member.subscription.topics if may_see(request, topic)],
            _partitions_out([each for each in member.partitions if may_see(request, each.topic)]),
            member.silent_ms,
        )
        for member in view.members
        if request.key is None
        or any(member.subscription.matches(topic, request.origin_of(topic)) for topic in topics)
    ]


def _partitions_out(partitions: list[TopicPartition]) -> list[PartitionOut]:
    return [PartitionOut(*partition) for partition in partitions]


ROUTES: list[Route] = [
    Route(
        "POST",
        "/v1/groups/{group}/join",
        join_group,
        summary="Become a member of a group in stream mode",
        tag="members",
        body=JoinIn,
        returns={200: JoinOut},
        errors=(409,),
    ),
    Route(
        "POST",
        "/v1/groups/{group}/sync",
        sync_member,
        summary="Say what you read, learn what is yours",
        tag="members",
        body=SyncIn,
        body_bytes_max=_PARTITIONS_BYTES,
        returns={200: SyncOut},
        errors=(409,),
    ),
    Route(
        "POST",
        "/v1/groups/{group}/heartbeat",
        beat_heart,
        summary="Say that you live, learn whether to sync",
        tag="members",
        body=HeartbeatIn,
        returns={200: HeartbeatOut},
        errors=(409,),
    ),
    Route(
        "POST",
        "/v1/groups/{group}/leave",
        leave_group,
        summary="Leave a group",
        tag="members",
        body=LeaveIn,
        returns={204: None},
    ),
    Route(
        "GET",
        "/v1/groups/{group}/offsets",
        show_offsets,
        summary="Show the committed offsets of a group",
        tag="members",
        returns={200: CommittedList},
        query=(_TOPIC,),
        errors=(404,),
    ),
    Route(
        "PUT",
        "/v1/groups/{group}/offsets",
        commit,
        summary="Commit offsets",
        tag="members",
        body=CommitIn,
        body_bytes_max=_PARTITIONS_BYTES,
        returns={204: None},
        errors=(404, 409, 416, 507),
    ),
    Route(
        "GET",
        "/v1/groups",
        list_groups,
        summary="List the groups",
        tag="groups",
        returns={200: GroupList},
    ),
    Route(
        "GET",
        "/v1/groups/{group}",
        show_members,
        summary="Show a group, its topics and its members",
        tag="groups",
        returns={200: GroupWithMembers},
        errors=(404,),
    ),
]
