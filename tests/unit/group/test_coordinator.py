"""Members step by step: join, sync, heartbeat, leave, and what becomes of those who are late."""

import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest
from support.manual_clock import ManualClock

from quivermq.errors import Conflict, Fenced, InvalidName, InvalidRequest, Unavailable
from quivermq.group.assignment import STRATEGIES, Strategy, TopicPartition
from quivermq.group.coordinator import Coordinator, MemberLimits
from quivermq.group.member import SyncedMember
from quivermq.group.waiters import Waiter

GROUP = "billing"
EAGER: tuple[Strategy, ...] = ("range", "sticky")


class World:
    """A coordinator, the topics it is told of, and the time."""

    def __init__(self, strategy: Strategy = "cooperative", **limits: int) -> None:
        self.clock = ManualClock()
        self.strategy = strategy
        self.partitions = {"a": 4}
        self.coordinator = Coordinator(
            self.clock,
            lambda: self.partitions,
            lambda topic: range(self.partitions.get(topic, 0)),
            MemberLimits(**limits),
        )

    def join(self, *topics: str, **options: Any) -> "Client":
        joined = self.coordinator.join(GROUP, topics or ["a"], strategy=self.strategy, **options)
        return Client(self, joined.member_id, joined.generation)

    def set_partitions(self, topic: str, count: int) -> None:
        self.partitions[topic] = count
        if not count:
            del self.partitions[topic]
        self.coordinator.topic_changed(topic)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.coordinator.expire()

    @property
    def state(self) -> str:
        view = self.coordinator.view(GROUP)
        assert view is not None
        return view.state


class Client:
    """A member that does as it is told."""

    def __init__(self, world: World, member_id: str, generation: int) -> None:
        self.world = world
        self.id = member_id
        self.generation = generation
        self.owned: set[TopicPartition] = set()

    def sync(self) -> SyncedMember:
        answer = self.world.coordinator.sync(GROUP, self.id, self.generation, self.owned)
        self.generation = answer.generation
        self.owned = set(answer.assignment)
        return answer

    def sync_fully(self) -> list[int]:
        while self.sync().revoked:
            pass
        return self.numbers

    @property
    def numbers(self) -> list[int]:
        return sorted(each.partition for each in self.owned)

    def heartbeat(self) -> str:
        return self.world.coordinator.heartbeat(GROUP, self.id, self.generation)

    def leave(self) -> bool:
        return self.world.coordinator.leave(GROUP, self.id)

    def commit(self, partitions: Collection[TopicPartition], generation: int | None = None) -> None:
        generation = self.generation if generation is None else generation
        with self.world.coordinator.committing(GROUP, self.id, generation, partitions):
            return


def of_a(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("a", number) for number in numbers]


@pytest.fixture(params=STRATEGIES)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_the_only_member_gets_everything(world: World) -> None:
    client = world.join()
    assert client.heartbeat() == "rebalancing"
    answer = client.sync()
    assert answer.assignment == of_a(0, 1, 2, 3)
    assert (answer.revoked, answer.is_incomplete) == ([], False)
    assert client.heartbeat() == "stable"
    assert world.state == "stable"


def test_ids_are_long_and_new_each_time(world: World) -> None:
    ids = {world.join().id for _ in range(10)}
    assert len(ids) == 10
    assert all(len(member_id) == 32 for member_id in ids)


def test_a_member_counts_from_its_first_sync_on(world: World) -> None:
    first = world.join()
    first.sync()
    second = world.join()
    # Its answer may have been lost: nobody gives anything up for it.
    assert first.heartbeat() == "stable"
    assert world.state == "stable"
    second.sync()
    assert first.heartbeat() == "rebalancing"
    assert world.state == "rebalancing"


