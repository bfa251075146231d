"""One member of a group in stream mode: what is known of it, what it says and what it is told."""

from dataclasses import dataclass
from typing import Literal

from quivermq.group.assignment import Strategy, TopicPartition
from quivermq.group.bell import Bell
from quivermq.group.subscription import Subscription

State = Literal["stable", "rebalancing"]


@dataclass(frozen=True, slots=True)
class Joined:
    """Who a new member is."""

    member_id: str
    generation: int
    members: int


@dataclass(frozen=True, slots=True)
class Synced:
    """What a member has now, and what it must give up."""

    generation: int
    assignment: list[TopicPartition]
    revoked: list[TopicPartition]
    is_owed: bool
    """Whether there is more to come, which others have yet to give up."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as others may see it: not by its id, with which anybody could speak for it."""

    member: str
    client: str
    subscription: Subscription
    partitions: list[TopicPartition]
    silent_ms: int


@dataclass(frozen=True, slots=True)
class MembersView:
    """A group in stream mode as others may see it."""

    group: str
    strategy: Strategy
    generation: int
    state: State
    members: list[MemberView]


class Member:
    """What a group knows of one member."""

    __slots__ = (
        "bell",
        "client",
        "epoch",
        "give_up_by",
        "heard_at",
        "held",
        "id",
        "is_counted",
        "news_at",
        "rebalance_timeout_s",
        "session_timeout_s",
        "share",
        "since",
        "spoken",
        "subscription",
        "topics",
    )

    def __init__(self, member_id: str, client: str, since: int, now_s: float) -> None:
        self.id = member_id
        self.client = client
        # The generation in which it joined.
        self.since = since
        self.heard_at = now_s
        # The latest generation it spoke of: a request that knows only an older one was long on its way.
        self.spoken = since
        # Not before its first `sync`: one whose `join` was never answered must not get partitions.
        self.is_counted = False
        # The rebalance for which it gave up everything.
        self.epoch = 0
        self.share: set[TopicPartition] = set()
        # In which generation it got what it has.
        self.held: dict[TopicPartition, int] = {}
        # Whoever was told nothing of this generation, or of a later one, has to sync.
        self.news_at = 0
        self.give_up_by: float | None = None
        self.bell = Bell()
        # Set with every join.
        self.subscription: Subscription
        self.topics: frozenset[str]
        self.session_timeout_s: float
        self.rebalance_timeout_s: float

    def has(self, partition: TopicPartition, generation: int) -> bool:
        """Whether a partition is its own, and the same that it was told of in that generation."""
        return self.held.get(partition, generation + 1) <= generation

    def is_over(self, now_s: float) -> bool:
        """Whether it was not heard of, or has not given up what it must, for too long."""
        is_late = self.give_up_by is not None and self.give_up_by <= now_s
        return is_late or self.heard_at + self.session_timeout_s <= now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What somebody who joins says of itself."""

    subscription: Subscription
    strategy: Strategy
    session_timeout_s: float
    rebalance_timeout_s: float
    client: str
