"""The members of one group in stream mode, and who of them has which partition.

There is what a member *should* have, its share, and what it *has*. A rebalance changes the shares at once;
what members have follows, one `sync` after the other: a partition is handed to nobody before whoever has it
has said that it gave it up, has left, or was not heard of for too long. So two members never have the same.

Every answer carries the group's generation, and of every partition is known in which generation it was
handed over. Whoever speaks of an older one cannot mean this partition: a request that was long on its way
neither gives up nor commits what its sender has got back since.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from quivermq.clock import Clock
from quivermq.errors import Conflict, Fenced, InvalidRequest, Unavailable
from quivermq.group.assignment import Strategy, TopicPartition, assign
from quivermq.group.member import (
    JoinedMember,
    JoinRequest,
    Member,
    MembersState,
    MembersView,
    MemberView,
    SyncedMember,
    TopicChanges,
)
from quivermq.group.waiters import Waiters


class Members:
    """One group. Thread-safe; knows the time only when it is called."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        topic_names: Callable[[], Iterable[str]],
        partitions_of: Callable[[str], range],
        next_generation: Callable[[], int],
        origin_of: Callable[[str], str | None],
    ) -> None:
        self.name = name
        self._clock = clock
        self._topic_names = topic_names
        self._partitions_of = partitions_of
        self._next_generation = next_generation
        self._origin_of = origin_of
        self._lock = threading.Lock()
        self._changes = TopicChanges()
        self.generation = next_generation()
        self.strategy: Strategy = "cooperative"
        # Commits that are under way; they belong to the coordinator's lock.
        self.commits = 0
        # How many rebalances there were.
        self._rebalances = 0
        self._members: dict[str, Member] = {}
        self._partitions: dict[str, range] = {}
        # Who should have a partition, and who has it.
        self._assignees: dict[TopicPartition, str] = {}
        self._holders: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    # What members say.

    def join(self, request: JoinRequest, member_id: str, *, is_new: bool, members_max: int) -> JoinedMember:
        """Take in a member, or let one that is here want something else."""
        with self._lock:
            now_s = self._catch_up()
            if not is_new:
                member = self._live(member_id, now_s)
            self._check_strategy(request.strategy, member_id)
            if is_new:
                if len(self._members) >= members_max:
                    raise Unavailable(
                        f"group {self.name} has {members_max} members, the most there can be: try again"
                        " when one has left, or let each member read more partitions"
                    )
                member = Member(member_id, request.client, self.generation, now_s)
            before = None if is_new else member.subscription
            self.strategy = request.strategy
            member.heard_at = now_s
            member.session_timeout_s = request.session_timeout_s
            member.rebalance_timeout_s = request.rebalance_timeout_s
            member.subscription = request.subscription
            member.topics = request.subscription.found_in(self._topic_names(), self._origin_of)
            self._members[member_id] = member
            if member.has_synced and before != request.subscription:
                self._rebalance(now_s)
            joined = JoinedMember(member_id, self.generation, len(self._members))
            if not is_new:
                # This answer says nothing of partitions: what it has not heard of, it still has to hear.
                self._have_it_sync(member)
            return joined

    def sync(self, member_id: str, generation: int, owned: Collection[TopicPartition]) -> SyncedMember:
        """Take back what a member does not own any more, and hand over what is free. Raises Fenced."""
        owned = owned if isinstance(owned, set | frozenset) else set(owned)
        with self._lock:
            now_s = self._catch_up()
            member = self._heard(member_id, generation, now_s)
            if not member.has_synced:
                member.has_synced = True
                self._rebalance(now_s)
            if generation < member.generation_known:
                # It has heard of more since, and hears nothing of this answer.
                return SyncedMember(self.generation, [], sorted(owned), is_incomplete=False)
            # What was handed over later than its last answer, it cannot know of.
            given_up = [
                partition
                for partition, since in member.held.items()
                if since <= generation and partition not in owned
            ]
            self._take_back(member, given_up)
            if not member.held:
                member.gave_up_for = self._rebalances
            unwanted = self._unwanted(member)
            if not unwanted:
                member.give_up_by = None
            # What it takes for its own, but is not, or not any more. Even where it is to have that again,
            # it has to stop first: the topic may be another one, of which it has read nothing.
            mistaken = {partition for partition in owned if not member.has(partition, generation)}
            self._hand_over(member, mistaken)
            answer = SyncedMember(
                self.generation,
                sorted(member.held.keys() - unwanted - mistaken),
                sorted(unwanted | mistaken),
                is_incomplete=not unwanted and len(member.held) < len(member.share),
            )
            if answer.revoked:
                # Whatever happens meanwhile, it comes again to say that it stopped, and not before that it
                # has what an answer it never heard has made its own.
                self._have_it_sync(member)
                member.held.update(dict.fromkeys(mistaken & member.held.keys(), self.generation))
            return answer

    def heartbeat(self, member_id: str, generation: int) -> MembersState:
        """Whether a `sync` would change anything for a member, which is alive. Raises Fenced."""
        with self._lock:
            member = self._heard(member_id, generation, self._catch_up())
            # What was handed over since, it has not heard of: that answer was lost.
            is_unheard = any(since > generation for since in member.held.values())
            is_unheard |= generation < member.news_at
            has_more = any(p not in self._holders for p in member.share - member.held.keys())
            is_at_rest = member.has_synced and not (is_unheard or has_more or self._unwanted(member))
            return "stable" if is_at_rest else "rebalancing"

    def leave(self, member_id: str) -> bool:
        """Let a member go. False when it is not here."""
        with self._lock:
            now_s = self._catch_up()
            if member_id not in self._members:
                return False
            self._remove([self._members[member_id]], now_s)
            return True

    @contextmanager
    def committing(
        self, member_id: str | None, generation: int | None, partitions: Iterable[TopicPartition]
    ) -> Iterator[None]:
        """Nobody takes these partitions over while the caller writes down how far it came.

        Raises Fenced unless they are the member's, and have been since that generation. Without a member
        raises Conflict where a partition has one.
        """
        with self._lock:
            now_s = self._catch_up()
            if member_id is None:
                for partition in partitions:
                    if partition in self._holders:
                        raise Conflict(
                            f"{_text(partition)} is read by a member of group {self.name}: commit with its"
                            " member_id and generation, or seek"
                        )
            else:
                if generation is None:
                    raise InvalidRequest("a member commits with its generation")
                member = self._heard(member_id, generation, now_s)
                for partition in partitions:
                    if not member.has(partition, generation):
                        raise Fenced(
                            f"{_text(partition)} is not this member's in generation {generation}: nothing"
                            " was committed; sync to learn what is"
                        )
            yield

    # What happens around them.

    def expire(self) -> None:
        """Go on without those who were silent, or kept what is not theirs, for too long."""
        with self._lock:
            now_s = self._catch_up()
            if over := [member for member in self._members.values() if member.is_over(now_s)]:
                self._remove(over, now_s)

    def topic_changed(self, topic: str, *, is_deleted: bool) -> None:
        """Note it for whoever is here next, and wake those who wait. Never waits for the group."""
        self._changes.note(topic, is_deleted=is_deleted)
        origin = self._origin_of(topic)
        for member in list(self._members.values()):
            if member.subscription.matches(topic, origin):
                _wake(member)

    def wake_all(self) -> None:
        """Wake everybody who waits for partitions."""
        for member in list(self._members.values()):
            _wake(member)

    # Looking.

    def waiters(self, member_id: str) -> tuple[Waiters, float]:
        """Where a member waits for partitions, and how long it may be silent. Raises Fenced."""
        with self._lock:
            member = self._live(member_id, self._clock.monotonic())
            return member.waiters, member.session_timeout_s

    def subscribed(self, member_id: str) -> tuple[str, ...]:
        """The names and patterns that a member joined with. Raises Fenced."""
        with self._lock:
            return self._live(member_id, self._clock.monotonic()).subscription.topics

    def topics(self) -> set[str]:
        """The topics that somebody here reads."""
        with self._lock:
            self._catch_up()
            return _union(member.topics for member in self._members.values())

    def view(self) -> MembersView:
        """Everything as it is now."""
        with self._lock:
            now_s = self._catch_up()
            members = list(self._members.values())
            # Also while one waits for what another has yet to give up.
            is_stable = all(self._has_its_share(member) for member in members if member.has_synced)
            state: MembersState = "stable" if is_stable else "rebalancing"
            return MembersView(
                self.name, self.strategy, self.generation, state, [_view(m, now_s) for m in members]
            )

    # With the lock held.

    def _catch_up(self) -> float:
        """Take in what became of topics, before anything else is looked at. Returns the time."""
        now_s = self._clock.monotonic()
        is_other = False
        for topic, was_deleted in self._changes.take().items():
            if was_deleted:
                self._lose(topic)
            numbers = self._partitions_of(topic)
            origin = self._origin_of(topic)
            readers = [m for m in self._members.values() if m.subscription.matches(topic, origin)]
            for member in readers:
                member.topics = member.topics | {topic} if numbers else member.topics - {topic}
            is_other |= bool(readers) and numbers != self._partitions.get(topic, range(0))
        if is_other:
            self._rebalance(now_s)
        return now_s

    def _lose(self, topic: str) -> None:
        """Take a deleted topic from everybody: a later one of this name is another one."""
        for member in self._members.values():
            if lost := [held for held in member.held if held.topic == topic]:
                self._take_back(member, lost)
                self._have_it_sync(member)
                if not self._unwanted(member):
                    member.give_up_by = None

    def _have_it_sync(self, member: Member) -> None:
        """Whatever a member knows up to now, there is news for it."""
        self.generation = member.news_at = self._next_generation()

    def _live(self, member_id: str, now_s: float) -> Member:
        member = self._members.get(member_id)
        if member is not None and member.is_over(now_s):
            self._remove([member], now_s)
            member = None
        if member is None:
            raise unknown_member(self.name)
        return member

    def _heard(self, member_id: str, generation: int, now_s: float) -> Member:
        member = self._live(member_id, now_s)
        if not member.generation_joined <= generation <= self.generation:
            raise Fenced(
                f"generation {generation} is none that this member of group {self.name} was told:"
                " join again, without a member_id"
            )
        member.heard_at = now_s
        member.generation_known = max(member.generation_known, generation)
        return member

    def _check_strategy(self, strategy: Strategy, member_id: str) -> None:
        if strategy != self.strategy and self._members.keys() - {member_id}:
            raise Conflict(
                f"group {self.name} shares its partitions by {self.strategy!r}, as its first member chose,"
                f" not by {strategy!r}: join with that, or when all others have left"
            )

    def _unwanted(self, member: Member) -> set[TopicPartition]:
        """What a member must give up: what is not its share, or everything once in a rebalance."""
        if self.strategy != "cooperative" and member.gave_up_for != self._rebalances:
            return set(member.held)
        return member.held.keys() - member.share

    def _has_its_share(self, member: Member) -> bool:
        return member.held.keys() == member.share and not self._unwanted(member)

    def _hand_over(self, member: Member, mistaken: Collection[TopicPartition]) -> None:
        if self.strategy != "cooperative" and member.gave_up_for != self._rebalances:
            return
        free = [p for p in member.share.difference(member.held, mistaken) if p not in self._holders]
        if free:
            self.generation = self._next_generation()
            member.held.update(dict.fromkeys(free, self.generation))
            self._holders.update(dict.fromkeys(free, member.id))

    def _take_back(self, member: Member, partitions: Iterable[TopicPartition]) -> None:
        waiting: set[str] = set()
        for partition in partitions:
            del member.held[partition], self._holders[partition]
            waiting.add(self._assignees.get(partition, member.id))
        for owner in waiting - {member.id}:
            if owner in self._members:
                _wake(self._members[owner])

    def _remove(self, gone: Iterable[Member], now_s: float) -> None:
        for member in gone:
            del self._members[member.id]
            self._take_back(member, list(member.held))
            # It is not here any more, and has to learn that.
            _wake(member)
        self._rebalance(now_s)

    def _rebalance(self, now_s: float) -> None:
        """Share out anew. When that changes nothing, nobody is disturbed."""
        members = [member for member in self._members.values() if member.has_synced]
        topics = _union(member.topics for member in members)
        self._partitions = {topic: numbers for topic in topics if (numbers := self._partitions_of(topic))}
        # What somebody has stays there, if it may; else where it was to go.
        owners = {**self._assignees, **self._holders}
        shares = assign(self.strategy, {m.id: m.topics for m in members}, self._partitions, owners)
        for member in members:
            member.share = shares[member.id]
        new = {partition: member for member, share in shares.items() for partition in share}
        if new == self._assignees:
            return
        self._assignees = new
        self._rebalances += 1
        self.generation = self._next_generation()
        for member in members:
            if not self._unwanted(member):
                member.give_up_by = None
            elif member.give_up_by is None:
                member.give_up_by = now_s + member.rebalance_timeout_s
            _wake(member)


def unknown_member(group: str) -> Fenced:
    """For a member that left, was silent for too long, or was here before the broker started."""
    return Fenced(
        f"this member of group {group} is not known, or not any more: join again, without a member_id, and"
        " take nothing for yours before you have synced"
    )


def _union(sets: Iterable[frozenset[str]]) -> set[str]:
    return set().union(*sets)


def _wake(member: Member) -> None:
    member.waiters.wake_all()


def _text(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of {partition.topic}"


def _view(member: Member, now_s: float) -> MemberView:
    return MemberView(
        member.id[:8],
        member.client,
        member.subscription,
        sorted(member.held),
        round((now_s - member.heard_at) * 1000),
    )