@pytest.mark.parametrize("strategy", EAGER)
def test_an_eager_rebalance_takes_everything_first(strategy: Strategy) -> None:
    world = World(strategy)
    first, second = world.join(), world.join()
    first.sync()
    waiting = second.sync()
    assert (waiting.assignment, waiting.is_incomplete) == ([], True)
    asked = first.sync()
    assert (asked.assignment, asked.revoked) == ([], of_a(0, 1, 2, 3))
    # As long as it does not say that it gave them up, nobody else gets any.
    assert second.sync().assignment == []
    assert len(first.sync().assignment) == 2
    assert len(second.sync().assignment) == 2
    assert first.heartbeat() == second.heartbeat() == world.state == "stable"


def test_a_cooperative_rebalance_takes_only_what_moves() -> None:
    world = World("cooperative")
    first, second = world.join(), world.join()
    first.sync()
    assert second.sync().assignment == []
    asked = first.sync()
    assert (asked.assignment, asked.revoked) == (of_a(0, 1), of_a(2, 3))
    assert second.sync().assignment == []
    kept = first.sync()
    assert (kept.assignment, kept.revoked) == (of_a(0, 1), [])
    assert second.heartbeat() == "rebalancing"
    assert second.sync().assignment == of_a(2, 3)
    assert first.heartbeat() == second.heartbeat() == world.state == "stable"


def test_what_stays_may_be_committed_all_along() -> None:
    world = World("cooperative")
    first, second = world.join(), world.join()
    first.sync()
    before = first.generation
    second.sync()
    first.commit(of_a(0, 3))
    first.sync_fully()
    first.commit(of_a(0), before)
    second.sync()
    first.commit(of_a(0), before)


def test_a_member_that_leaves_gives_everything_up_at_once(world: World) -> None:
    first, second = world.join(), world.join()
    first.sync()
    second.sync()
    assert first.leave() is True
    assert first.leave() is False
    assert second.sync_fully() == [0, 1, 2, 3]
    for call in (first.sync, first.heartbeat, lambda: first.commit(of_a(0))):
        with pytest.raises(Fenced):
            call()


def test_a_silent_member_is_gone_when_its_time_is_over(world: World) -> None:
    first = world.join(session_timeout_ms=10_000)
    second = world.join(session_timeout_ms=30_000)
    first.sync()
    world.pass_time(9.9)
    first.heartbeat()
    world.pass_time(9.9)
    assert first.sync_fully() == [0, 1, 2, 3]
    world.pass_time(10)
    assert second.sync_fully() == [0, 1, 2, 3]
    with pytest.raises(Fenced, match="join again"):
        first.heartbeat()


@pytest.mark.parametrize("call", ["sync", "heartbeat", "commit"])
def test_a_late_member_is_fenced_before_anybody_looked(world: World, call: str) -> None:
    first = world.join(session_timeout_ms=10_000)
    first.sync()
    world.clock.advance(10)
    with pytest.raises(Fenced):
        first.commit(of_a(0)) if call == "commit" else getattr(first, call)()
    second = world.join()
    assert second.sync().assignment == of_a(0, 1, 2, 3)


@pytest.mark.parametrize("call", ["sync", "heartbeat", "commit"])
def test_every_call_of_a_member_keeps_it_alive(world: World, call: str) -> None:
    client = world.join(session_timeout_ms=10_000)
    client.sync()
    for _ in range(3):
        world.pass_time(9)
        client.commit(of_a(0)) if call == "commit" else getattr(client, call)()
    assert client.heartbeat() == "stable"


def test_whoever_keeps_what_it_must_give_up_is_gone_in_the_end(world: World) -> None:
    first = world.join(session_timeout_ms=10_000, rebalance_timeout_ms=20_000)
    second = world.join(session_timeout_ms=60_000)
    first.sync()
    second.sync()
    for _ in range(3):
        world.pass_time(6)
        assert first.heartbeat() == "rebalancing"
    world.pass_time(2)
    with pytest.raises(Fenced):
        first.heartbeat()
    assert second.sync_fully() == [0, 1, 2, 3]


def test_giving_up_in_time_ends_the_wait(world: World) -> None:
    first, second = world.join(rebalance_timeout_ms=1000), world.join()
    first.sync()
    second.sync()
    world.pass_time(0.9)
    first.sync_fully()
    second.sync_fully()
    world.pass_time(5)
    assert first.heartbeat() == "stable"


