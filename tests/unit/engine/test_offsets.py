"""Committed offsets: the positions of a group, told and set by those who read the log themselves."""

from typing import Any

import pytest
from support.threads import PATIENCE_S, Gate, start
from unit.engine.store import Store, accepted, drain, refused

import quivermq
from quivermq.engine import engine_of
from quivermq.engine.offsets import (
    COMMITS_MAX,
    Commit,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    topics_by_group,
    topics_of_group,
)
from quivermq.errors import Fenced
from quivermq.group.assignment import TopicPartition

GROUP = "billing"


@pytest.fixture
def orders(store: Store) -> Store:
    """Two partitions, ten messages each."""
    queue = store.queue(partitions=2, durability="os")
    for partition in (0, 1):
        queue.put_many([quivermq.Message(b"%d" % n, partition=partition) for n in range(10)])
    return store


def commit(store: Store, *commits: Commit, **member: Any) -> None:
    commit_offsets(engine_of(store.engine), GROUP, commits, **member)


def committed(store: Store, topic: str = "orders") -> list[tuple[int, str, int | None, int]]:
    found = committed_offsets(engine_of(store.engine), GROUP, [topic])
    assert all(offset.topic == topic for offset in found)
    return [(each.partition, each.priority, each.offset, each.lag) for each in found]


def member_of(store: Store, *topics: str) -> tuple[dict[str, Any], list[TopicPartition]]:
    """A new member, by what it commits with, and what it was given."""
    joined = engine_of(store.engine).members.join(GROUP, topics or ["orders"])
    synced = engine_of(store.engine).members.sync(GROUP, joined.member_id, joined.generation)
    return {"member_id": joined.member_id, "generation": synced.generation}, synced.assignment


def test_without_a_commit_there_is_no_offset(orders: Store) -> None:
    before = orders.files()
    assert committed(orders) == [(0, "normal", None, 10), (1, "normal", None, 10)]
    assert orders.files() == before
    assert orders.engine.groups("orders") == []


def test_a_commit_is_where_the_group_goes_on(orders: Store) -> None:
    commit(orders, Commit("orders", 0, 4), Commit("orders", 1, 10))
    assert committed(orders) == [(0, "normal", 4, 6), (1, "normal", 10, 0)]
    assert drain(orders.queue(group=GROUP)) == [b"%d" % n for n in range(4, 10)]
    assert committed(orders) == [(0, "normal", 10, 0), (1, "normal", 10, 0)]


@pytest.mark.parametrize("end", ["reopen", "kill", "compact"])
def test_commits_survive_and_zero_is_not_nothing(orders: Store, end: str) -> None:
    commit(orders, Commit("orders", 0, 0))
    if end == "compact":
        orders.engine.compact()
        end = "reopen"
    getattr(orders, end)()
    assert committed(orders) == [(0, "normal", 0, 10), (1, "normal", None, 10)]
    commit(orders, Commit("orders", 1, 3))
    getattr(orders, end)()
    assert committed(orders) == [(0, "normal", 0, 10), (1, "normal", 3, 7)]


def test_a_group_that_only_looked_has_no_offset(store: Store) -> None:
    store.engine.create_topic("orders")
    assert store.queue(group=GROUP).get() is None
    assert committed(store) == [(0, "normal", None, 0)]


def test_queue_mode_has_offsets_too(orders: Store) -> None:
    queue = orders.queue(group=GROUP)
    messages = [m for m in queue.get_many(20) if m.partition == 0]
    queue.ack(messages[:3])
    queue.ack(messages[4:6])
    # The first that is not finished: whoever goes on there loses nothing.
    assert committed(orders)[0] == (0, "normal", 3, 5)


def test_each_priority_in_use_has_an_offset_of_its_own(orders: Store) -> None:
    orders.queue().put(b"now", partition=1, priority="high")
    commit(orders, Commit("orders", 1, 1, "high"))
    assert committed(orders) == [
        (0, "normal", None, 10),
        (1, "high", 1, 0),
        (1, "normal", None, 10),
    ]
    (_, high, _) = committed_offsets(engine_of(orders.engine), GROUP, ["orders"])
    assert high == CommittedOffset("orders", 1, "high", 1, start=0, end=1, lag=0)


