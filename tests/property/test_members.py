"""Members of a group come, go, die, are late and miss answers; none ever reads what another one reads."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.manual_clock import ManualClock

from quivermq.errors import Fenced
from quivermq.group.assignment import STRATEGIES, Strategy, TopicPartition, assign
from quivermq.group.coordinator import Coordinator
from quivermq.group.member import SyncedMember

GROUP = "billing"
SESSION_S, REBALANCE_S = 10, 25
SUBSCRIPTIONS = [["a"], ["b", "a"], ["*"], ["more.>", "b"], [">"]]
# Enough turns for any rebalance to end: each settles at least one member.
TURNS_MAX = 200


@dataclass(eq=False)
class Client:
    """A member as it sees itself."""

    member_id: str
    generation: int
    topics: list[str]
    heard_at: float
    owned: set[TopicPartition] = field(default_factory=set)
    had: set[TopicPartition] = field(default_factory=set)
    to_give_up: set[TopicPartition] = field(default_factory=set)
    begun: dict[TopicPartition, int] = field(default_factory=dict)
    """Of which life of its topic a partition is that it reads."""
    is_dead: bool = False
    has_news: bool = False
    lost: list[tuple[int, TopicPartition]] = field(default_factory=list)
    """What it told that it gave up, and the generation in which it had it."""

    def take(self, answer: SyncedMember, lives: Counter[str]) -> None:
        assert answer.generation >= self.generation
        assert not set(answer.assignment) & set(answer.revoked)
        self.generation = answer.generation
        self.has_news = False
        # It goes on with what it must give up until it has finished with it.
        self.to_give_up = self.owned & set(answer.revoked)
        for partition in set(answer.assignment) - self.owned:
            self.begun[partition] = lives[partition.topic]
        self.owned = set(answer.assignment) | self.to_give_up
        # It would go on in a new topic where it was in the one before, and skip the first messages.
        assert all(self.begun[partition] == lives[partition.topic] for partition in answer.assignment)

    def give_up(self) -> None:
        self.owned -= self.to_give_up
        self.to_give_up = set()


class Group(RuleBasedStateMachine):
    """One group, and the clients that believe to be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.partitions = {"a": 5, "b": 2}
        numbers = count(1)
        self.coordinator = Coordinator(
            self.clock,
            lambda: self.partitions,
            lambda topic: range(self.partitions.get(topic, 0)),
            # Who gets what depends on the ids: the same life must end the same way each time it is lived.
            new_id=lambda: f"member-{next(numbers):04}",
        )
        self.clients: list[Client] = []
        self.on_their_way: list[Callable[[], object]] = []
        self.generation = 0
        self.topics_made = 0
        # How often a topic was deleted: one that comes again is another one.
        self.lives: Counter[str] = Counter()

    @initialize(strategy=st.sampled_from(STRATEGIES))
    def choose(self, strategy: Strategy) -> None:
        self.strategy = strategy

    # What clients do.

    @precondition(lambda self: len(self.clients) < 8)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS))
    def join(self, topics: list[str]) -> None:
        joined = self.coordinator.join(
            GROUP,
            topics,
            strategy=self.strategy,
            session_timeout_ms=SESSION_S * 1000,
            rebalance_timeout_ms=REBALANCE_S * 1000,
        )
        self.clients.append(Client(joined.member_id, joined.generation, topics, self.clock.monotonic()))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.sync_client(self.draw(data))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def sync_and_never_hear(self, data: st.DataObject) -> None:
        client = self.draw(data)
        self.tell(client, self.sync_call(client))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def sync_over_a_slow_line(self, data: st.DataObject) -> None:
        """The request is long on its way; meanwhile the client tries again."""
        client = self.draw(data)
        self.on_their_way.append(self.sync_call(client))
        self.sync_client(client)

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.on_their_way) - 1))
        try:
            self.on_their_way.pop(number)()
        except Fenced:
            return

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def finish_with_what_is_revoked(self, data: st.DataObject) -> None:
        self.draw(data).give_up()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def stop_reading_everything(self, data: st.DataObject) -> None:
        client = self.draw(data)
        client.owned, client.to_give_up, client.has_news = set(), set(), True

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.draw(data)
        self.coordinator.leave(GROUP, client.member_id)
        self.clients.remove(client)
        self.assert_fenced(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.draw(data).is_dead = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=st.sampled_from(SUBSCRIPTIONS))
    def want_other_topics(self, data: st.DataObject, topics: list[str]) -> None:
        client = self.draw(data)

        def join() -> None:
            self.coordinator.join(
                GROUP,
                topics,
                strategy=self.strategy,
                member_id=client.member_id,
                session_timeout_ms=SESSION_S * 1000,
                rebalance_timeout_ms=REBALANCE_S * 1000,
            )

        if self.tell(client, join):
            client.topics = topics

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        client = self.draw(data)
        existing = {partition for partition in client.owned if self.is_there(client, partition)}

        def commit() -> None:
            with self.coordinator.committing(GROUP, client.member_id, client.generation, existing):
                return

        # Whoever is in the group may commit all that it reads, also what it has to give up.
        self.tell(client, commit)

    @precondition(lambda self: any(client.lost for client in self.clients))
    @rule(data=st.data())
    def commit_what_is_given_up(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.lost]))
        generation, partition = data.draw(st.sampled_from(client.lost))
        with (
            pytest.raises(Fenced),
            self.coordinator.committing(GROUP, client.member_id, generation, {partition}),
        ):
            pytest.fail("somebody else may read it by now")

    # What happens around them.

    @rule(seconds=st.sampled_from([1, 4, 9, 15]), beating=st.booleans())
    def pass_time(self, seconds: int, beating: bool) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self.coordinator.expire()
            if beating:
                self.beat()

    @rule(topic=st.sampled_from(["a", "b"]))
    def grow(self, topic: str) -> None:
        if self.partitions.get(topic, 0) in range(1, 9):
            self.partitions[topic] += 1
            self.coordinator.topic_changed(topic)

    @precondition(lambda self: self.topics_made < 4)
    @rule(partitions=st.integers(1, 4))
    def create_topic(self, partitions: int) -> None:
        self.topics_made += 1
        self.partitions[f"more.{self.topics_made}"] = partitions
        self.coordinator.topic_changed(f"more.{self.topics_made}")

    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(sorted(self.partitions)))
        if topic != "a":
            del self.partitions[topic]
            self.lives[topic] += 1
            self.coordinator.topic_changed(topic)

    @precondition(lambda self: "b" not in self.partitions)
    @rule(partitions=st.integers(1, 4))
    def create_topic_again(self, partitions: int) -> None:
        self.partitions["b"] = partitions
        self.coordinator.topic_changed("b")

    @precondition(lambda self: "b" in self.partitions)
    @rule()
    def replace_topic(self) -> None:
        """Delete and create before anybody had the time to notice."""
        partitions = self.partitions["b"]
        del self.partitions["b"]
        self.lives["b"] += 1
        self.coordinator.topic_changed("b")
        self.create_topic_again(partitions)

    @rule()
    def settle(self) -> None:
        """Let everybody do what it should, and those who are dead be found out."""
        for client in list(self.clients):
            client.give_up()
        for _ in range(REBALANCE_S + 1):
            self.clock.advance(1)
            self.coordinator.expire()
            self.beat()
        self.clients = [client for client in self.clients if not client.is_dead]
        for _ in range(TURNS_MAX):
            waiting = [c for c in list(self.clients) if c.has_news or self.heartbeat(c) == "rebalancing"]
            for client in waiting:
                self.sync_client(client)
                client.give_up()
            if not waiting:
                break
        else:
            pytest.fail("the group never settles")
        self.assert_everything_is_read()

    # What has to hold.

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        now = self.clock.monotonic()
        readers: dict[TopicPartition, Client] = {}
        for client in self.clients:
            # A dead one reads nothing, and one that is over its time is fenced.
            if client.is_dead or client.heard_at + SESSION_S <= now:
                continue
            for partition in client.owned:
                if self.is_there(client, partition) and self.is_known(client):
                    assert readers.setdefault(partition, client) is client

    @invariant()
    def generations_grow(self) -> None:
        view = self.coordinator.view(GROUP)
        if view is not None:
            assert view.generation >= self.generation
            self.generation = view.generation

    def assert_everything_is_read(self) -> None:
        for topic, partitions in self.partitions.items():
            readers = [c for c in self.clients if self.wants(c, topic)]
            numbers = sorted(p.partition for c in readers for p in c.owned if p.topic == topic)
            assert numbers == (list(range(partitions)) if readers else [])
            shares = [sum(p.topic == topic for p in client.owned) for client in readers]
            assert max(shares, default=0) - min(shares, default=0) <= 1
        if self.strategy != "range" and len({tuple(client.topics) for client in self.clients}) == 1:
            loads = [len(client.owned) for client in self.clients]
            assert max(loads) - min(loads) <= 1
        view = self.coordinator.view(GROUP)
        assert view is None or view.state == "stable"

    def assert_fenced(self, client: Client) -> None:
        calls: list[Callable[[], object]] = [
            self.sync_call(client),
            lambda: self.coordinator.heartbeat(GROUP, client.member_id, client.generation),
            lambda: self.coordinator.committing(
                GROUP, client.member_id, client.generation, client.owned
            ).__enter__(),
        ]
        for call in calls:
            with pytest.raises(Fenced):
                call()

    # How it is done.

    def draw(self, data: st.DataObject) -> Client:
        return self.clients[data.draw(st.integers(0, len(self.clients) - 1), label="client")]

    def wants(self, client: Client, topic: str) -> bool:
        is_more = topic.startswith("more.")
        return (
            topic in client.topics
            or ">" in client.topics
            or ("more.>" if is_more else "*") in client.topics
        )

    def is_there(self, client: Client, partition: TopicPartition) -> bool:
        """Whether there still is the very topic that a client reads."""
        is_same = client.begun[partition] == self.lives[partition.topic]
        return is_same and partition.topic in self.partitions

    def is_known(self, client: Client) -> bool:
        try:
            self.coordinator.subscribed(GROUP, client.member_id)
        except Fenced:
            return False
        return True

    def sync_call(self, client: Client) -> Callable[[], SyncedMember]:
        generation, owned = client.generation, frozenset(client.owned)
        return lambda: self.coordinator.sync(GROUP, client.member_id, generation, owned)

    def sync_client(self, client: Client) -> None:
        if client.is_dead:
            return
        given_up = [(client.generation, partition) for partition in sorted(client.had - client.owned)]
        if self.tell(client, lambda: client.take(self.sync_call(client)(), self.lives)):
            client.lost += given_up
            client.had = set(client.owned)

    def heartbeat(self, client: Client) -> str:
        states: list[str] = []
        self.tell(
            client,
            lambda: states.append(self.coordinator.heartbeat(GROUP, client.member_id, client.generation)),
        )
        return states[0] if states else "fenced"

    def beat(self) -> None:
        for client in list(self.clients):
            if not client.is_dead:
                self.heartbeat(client)

    def tell(self, client: Client, call: Callable[[], object]) -> bool:
        """Call as a client, who is gone when it is fenced; that happens only to one that was late."""
        if client.is_dead:
            return False
        try:
            call()
        except Fenced:
            self.assert_fenced(client)
            self.clients.remove(client)
            return False
        client.heard_at = self.clock.monotonic()
        return True


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=300, stateful_step_count=50)