def test_a_lost_answer_is_given_again(world: World) -> None:
    client = world.join()
    world.coordinator.sync(GROUP, client.id, client.generation, [])
    assert client.heartbeat() == "rebalancing"
    assert client.sync_fully() == [0, 1, 2, 3]
    assert client.heartbeat() == "stable"


def test_a_request_that_comes_late_gives_nothing_up() -> None:
    world = World()
    client, other = world.join(), world.join()
    late = client.generation
    client.sync()
    world.coordinator.sync(GROUP, client.id, late, [])
    other.sync()
    assert other.owned == set()
    client.commit(of_a(0, 1, 2, 3))


def test_a_commit_that_comes_late_is_fenced() -> None:
    world = World()
    client = world.join()
    client.sync()
    late = client.generation
    client.owned -= set(of_a(3))
    # It gets it back at once, but that is another time.
    assert client.sync().assignment == of_a(0, 1, 2, 3)
    with pytest.raises(Fenced, match="partition 3 of a"):
        client.commit(of_a(0, 3), late)
    client.commit(of_a(0), late)
    client.commit(of_a(0, 3))


def test_a_member_commits_only_what_it_has(world: World) -> None:
    first, second = world.join(), world.join()
    first.sync()
    second.sync()
    first.sync_fully()
    second.sync_fully()
    with pytest.raises(Fenced):
        first.commit(list(second.owned))
    with pytest.raises(Fenced):
        first.commit(of_a(99))
    with pytest.raises(InvalidRequest, match="generation"):
        world.coordinator.committing(GROUP, first.id, None, []).__enter__()


def test_nobody_in_particular_commits_what_no_member_has(world: World) -> None:
    client = world.join()
    client.sync()
    with world.coordinator.committing(GROUP, None, None, [TopicPartition("b", 0)]):
        pass
    with pytest.raises(Conflict, match="member_id"):
        world.coordinator.committing(GROUP, None, None, of_a(0)).__enter__()
    with world.coordinator.committing("nobody", None, None, of_a(0)):
        pass


@pytest.mark.parametrize("generation", [0, 10**9])
def test_a_generation_that_nobody_was_told_is_fenced(world: World, generation: int) -> None:
    client = world.join()
    client.generation = generation
    for call in (client.sync, client.heartbeat, lambda: client.commit([])):
        with pytest.raises(Fenced, match="generation"):
            call()


def test_what_a_member_claims_without_having_it_is_revoked(world: World) -> None:
    client = world.join()
    client.sync()
    client.owned |= {TopicPartition("b", 0)}
    answer = client.sync()
    assert (answer.assignment, answer.revoked) == (of_a(0, 1, 2, 3), [TopicPartition("b", 0)])


def test_more_partitions_of_a_topic_are_shared_out() -> None:
    world = World("cooperative")
    first, second = world.join(), world.join()
    for client in (first, second, first, second):
        client.sync_fully()
    world.set_partitions("a", 6)
    assert first.heartbeat() == second.heartbeat() == "rebalancing"
    for client in (first, second):
        before = client.numbers
        answer = client.sync()
        assert (answer.revoked, len(answer.assignment)) == ([], 3)
        assert set(before) < set(client.numbers)


def test_a_pattern_sees_topics_that_are_created_later(world: World) -> None:
    client = world.join("events.>", "later")
    assert client.sync().assignment == []
    assert client.heartbeat() == "stable"
    world.set_partitions("events.new", 1)
    world.set_partitions("later", 1)
    world.set_partitions("elsewhere", 1)
    assert client.heartbeat() == "rebalancing"
    client.sync_fully()
    assert client.owned == {TopicPartition("events.new", 0), TopicPartition("later", 0)}