def test_a_commit_of_the_same_position_writes_nothing(orders: Store) -> None:
    commits = [Commit("orders", 0, 4), Commit("orders", 1, 0)]
    commit(orders, *commits)
    before = orders.files()
    commit(orders, *commits)
    assert orders.files() == before
    commit(orders, Commit("orders", 0, 5), commits[1])
    changed = {path.parent.name for path, data in orders.files().items() if before.get(path) != data}
    assert changed == {"p0"}


def test_a_commit_is_as_durable_as_its_topic_asks_for(store: Store) -> None:
    store.queue("safe", durability="fsync").put(b"x")
    commit(store, Commit("safe", 0, 1))
    store.open_again(store.disk.after_power_loss(0, keep="nothing"))
    assert committed(store, "safe") == [(0, "normal", 1, 0)]


def test_a_journal_of_nothing_but_commits_stays_short(orders: Store) -> None:
    for number in range(20_000):
        commit(orders, Commit("orders", 0, number % 10))
    size = sum(len(data) for path, data in orders.files().items() if "groups" in path.parts)
    # Without snapshots it would be twice as much.
    assert size < 1024 * 1024


def test_a_commit_ends_the_leases_of_its_lane(orders: Store) -> None:
    queue = orders.queue(group=GROUP)
    held = {m.partition: m for m in queue.get_many(20) if m.offset == 5}
    commit(orders, Commit("orders", 0, 2))
    with pytest.raises(quivermq.LeaseExpired):
        held[0].ack()
    held[1].ack()
    assert committed(orders) == [(0, "normal", 2, 8), (1, "normal", 0, 9)]


def test_a_commit_of_the_next_offset_finishes_what_is_in_flight(orders: Store) -> None:
    orders.queue(group=GROUP).get_many(20)
    commit(orders, Commit("orders", 0, 10))
    assert committed(orders)[0] == (0, "normal", 10, 0)


@pytest.mark.parametrize("offset", [-1, 11, 2**62])
def test_an_offset_that_is_not_there_is_refused(orders: Store, offset: int) -> None:
    good = Commit("orders", 1, 3)
    error = refused(orders, lambda: commit(orders, good, Commit("orders", 0, offset)))
    if offset < 0:
        assert isinstance(error, quivermq.InvalidRequest)
    else:
        assert isinstance(error, quivermq.OffsetOutOfRange)
        assert (error.offset, error.start, error.end) == (offset, 0, 10)


def test_what_retention_took_cannot_be_committed(store: Store) -> None:
    queue = store.queue(segment_messages=2, retention_messages=2, retention_force=True, partitions=2)
    for partition in (0, 1):
        for number in range(10):
            queue.put(b"%d" % number, partition=partition)
    commit(store, Commit("orders", 1, 3))
    store.engine.compact()
    start = committed_offsets(engine_of(store.engine), GROUP, ["orders"])[0].start
    assert start > 3
    # A group moves on with the log where it has been, and has still not been elsewhere.
    assert [each[2] for each in committed(store)] == [None, start]
    with pytest.raises(quivermq.OffsetOutOfRange):
        commit(store, Commit("orders", 0, start - 1))
    store.reopen()
    assert [each[2] for each in committed(store)] == [None, start]


