"""All groups in stream mode.

Membership is in memory: after a restart members are not known any more, and join again.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count

from quivermq.clock import Clock
from quivermq.errors import InvalidRequest, Unavailable
from quivermq.group.assignment import STRATEGIES, Strategy, TopicPartition
from quivermq.group.member import (
    JoinedMember,
    JoinRequest,
    MembersState,
    MembersView,
    Subscription,
    SyncedMember,
)
from quivermq.group.members import Members, unknown_member
from quivermq.group.waiters import Waiters
from quivermq.model.checks import check_number
from quivermq.model.names import check_group_name, usual_origin

SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000
TIMEOUT_MS_MIN = 100
TIMEOUT_MS_MAX = 3_600_000

# Enough that nobody finds one by trying.
_ID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLimits:
    """How many of each there may be."""

    groups_max: int = 10_000
    members_max: int = 1000
    topics_max: int = 100


class Coordinator:
    """Who is in which group. Thread-safe, without threads of its own: `expire` has to be called."""

    def __init__(
        self,
        clock: Clock,
        topic_names: Callable[[], Iterable[str]],
        partitions_of: Callable[[str], range],
        limits: MemberLimits | None = None,
        *,
        new_id: Callable[[], str] | None = None,
        origin_of: Callable[[str], str | None] = usual_origin,
    ) -> None:
        self.limits = limits or MemberLimits()
        self._new_id = new_id or partial(secrets.token_hex, _ID_BYTES)
        self._clock = clock
        self._topic_names = topic_names
        self._partitions_of = partitions_of
        self._origin_of = origin_of
        # One for all groups, so that one that comes again uses no generation twice.
        self._generations = count(1)
        # Taken before that of a group; to find a group, none is needed.
        self._lock = threading.Lock()
        self._groups: dict[str, Members] = {}

    def join(
        self,
        group: str,
        topics: Collection[str],
        *,
        strategy: Strategy = "cooperative",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        member_id: str | None = None,
        client: str = "",
    ) -> JoinedMember:
        """Become a member, or, with a `member_id`, stay one and read other topics.

        Raises InvalidRequest; Conflict when the group has another strategy; Fenced for a member that is not
        known; Unavailable when there are too many.
        """
        check_group_name(group)
        if strategy not in STRATEGIES:
            raise InvalidRequest(f"a strategy is one of {', '.join(STRATEGIES)}, not {strategy!r}")
        check_number("session_timeout_ms", session_timeout_ms, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)
        check_number("rebalance_timeout_ms", rebalance_timeout_ms, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)
        request = JoinRequest(
            subscription=Subscription(topics, self.limits.topics_max),
            strategy=strategy,
            session_timeout_s=session_timeout_ms / 1000,
            rebalance_timeout_s=rebalance_timeout_ms / 1000,
            client=client,
        )
        if member_id is not None:
            return self._members(group).join(request, member_id, is_new=False, members_max=0)
        with self._lock:
            if not self._groups.get(group):
                self._check_groups_max()
            members = self._found_or_new(group)
            try:
                return members.join(
                    request, self._new_id(), is_new=True, members_max=self.limits.members_max
                )
            finally:
                self._drop_empty(group)

    def sync(
        self, group: str, member_id: str, generation: int, owned: Collection[TopicPartition] = ()
    ) -> SyncedMember:
        """Say what you own, and learn what is yours and what you must give up. Raises Fenced.

        As long as something is to be given up, give it up and sync again.
        """
        return self._members(group).sync(member_id, generation, owned)

    def heartbeat(self, group: str, member_id: str, generation: int) -> MembersState:
        """Say that you live, and learn whether there is a reason to sync. Raises Fenced."""
        return self._members(group).heartbeat(member_id, generation)

    def leave(self, group: str, member_id: str) -> bool:
        """Go at once, and leave everything to the others. False for somebody who is not there."""
        check_group_name(group)
        members = self._groups.get(group)
        if members is None:
            return False
        has_left = members.leave(member_id)
        self._forget_empty(group)
        return has_left

    @contextmanager
    def committing(
        self,
        group: str,
        member_id: str | None,
        generation: int | None,
        partitions: Collection[TopicPartition],
    ) -> Iterator[None]:
        """Nobody takes these partitions over inside of this. See `Members.committing`.

        Also not the first member of a group, who would begin where the group was before.
        """
        if member_id is not None:
            with self._members(group).committing(member_id, generation, partitions):
                yield
            return
        check_group_name(group)
        with self._lock:
            members = self._found_or_new(group)
            members.commits += 1
        try:
            with members.committing(None, generation, partitions):
                yield
        finally:
            with self._lock:
                members.commits -= 1
                self._drop_empty(group)

    def expire(self) -> None:
        """Go on without members who are over their time. To be called now and then."""
        for name, members in list(self._groups.items()):
            members.expire()
            if not members:
                self._forget_empty(name)

    def topic_changed(self, topic: str) -> None:
        """A topic was created, got more partitions, or was deleted. To be called once it is so.

        Whatever locks the caller has, it may keep them: groups take this in when they next do something.
        """
        is_deleted = not self._partitions_of(topic)
        for members in list(self._groups.values()):
            members.topic_changed(topic, is_deleted=is_deleted)

    def wake_all(self) -> None:
        """Wake everybody who waits for partitions, to look again."""
        for members in list(self._groups.values()):
            members.wake_all()

    # Looking.

    def groups(self) -> list[str]:
        """The groups that have members now."""
        return sorted(name for name, members in list(self._groups.items()) if members)

    def view(self, group: str) -> MembersView | None:
        """The members of a group, if it has any."""
        members = self._groups.get(group)
        return members.view() if members else None

    def topics(self, group: str) -> set[str]:
        """The topics that the members of a group read."""
        members = self._groups.get(group)
        return set() if members is None else members.topics()

    def subscribed(self, group: str, member_id: str) -> tuple[str, ...]:
        """The names and patterns that a member joined with. Raises Fenced."""
        return self._members(group).subscribed(member_id)

    def waiters(self, group: str, member_id: str) -> tuple[Waiters, float]:
        """Where a member waits for partitions, and how many seconds it may be silent."""
        return self._members(group).waiters(member_id)

    def _members(self, group: str) -> Members:
        check_group_name(group)
        members = self._groups.get(group)
        if members is None:
            raise unknown_member(group)
        return members

    def _check_groups_max(self) -> None:
        if len(self.groups()) >= self.limits.groups_max:
            raise Unavailable(
                f"{self.limits.groups_max} groups have members, the most there can be: try again when one"
                " has none any more"
            )

    def _forget_empty(self, group: str) -> None:
        # Whoever joins holds the lock, too, so nobody gets into a group that is thrown away.
        with self._lock:
            self._drop_empty(group)

    # With the lock held.

    def _found_or_new(self, group: str) -> Members:
        members = self._groups.get(group)
        if members is None:
            members = Members(
                group,
                self._clock,
                topic_names=self._topic_names,
                partitions_of=self._partitions_of,
                next_generation=lambda: next(self._generations),
                origin_of=self._origin_of,
            )
            # Before anybody is in it: of a topic that changes from now on, it hears.
            self._groups[group] = members
        return members

    def _drop_empty(self, group: str) -> None:
        members = self._groups.get(group)
        if members is not None and not members and not members.commits:
            del self._groups[group]