def test_a_deleted_topic_is_nobodys(world: World) -> None:
    world.set_partitions("b", 1)
    client = world.join("a", "b")
    client.sync()
    world.set_partitions("b", 0)
    with pytest.raises(Fenced):
        client.commit([TopicPartition("b", 0)])
    assert client.sync().revoked
    assert client.sync_fully() == [0, 1, 2, 3]
    # A topic of the same name is another one.
    late = client.generation
    world.set_partitions("b", 1)
    client.sync_fully()
    assert TopicPartition("b", 0) in client.owned
    with pytest.raises(Fenced):
        client.commit([TopicPartition("b", 0)], late)


def test_a_member_is_told_of_a_deleted_topic(world: World) -> None:
    world.set_partitions("b", 1)
    client = world.join("a", "b")
    client.sync()
    assert client.heartbeat() == "stable"
    world.set_partitions("b", 0)
    assert client.heartbeat() == "rebalancing"
    # An answer that never arrives tells nothing.
    world.coordinator.sync(GROUP, client.id, client.generation, client.owned)
    assert client.heartbeat() == "rebalancing"
    assert TopicPartition("b", 0) in client.sync().revoked
    assert client.sync_fully() == [0, 1, 2, 3]
    assert client.heartbeat() == "stable"


@pytest.mark.parametrize("looks_between", [False, True])
def test_nobody_goes_on_in_a_topic_that_was_deleted_and_created_again(
    world: World, looks_between: bool
) -> None:
    world.set_partitions("b", 1)
    client = world.join("a", "b")
    client.sync()
    world.set_partitions("b", 0)
    if looks_between:
        assert client.heartbeat() == "rebalancing"
    world.set_partitions("b", 1)
    assert client.heartbeat() == "rebalancing"
    with pytest.raises(Fenced):
        client.commit([TopicPartition("b", 0)])
    first = client.sync()
    assert TopicPartition("b", 0) in first.revoked
    assert TopicPartition("b", 0) not in first.assignment
    client.sync_fully()
    assert TopicPartition("b", 0) in client.owned
    assert client.heartbeat() == "stable"


def test_what_a_late_request_was_handed_is_not_taken_for_the_topic_before() -> None:
    world = World()
    world.set_partitions("b", 1)
    client = world.join("b")
    late = client.generation
    client.sync()
    world.set_partitions("b", 0)
    world.set_partitions("b", 1)
    # Its first request comes a second time, and gets the new topic.
    world.coordinator.sync(GROUP, client.id, late, [])
    answer = client.sync()
    assert (answer.assignment, answer.revoked) == ([], [TopicPartition("b", 0)])
    assert client.heartbeat() == "rebalancing"
    assert client.sync().assignment == [TopicPartition("b", 0)]


def test_it_stops_reading_even_what_it_is_told_of_twice() -> None:
    world = World()
    world.set_partitions("b", 1)
    client = world.join("b")
    late = client.generation
    client.sync()
    world.set_partitions("b", 0)
    world.set_partitions("b", 1)
    world.coordinator.sync(GROUP, client.id, late, [])
    reading = set(client.owned)
    client.sync()
    # It is not done with the topic before, and says so.
    client.owned = reading
    assert client.sync().revoked == [TopicPartition("b", 0)]
    assert client.sync().assignment == [TopicPartition("b", 0)]
    assert client.heartbeat() == "stable"


def test_a_request_of_long_ago_is_handed_nothing() -> None:
    world = World()
    client = world.join()
    late = client.generation
    client.sync()
    client.heartbeat()
    world.set_partitions("a", 5)
    answer = world.coordinator.sync(GROUP, client.id, late, [])
    assert answer.assignment == []
    assert client.sync_fully() == [0, 1, 2, 3, 4]
    client.commit(of_a(4))


def test_whoever_was_told_to_stop_is_told_when_that_is_off() -> None:
    world = World()
    client, other = world.join(), world.join(session_timeout_ms=1000)
    client.sync()
    other.sync()
    assert client.sync().revoked
    world.pass_time(2)
    # Alone again, it should have what it has just stopped reading.
    assert client.heartbeat() == "rebalancing"
    assert client.sync_fully() == [0, 1, 2, 3]


