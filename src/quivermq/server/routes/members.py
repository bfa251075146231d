"""Members of a group in stream mode: they share partitions, read them, and say how far they came."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from quivermq.engine import Engine
from quivermq.engine.offsets import (
    COMMITS_MAX,
    Commit,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    topics_by_group,
    topics_of_group,
)
from quivermq.errors import Fenced, GroupNotFound, TopicNotFound
from quivermq.group.assignment import Strategy, TopicPartition
from quivermq.group.coordinator import REBALANCE_TIMEOUT_MS, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, MemberLimits
from quivermq.group.member import JoinedMember, MembersState, MembersView, SyncedMember
from quivermq.model.lanes import Priority
from quivermq.model.names import Pattern, check_group_name, is_pattern
from quivermq.model.turns import in_turns
from quivermq.server.access import check_topics, may_see
from quivermq.server.broker import Broker
from quivermq.server.figures import Answers
from quivermq.server.http import Request, encode_json
from quivermq.server.polling import Polls
from quivermq.server.routing import Calls, Parameter, Route
from quivermq.server.shapes import Count, Offset, PriorityOut

# As many as fit into the topics of a member, and more.
_OWNED_MAX = 100_000
_WAIT_MS_MAX = 24 * 3600 * 1000
# A list of all partitions of many topics.
_PARTITIONS_BYTES = 8 * 1024 * 1024
_TOPIC = Parameter("topic", {"type": "string"}, "A topic or a pattern; by default all topics of the group.")

MemberId = Annotated[str, Meta(min_length=1, max_length=64)]
Generation = Annotated[int, Meta(ge=0, le=2**63 - 1)]
TimeoutMs = Annotated[int, Meta(ge=TIMEOUT_MS_MIN, le=TIMEOUT_MS_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Topics = Annotated[list[str], Meta(min_length=1, max_length=MemberLimits().topics_max)]


class PartitionOut(msgspec.Struct, forbid_unknown_fields=True):
    """One partition of one topic."""

    topic: str
    partition: PartitionNumber


class JoinIn(msgspec.Struct, forbid_unknown_fields=True):
    """What a member wants to read: topics, and patterns that also stand for topics yet to come."""

    schema_extra: ClassVar[dict[str, Any]] = {
        "examples": [{"topics": ["orders", "events.>"], "strategy": "cooperative"}]
    }

    topics: Topics
    member_id: MemberId | None = None
    """Of a member that wants to read other topics from now on."""
    strategy: Strategy = "cooperative"
    session_timeout_ms: TimeoutMs | None = None
    """A member that is silent for so long has left."""
    rebalance_timeout_ms: TimeoutMs | None = None
    """A member that takes longer to give up what it must has left."""


class JoinOut(msgspec.Struct):
    """Who the member is. The id speaks for it: nobody else should know it."""

    member_id: str
    generation: Generation
    members: Count


class SyncIn(msgspec.Struct, forbid_unknown_fields=True):
    """What a member still reads, and how long it waits for more."""

    member_id: MemberId
    generation: Generation
    owned: Annotated[list[PartitionOut], Meta(max_length=_OWNED_MAX)] = []
    wait_ms: Annotated[int, Meta(ge=0, le=_WAIT_MS_MAX)] = 0


class SyncOut(msgspec.Struct):
    """What a member has now. While something is `revoked`, it gives that up and syncs again."""

    generation: Generation
    assignment: list[PartitionOut]
    revoked: list[PartitionOut]


class HeartbeatIn(msgspec.Struct, forbid_unknown_fields=True):
    """Who lives."""

    member_id: MemberId
    generation: Generation


class HeartbeatOut(msgspec.Struct):
    """Whether there is a reason to sync."""

    state: MembersState


class LeaveIn(msgspec.Struct, forbid_unknown_fields=True):
    """Who goes."""

    member_id: MemberId


class CommittedOut(msgspec.Struct):
    """How far a group has come; `offset` is null where it has never been."""

    topic: str
    partition: Count
    priority: PriorityOut
    offset: Count | None
    start: Count
    end: Count
    lag: Count


class CommittedList(msgspec.Struct):
    """By topic, partition and priority."""

    offsets: list[CommittedOut]


class CommitOne(msgspec.Struct, forbid_unknown_fields=True):
    """The first offset that is not finished."""

    topic: str
    partition: PartitionNumber
    offset: Offset
    priority: Priority = "normal"


class CommitIn(msgspec.Struct, forbid_unknown_fields=True):
    """How far somebody came; a member says who it is."""

    schema_extra: ClassVar[dict[str, Any]] = {
        "examples": [{"offsets": [{"topic": "orders", "partition": 0, "offset": 17}]}]
    }

    offsets: Annotated[list[CommitOne], Meta(max_length=COMMITS_MAX)]
    member_id: MemberId | None = None
    generation: Generation | None = None


class GroupMemberOut(msgspec.Struct):
    """A member. `member` is the beginning of its id, enough to tell it apart and not to speak for it."""

    member: str
    client: str
    topics: list[str]
    partitions: list[PartitionOut]
    silent_ms: Count


class GroupSummary(msgspec.Struct):
    """A group, the topics that it has been in or reads, and how many members it has."""

    group: str
    state: Literal["empty", "stable", "rebalancing"]
    topics: list[str]
    members: Count


class GroupList(msgspec.Struct):
    """The groups, by name."""

    groups: list[GroupSummary]


class GroupWithMembers(msgspec.Struct):
    """A group and its members; without members it has no strategy and no generation."""

    group: str
    state: Literal["empty", "stable", "rebalancing"]
    strategy: Strategy | None
    generation: Generation | None
    topics: list[str]
    members: list[GroupMemberOut]


ROUTES: list[Route] = []
_member = Calls(ROUTES, "/v1/groups/{group}", "members", (409,))
_groups = Calls(ROUTES, "/v1/groups", "groups")


@_member("POST", "/join", "Become a member of a group in stream mode")
async def join_group(broker: Broker, request: Request, body: JoinIn) -> JoinOut:
    """Take in a member. It has nothing before it has synced."""
    check_topics(request, body.topics)

    def join() -> JoinedMember:
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
    return JoinOut(joined.member_id, joined.generation, joined.members)


@_member(
    "POST",
    "/sync",
    "Say what you read, learn what is yours",
    body_bytes_max=_PARTITIONS_BYTES,
)
async def sync_member(broker: Broker, request: Request, body: SyncIn) -> SyncOut:
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
        with polls.waiting(waiters.watch) as wakeup:
            # Something may have been given up between the last look and the wait.
            synced = await broker.run(sync)
            if _is_to_wait(synced, owned) and not broker.is_draining:
                await polls.woken(wakeup, end, request.key)
                synced = await broker.run(sync)
    return SyncOut(synced.generation, _partitions_out(synced.assignment), _partitions_out(synced.revoked))


@_member("POST", "/heartbeat", "Say that you live, learn whether to sync")
async def beat_heart(broker: Broker, request: Request, body: HeartbeatIn) -> HeartbeatOut:
    """Let a member live on."""

    def beat() -> MembersState:
        _check_member(broker, request, body.member_id)
        return broker.engine.members.heartbeat(request.params["group"], body.member_id, body.generation)

    return HeartbeatOut(await broker.run(beat))


@_member("POST", "/leave", "Leave a group", errors=())
async def leave_group(broker: Broker, request: Request, body: LeaveIn) -> None:
    """Let a member go. One that is gone already is gone."""

    def go() -> None:
        check_group_name(request.params["group"])
        with suppress(Fenced):
            _check_member(broker, request, body.member_id)
            broker.engine.members.leave(request.params["group"], body.member_id)

    await broker.run(go)


@_member("GET", "/offsets", "Show the committed offsets of a group", query=(_TOPIC,), errors=(404,))
async def show_offsets(broker: Broker, request: Request) -> CommittedList:
    """How far the group has come."""
    topic = request.query.get("topic")
    if topic is not None:
        check_topics(request, [topic])
    found = await broker.run(_offsets, broker.engine, request, topic)
    return CommittedList([CommittedOut(*each) for each in found])


@_member(
    "PUT",
    "/offsets",
    "Commit offsets",
    body_bytes_max=_PARTITIONS_BYTES,
    errors=(404, 409, 416, 507),
)
async def commit(broker: Broker, request: Request, body: CommitIn) -> None:
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


@_groups("GET", "", "List the groups", GroupList, errors=())
async def list_groups(broker: Broker, request: Request) -> bytes:
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

    return await broker.part(Answers).answer(("groups", request.key), listed)


@_groups("GET", "/{group}", "Show a group, its topics and its members")
async def show_members(broker: Broker, request: Request) -> GroupWithMembers:
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

    return await broker.run(shown)


def _is_to_wait(synced: SyncedMember, owned: frozenset[TopicPartition]) -> bool:
    """Whether there is nothing new for a member, but will be."""
    return synced.is_incomplete and not synced.revoked and owned.issuperset(synced.assignment)


def _check_member(broker: Broker, request: Request, member_id: str) -> None:
    """Raise Denied for a key that may not read what the member reads."""
    if request.key is not None:
        check_topics(request, broker.engine.members.subscribed(request.params["group"], member_id))


def _offsets(engine: Engine, request: Request, topic: str | None) -> list[CommittedOffset]:
    group = request.params["group"]
    if topic is not None and not is_pattern(topic):
        return committed_offsets(engine, group, [topic])
    if topic is None:
        topics = topics_of_group(engine, group)
    else:
        pattern = Pattern(topic)
        topics = {
            each for each in engine.topics() if pattern.matches(each, engine.catalog.table.origin_of(each))
        }
    found: list[CommittedOffset] = []
    for name in _seen(request, topics):
        # Somebody may delete one meanwhile.
        with suppress(TopicNotFound):
            found += committed_offsets(engine, group, [name])
    return found


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
