"""Who should read what. That nothing could be more even, or move less, is in tests/property."""

import pytest

from quivermq.group.assignment import STRATEGIES, Assignment, Strategy, TopicPartition, assign


def numbers(assignment: Assignment, topic: str = "a") -> dict[str, list[int]]:
    return {
        member: sorted(each.partition for each in share if each.topic == topic)
        for member, share in assignment.items()
    }


def owners_of(assignment: Assignment) -> dict[TopicPartition, str]:
    return {partition: member for member, share in assignment.items() for partition in share}


def all_want(topics: str, members: str = "xyz") -> dict[str, frozenset[str]]:
    return dict.fromkeys(members, frozenset(topics))


def test_range_gives_neighbours_and_the_first_ones_more() -> None:
    shares = assign("range", all_want("ab"), {"a": range(7), "b": range(7)}, {})
    assert numbers(shares) == {"x": [0, 1, 2], "y": [3, 4], "z": [5, 6]}
    # The same numbers of topics that are partitioned alike meet at one member.
    assert numbers(shares, "a") == numbers(shares, "b")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_more_members_than_partitions_leave_some_without(strategy: Strategy) -> None:
    shares = assign(strategy, all_want("a"), {"a": range(2)}, {})
    assert sorted(map(len, shares.values())) == [0, 1, 1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_who_wants_a_topic_gets_it(strategy: Strategy) -> None:
    wishes = {"x": frozenset("a"), "y": frozenset("ab"), "z": frozenset()}
    shares = assign(strategy, wishes, {"a": range(2), "b": range(2), "c": range(5)}, {})
    assert numbers(shares, "b") == {"x": [], "y": [0, 1], "z": []}
    assert sorted(map(len, numbers(shares, "a").values())) == [0, 1, 1]
    assert all(each.topic != "c" for share in shares.values() for each in share)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_and_nothing(strategy: Strategy) -> None:
    assert assign(strategy, {}, {"a": range(3)}, {}) == {}
    assert assign(strategy, all_want("a", "x"), {}, {}) == {"x": set()}


@pytest.mark.parametrize("strategy", ["sticky", "cooperative"])
def test_what_may_stay_stays_when_somebody_leaves(strategy: Strategy) -> None:
    before = assign(strategy, all_want("a"), {"a": range(9)}, {})
    after = assign(strategy, all_want("a", "xz"), {"a": range(9)}, owners_of(before))
    assert before["x"] < after["x"]
    assert before["z"] < after["z"]


@pytest.mark.parametrize("strategy", ["sticky", "cooperative"])
def test_only_the_share_of_somebody_new_moves(strategy: Strategy) -> None:
    before = assign(strategy, all_want("a"), {"a": range(8)}, {})
    after = assign(strategy, all_want("a", "xyzw"), {"a": range(8)}, owners_of(before))
    moved = [each for each, owner in owners_of(after).items() if owners_of(before)[each] != owner]
    assert len(moved) == len(after["w"]) == 2


@pytest.mark.parametrize("strategy", ["sticky", "cooperative"])
def test_new_partitions_go_to_those_who_have_least(strategy: Strategy) -> None:
    before = assign(strategy, all_want("a"), {"a": range(4)}, {})
    after = assign(strategy, all_want("a"), {"a": range(6)}, owners_of(before))
    assert all(before[member] <= after[member] for member in before)
    assert [len(share) for share in after.values()] == [2, 2, 2]


@pytest.mark.parametrize("strategy", ["sticky", "cooperative"])
def test_many_small_topics_are_shared_out_as_a_whole(strategy: Strategy) -> None:
    topics = dict.fromkeys("abcdefghijkl", range(1))
    before = assign(strategy, all_want("abcdefghijkl", "xy"), topics, {})
    assert [len(share) for share in before.values()] == [6, 6]
    after = assign(strategy, all_want("abcdefghijkl"), topics, owners_of(before))
    assert [len(share) for share in after.values()] == [4, 4, 4]
    assert after["x"] < before["x"]
    assert after["y"] < before["y"]


@pytest.mark.parametrize("strategy", ["sticky", "cooperative"])
def test_loads_are_evened_out_as_far_as_wishes_allow(strategy: Strategy) -> None:
    wishes = {"x": frozenset("abc"), "y": frozenset("c")}
    shares = assign(
        strategy, wishes, {"a": range(1), "b": range(1), "c": range(1)}, {TopicPartition("c", 0): "x"}
    )
    assert shares == {"x": {TopicPartition("a", 0), TopicPartition("b", 0)}, "y": {TopicPartition("c", 0)}}