def test_bad_commits_are_refused_before_anything_is_written(orders: Store) -> None:
    bad: list[tuple[object, Any]] = [
        ("partition", [Commit("orders", 2, 0)]),
        ("negative partition", [Commit("orders", -1, 0)]),
        ("no partition", [Commit("orders", None, 0)]),  # type: ignore[arg-type]
        ("text", [Commit("orders", 0, "1")]),  # type: ignore[arg-type]
        ("priority", [Commit("orders", 0, 0, "urgent")]),
        ("unused lane", [Commit("orders", 0, 1, "low")]),
        ("twice", [Commit("orders", 0, 1), Commit("orders", 0, 2)]),
        ("topic", [Commit("nowhere", 0, 0)]),
        ("pattern", [Commit("*", 0, 0)]),
        ("too many", [Commit("orders", 0, 1)] * (COMMITS_MAX + 1)),
    ]
    calls = [(name, lambda c=commits: commit(orders, *c)) for name, commits in bad]
    assert accepted(orders, calls, quivermq.InvalidRequest, quivermq.NotFound) == []
    error = refused(orders, lambda: commit(orders, Commit("orders", 0, 1), generation=3))
    assert "member_id" in str(error)
    error = refused(
        orders, lambda: commit_offsets(engine_of(orders.engine), "a/b", [Commit("orders", 0, 1)])
    )
    assert isinstance(error, quivermq.InvalidName)


def test_a_member_commits_what_it_has(orders: Store) -> None:
    member, assignment = member_of(orders)
    assert assignment == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    commit(orders, Commit("orders", 0, 4), Commit("orders", 1, 5), **member)
    assert committed(orders) == [(0, "normal", 4, 6), (1, "normal", 5, 5)]


def test_a_fenced_member_commits_nothing(orders: Store) -> None:
    member, _ = member_of(orders)
    engine_of(orders.engine).members.leave(GROUP, member["member_id"])
    error = refused(orders, lambda: commit(orders, Commit("orders", 0, 4), **member))
    assert isinstance(error, Fenced)
    assert orders.engine.groups("orders") == []


def test_one_partition_of_another_member_stops_the_whole_commit(orders: Store) -> None:
    orders.engine.create_topic("mails")
    member, assignment = member_of(orders, "mails")
    member_of(orders, "orders")
    commits = [Commit("mails", 0, 0), Commit("orders", 0, 1)]
    assert assignment == [TopicPartition("mails", 0)]
    assert isinstance(refused(orders, lambda: commit(orders, *commits, **member)), Fenced)


def test_nobody_commits_over_the_head_of_a_member(orders: Store) -> None:
    member_of(orders)
    error = refused(orders, lambda: commit(orders, Commit("orders", 0, 4)))
    assert isinstance(error, quivermq.Conflict)
    commit_offsets(engine_of(orders.engine), "another", [Commit("orders", 0, 4)])


def test_members_are_gone_after_a_restart_and_their_commits_are_not(orders: Store) -> None:
    member, _ = member_of(orders)
    commit(orders, Commit("orders", 0, 4), **member)
    orders.reopen()
    with pytest.raises(Fenced):
        commit(orders, Commit("orders", 0, 5), **member)
    assert committed(orders)[0] == (0, "normal", 4, 6)
    again, _ = member_of(orders)
    commit(orders, Commit("orders", 0, 5), **again)


def test_sessions_end_by_themselves(orders: Store) -> None:
    member_of(orders)
    orders.pass_time(29)
    assert engine_of(orders.engine).members.groups() == [GROUP]
    orders.pass_time(1)
    assert engine_of(orders.engine).members.groups() == []


def test_members_follow_what_becomes_of_topics(orders: Store) -> None:
    member, _ = member_of(orders, ">")
    beat = (GROUP, member["member_id"], member["generation"])
    assert engine_of(orders.engine).members.heartbeat(*beat) == "stable"
    orders.engine.alter_topic("orders", partitions=3)
    assert engine_of(orders.engine).members.heartbeat(*beat) == "rebalancing"
    orders.queue("new").put(b"x")
    orders.engine.delete_topic("orders")
    synced = engine_of(orders.engine).members.sync(GROUP, member["member_id"], member["generation"])
    assert synced.assignment == [TopicPartition("new", 0)]