def test_joining_again_hides_no_deleted_topic(world: World) -> None:
    world.set_partitions("b", 1)
    client = world.join("a", "b")
    client.sync()
    world.set_partitions("b", 0)
    client.generation = world.join("a", "b", member_id=client.id).generation
    assert client.heartbeat() == "rebalancing"
    client.sync_fully()
    assert client.heartbeat() == "stable"


def test_a_deleted_topic_need_not_be_given_up_in_time() -> None:
    world = World()
    world.set_partitions("b", 1)
    client = world.join("a", "b", rebalance_timeout_ms=1000)
    client.sync()
    world.join("a", member_id=client.id, rebalance_timeout_ms=1000)
    world.set_partitions("b", 0)
    world.set_partitions("b", 1)
    world.pass_time(2)
    assert client.heartbeat() == "rebalancing"
    assert client.sync_fully() == [0, 1, 2, 3]


def run(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("group", [GROUP, "nobody"])
def test_a_topic_changes_without_waiting_for_a_commit(world: World, group: str) -> None:
    client = world.join("a", "b")
    client.sync()
    # Whoever commits may wait for a lock that whoever creates the topic has.
    with world.coordinator.committing(group, None, None, []):
        changing = run(lambda: world.set_partitions("b", 1))
        changing.join(10)
        assert not changing.is_alive()
    assert client.heartbeat() == "rebalancing"


def test_nobody_becomes_the_first_member_during_a_commit() -> None:
    world = World()
    joined: list[Client] = []
    has_begun = threading.Event()

    def join() -> None:
        has_begun.set()
        joined.append(world.join())

    with world.coordinator.committing(GROUP, None, None, of_a(0)):
        joining = run(join)
        assert has_begun.wait(10)
        joining.join(0.05)
        assert joined == []
        # A group without members is none yet.
        assert world.coordinator.groups() == []
        assert world.coordinator.view(GROUP) is None
    joining.join(10)
    assert joined[0].sync().assignment == of_a(0, 1, 2, 3)


def test_a_commit_without_a_member_takes_no_place_among_the_groups() -> None:
    world = World(groups_max=1)
    with world.coordinator.committing("nobody", None, None, of_a(0)):
        world.join()
        with pytest.raises(Unavailable, match="1 groups"):
            world.coordinator.join("third", ["a"])
    assert world.coordinator.groups() == [GROUP]


def test_a_topic_that_nobody_reads_disturbs_nobody(world: World) -> None:
    client = world.join()
    client.sync()
    world.set_partitions("b", 5)
    assert client.heartbeat() == "stable"


def test_somebody_who_changes_nothing_disturbs_nobody() -> None:
    world = World("range", members_max=5)
    world.partitions["a"] = 1
    first, idle = world.join(), world.join()
    first.sync()
    generation = first.generation
    assert idle.sync().is_incomplete is False
    assert first.heartbeat() == "stable"
    assert idle.generation == generation


def test_a_member_may_want_other_topics(world: World) -> None:
    world.set_partitions("b", 1)
    client = world.join("a")
    client.sync()
    joined = world.coordinator.join(GROUP, ["b"], strategy=world.strategy, member_id=client.id)
    assert (joined.member_id, joined.members) == (client.id, 1)
    assert client.heartbeat() == "rebalancing"
    client.sync_fully()
    assert client.owned == {TopicPartition("b", 0)}


def test_a_member_that_is_not_known_cannot_join_again(world: World) -> None:
    with pytest.raises(Fenced, match="without a member_id"):
        world.join(member_id="0" * 32)
    world.join()
    with pytest.raises(Fenced):
        world.join(member_id="0" * 32)


def test_the_first_member_chooses_the_strategy() -> None:
    world = World("range")
    first = world.join()
    world.strategy = "sticky"
    with pytest.raises(Conflict, match=r"'range'.*'sticky'"):
        world.join()
    world.join(member_id=first.id)
    view = world.coordinator.view(GROUP)
    assert view is not None
    assert view.strategy == "sticky"
    first.leave()
    world.strategy = "cooperative"
    world.join()


def test_a_group_that_is_empty_is_forgotten_and_uses_no_generation_again(world: World) -> None:
    client = world.join()
    client.sync()
    client.leave()
    assert world.coordinator.groups() == []
    assert world.coordinator.view(GROUP) is None
    again = world.join(session_timeout_ms=1000)
    assert again.generation > client.generation
    world.pass_time(1)
    assert world.coordinator.groups() == []


def test_limits() -> None:
    world = World(members_max=2, groups_max=2, topics_max=3)
    world.join()
    world.join()
    with pytest.raises(Unavailable, match="2 members"):
        world.join()
    world.coordinator.join("other", ["a"])
    with pytest.raises(Unavailable, match="2 groups"):
        world.coordinator.join("third", ["a"])
    with pytest.raises(InvalidRequest, match="1 to 3"):
        world.coordinator.join("other", ["a"] * 4)
    assert world.coordinator.groups() == [GROUP, "other"]


@pytest.mark.parametrize(
    ("group", "options", "kind"),
    [
        ("a/b", {}, InvalidName),
        ("", {}, InvalidName),
        (GROUP, {"topics": []}, InvalidRequest),
        (GROUP, {"topics": ["a/b"]}, InvalidName),
        (GROUP, {"strategy": "random"}, InvalidRequest),
        (GROUP, {"session_timeout_ms": 99}, InvalidRequest),
        (GROUP, {"session_timeout_ms": True}, InvalidRequest),
        (GROUP, {"rebalance_timeout_ms": 3_600_001}, InvalidRequest),
    ],
)
def test_bad_input_leaves_nothing_behind(
    group: str, options: dict[str, Any], kind: type[InvalidRequest]
) -> None:
    world = World()
    with pytest.raises(kind):
        world.coordinator.join(group, **{"topics": ["a"], **options})
    assert world.coordinator.groups() == []


def test_a_member_that_waits_is_woken_when_there_is_something_for_it() -> None:
    world = World()
    first, second = world.join(), world.join()
    first.sync()
    second.sync()
    waiters, session_s = world.coordinator.waiters(GROUP, second.id)
    woken: list[str] = []
    waiters.waiting.append(Waiter(lambda: woken.append("free")))
    first.sync()
    assert woken == []
    first.sync()
    assert woken == ["free"]
    assert session_s == 30
    world.coordinator.waiters(GROUP, first.id)[0].waiting.append(
        Waiter(lambda: woken.append("shared anew"))
    )
    world.set_partitions("a", 5)
    assert woken == ["free", "shared anew"]
    waiters.waiting.append(Waiter(lambda: woken.append("gone")))
    second.leave()
    assert "gone" in woken


def test_everybody_can_be_woken() -> None:
    world = World()
    woken: list[int] = []
    for number in range(3):
        waiters, _ = world.coordinator.waiters(GROUP, world.join().id)
        waiters.waiting.append(Waiter(lambda number=number: woken.append(number)))  # type: ignore[misc]
    world.coordinator.wake_all()
    assert woken == [0, 1, 2]


def test_a_view_tells_who_has_what_but_no_id() -> None:
    world = World("range")
    client = world.join("a", "b.*", client="10.0.0.1")
    client.sync()
    world.clock.advance(2)
    view = world.coordinator.view(GROUP)
    assert view is not None
    assert (view.group, view.strategy, view.state) == (GROUP, "range", "stable")
    (member,) = view.members
    assert client.id.startswith(member.member)
    assert len(member.member) == 8
    assert (member.client, member.silent_ms) == ("10.0.0.1", 2000)
    assert member.subscription.topics == ("a", "b.*")
    assert member.partitions == of_a(0, 1, 2, 3)
    assert world.coordinator.topics(GROUP) == {"a"}
    assert world.coordinator.subscribed(GROUP, client.id) == ("a", "b.*")
    assert world.coordinator.topics("nobody") == set()