SMALL = st.one_of(
    st.dictionaries(st.sampled_from("ab"), st.integers(1, 3), min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), st.just(1), min_size=1),
    st.fixed_dictionaries({"a": st.integers(1, 7)}),
)


def is_even(partitions: list[TopicPartition], owners: tuple[str, ...], members: list[str]) -> bool:
    """Whether nobody has two more than another, in total and of each topic."""
    for topic in {None, *(partition.topic for partition in partitions)}:
        mine = [o for p, o in zip(partitions, owners, strict=True) if topic in (None, p.topic)]
        shares = [mine.count(member) for member in members]
        if max(shares) - min(shares) > 1:
            return False
    return True


@settings(max_examples=60)
@given(
    strategy=st.sampled_from(["sticky", "cooperative"]),
    counts=SMALL,
    members=st.integers(1, 3),
    data=st.data(),
)
def test_no_fewer_partitions_could_move(
    strategy: Strategy, counts: dict[str, int], members: int, data: st.DataObject
) -> None:
    topics = {topic: range(count) for topic, count in counts.items()}
    names = [f"m{n}" for n in range(members)]
    partitions = [TopicPartition(topic, n) for topic, numbers in topics.items() for n in numbers]
    before = [data.draw(st.sampled_from([*names, "gone"])) for _ in partitions]
    wishes = dict.fromkeys(names, frozenset(topics))
    shares = assign(strategy, wishes, topics, dict(zip(partitions, before, strict=True)))
    after = {partition: member for member, share in shares.items() for partition in share}
    assert is_even(partitions, tuple(after[partition] for partition in partitions), names)
    fewest = min(
        sum(old != new for old, new in zip(before, owners, strict=True))
        for owners in product(names, repeat=len(partitions))
        if is_even(partitions, owners, names)
    )
    assert sum(old != after[p] for old, p in zip(before, partitions, strict=True)) == fewest


@given(
    strategy=st.sampled_from(STRATEGIES),
    counts=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 6), min_size=1),
    members=st.integers(1, 6),
)
def test_sharing_out_again_moves_nothing(strategy: Strategy, counts: dict[str, int], members: int) -> None:
    partitions = {topic: range(count) for topic, count in counts.items()}
    wishes = {f"m{n}": frozenset(partitions) for n in range(members)}
    first = assign(strategy, wishes, partitions, {})
    owners = {partition: member for member, share in first.items() for partition in share}
    assert assign(strategy, wishes, partitions, owners) == first