def test_the_topics_of_groups(orders: Store) -> None:
    orders.engine.create_topic("mails")
    commit(orders, Commit("orders", 0, 4))
    member_of(orders, "mails")
    commit_offsets(engine_of(orders.engine), "audit", [Commit("mails", 0, 0)])
    assert topics_of_group(engine_of(orders.engine), GROUP) == {"mails", "orders"}
    assert topics_of_group(engine_of(orders.engine), "nobody") == set()
    assert topics_by_group(engine_of(orders.engine)) == {GROUP: {"mails", "orders"}, "audit": {"mails"}}
    with pytest.raises(quivermq.TopicNotFound):
        committed_offsets(engine_of(orders.engine), GROUP, ["nowhere"])


def test_nobody_takes_over_a_partition_while_its_commit_is_being_written(orders: Store) -> None:
    member, _ = member_of(orders)
    commit(orders, Commit("orders", 0, 1), **member)
    gate = Gate(orders.disk, "append", f"*/groups/{GROUP}/*")
    writing = start(lambda: commit(orders, Commit("orders", 0, 7), **member))
    gate.wait()

    def take_over() -> int | None:
        engine_of(orders.engine).members.leave(GROUP, member["member_id"])
        _, assignment = member_of(orders)
        assert assignment == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        return committed(orders)[0][2]

    taking_over = start(take_over)
    gate.open()
    writing.result(PATIENCE_S)
    assert taking_over.result(PATIENCE_S) == 7


def test_members_and_topics_that_change_in_many_threads_never_wait_for_each_other(orders: Store) -> None:
    def consume() -> None:
        for number in range(40):
            member, assignment = member_of(orders, "orders", "more.*")
            mine = [each for each in assignment if each.topic == "orders" and each.partition < 2]
            commit(orders, *(Commit(*each, number % 10) for each in mine), **member)
            engine_of(orders.engine).members.leave(GROUP, member["member_id"])

    def change() -> None:
        for number in range(20):
            orders.engine.create_topic(f"more.{number}")
            orders.engine.alter_topic("orders", partitions=3 + number)
            orders.engine.delete_topic(f"more.{number}")
            engine_of(orders.engine).maintain()

    done = [start(consume), start(consume), start(change)]
    for each in done:
        each.result(PATIENCE_S)
    assert engine_of(orders.engine).members.groups() == []
    assert {each.offset for each in committed_offsets(engine_of(orders.engine), GROUP, ["orders"])} - {None}


def counted(store: Store) -> tuple[int, int]:
    """How many messages the group was delivered, and acked, as stats and metrics have it."""
    had = engine_of(store.engine).activity()["orders"].groups[GROUP]
    samples = {
        sample["name"]: sample["value"]
        for sample in engine_of(store.engine).collect_metrics()
        if sample["labels"] == {"topic": "orders", "group": GROUP} and "value" in sample
    }
    assert samples["quiver_messages_delivered_total"] == had.delivered
    assert samples["quiver_messages_acked_total"] == had.acked
    return had.delivered, had.acked


def test_what_is_committed_was_delivered_and_finished(orders: Store) -> None:
    commit(orders, Commit("orders", 0, 4))
    assert counted(orders) == (4, 4)
    commit(orders, Commit("orders", 0, 4))
    commit(orders, Commit("orders", 0, 7), Commit("orders", 1, 10))
    assert counted(orders) == (17, 17)
    # Going back delivers nothing; what is read from there once more is delivered once more.
    commit(orders, Commit("orders", 1, 5))
    assert counted(orders) == (17, 17)
    commit(orders, Commit("orders", 1, 6))
    assert counted(orders) == (18, 18)


def test_a_commit_counts_nothing_twice_that_was_handed_out_before(orders: Store) -> None:
    queue = orders.engine.queue("orders", GROUP)
    had = queue.get_many(20)
    queue.ack([delivery for delivery in had if delivery.partition == 0])
    assert counted(orders) == (20, 10)
    commit(orders, Commit("orders", 1, 8))
    assert counted(orders) == (20, 18)


def test_a_seek_counts_nothing(orders: Store) -> None:
    orders.engine.queue("orders", GROUP).seek("latest")
    assert counted(orders) == (0, 0)
