"""What the calls of members in stream mode take and answer, in JSON."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from quivermq.engine.offsets import COMMITS_MAX
from quivermq.group.coordinator import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, MemberLimits
from quivermq.server.messages_json import Lane, Priority
from quivermq.server.shapes import Count, Offset

# As many as fit into the topics of a member, and more.
_OWNED_MAX = 100_000
_WAIT_MS_MAX = 24 * 3600 * 1000

Strategy = Literal["range", "sticky", "cooperative"]
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

    state: Literal["stable", "rebalancing"]


class LeaveIn(msgspec.Struct, forbid_unknown_fields=True):
    """Who goes."""

    member_id: MemberId


class CommittedOut(msgspec.Struct):
    """How far a group has come; `offset` is null where it has never been."""

    topic: str
    partition: Count
    priority: Lane
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
