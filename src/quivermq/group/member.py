"""One member of a group in stream mode: what is known of it, what it says and what it is answered."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from quivermq.errors import InvalidRequest
from quivermq.group.assignment import Strategy, TopicPartition
from quivermq.group.waiters import Waiters
from quivermq.model.names import Pattern, check_topic_name, is_pattern


class Subscription:
    """Some names and patterns. Raises InvalidName, InvalidRequest."""

    __slots__ = ("_names", "_patterns", "topics")

    def __init__(self, topics: Iterable[str], topics_max: int) -> None:
        # Counted before anything is made of them.
        self.topics = tuple(topics)
        if not 0 < len(self.topics) <= topics_max:
            raise InvalidRequest(f"a member reads 1 to {topics_max} topics or patterns")
        self._patterns = [Pattern(topic) for topic in self.topics if is_pattern(topic)]
        names = [topic for topic in self.topics if not is_pattern(topic)]
        for name in names:
            check_topic_name(name)
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subscription) and set(self.topics) == set(other.topics)

    def __hash__(self) -> int:
        return hash(frozenset(self.topics))

    def matches(self, topic: str, origin: str | None) -> bool:
        """Whether this topic is asked for; `origin` is the one whose dead letters it has, if any."""
        return topic in self._names or any(pattern.matches(topic, origin) for pattern in self._patterns)

    def found_in(self, topics: Iterable[str], origin_of: Callable[[str], str | None]) -> frozenset[str]:
        """Those of the topics there are that are asked for."""
        if not self._patterns:
            return self._names.intersection(topics)
        return frozenset(topic for topic in topics if self.matches(topic, origin_of(topic)))


MembersState = Literal["stable", "rebalancing"]


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """Who a new member is."""

    member_id: str
    generation: int
    members: int


@dataclass(frozen=True, slots=True)
class SyncedMember:
    """What a member has now, and what it must give up."""

    generation: int
    assignment: list[TopicPartition]
    revoked: list[TopicPartition]
    is_incomplete: bool
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
    state: MembersState
    members: list[MemberView]


class Member:
    """What a group knows of one member."""

    __slots__ = (
        "client",
        "gave_up_for",
        "generation_joined",
        "generation_known",
        "give_up_by",
        "has_synced",
        "heard_at",
        "held",
        "id",
        "news_at",
        "rebalance_timeout_s",
        "session_timeout_s",
        "share",
        "subscription",
        "topics",
        "waiters",
    )

    def __init__(self, member_id: str, client: str, generation: int, now_s: float) -> None:
        self.id = member_id
        self.client = client
        self.generation_joined = generation
        self.heard_at = now_s
        # The latest generation it spoke of: a request that knows only an older one was long on its way.
        self.generation_known = generation
        # It counts only then: one whose `join` was never answered must not get partitions.
        self.has_synced = False
        # The number of the rebalance for which it gave up everything.
        self.gave_up_for = 0
        self.share: set[TopicPartition] = set()
        # In which generation it got what it has.
        self.held: dict[TopicPartition, int] = {}
        # Who knows nothing of this generation, or of a later one, has to sync.
        self.news_at = 0
        self.give_up_by: float | None = None
        self.waiters = Waiters()
        # Set with every join.
        self.subscription: Subscription
        self.topics: frozenset[str]
        self.session_timeout_s: float
        self.rebalance_timeout_s: float

    def has(self, partition: TopicPartition, generation: int) -> bool:
        """Whether a partition is its own, and the same that it got in that generation or before."""
        return self.held.get(partition, generation + 1) <= generation

    def is_over(self, now_s: float) -> bool:
        """Whether it was not heard of, or has not given up what it must, for too long."""
        is_late = self.give_up_by is not None and self.give_up_by <= now_s
        return is_late or self.heard_at + self.session_timeout_s <= now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """What somebody who joins says of itself."""

    subscription: Subscription
    strategy: Strategy
    session_timeout_s: float
    rebalance_timeout_s: float
    client: str


class TopicChanges:
    """Topics that are not any more as a group knows them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, bool] = {}

    def note(self, topic: str, *, is_deleted: bool) -> None:
        """Remember a topic. One that was deleted stays so, although there may be another of its name."""
        with self._lock:
            self._noted[topic] = is_deleted or self._noted.get(topic, False)

    def take(self) -> dict[str, bool]:
        """The topics noted since the last time, and whether each was deleted meanwhile."""
        if not self._noted:
            return {}
        with self._lock:
            noted, self._noted = self._noted, {}
            return noted
