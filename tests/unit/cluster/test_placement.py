"""Where topics and shards belong: everybody comes to the same, and little moves."""

from collections import Counter

import pytest

from quivermq.cluster.placement import Candidate, placed, ranking, shard_of, spread_over
from quivermq.errors import InvalidRequest

THREE = [Candidate(f"b{number}") for number in range(3)]


def moved(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(before[shard] != after[shard] for shard in before)


def test_a_topic_stays_where_it_is() -> None:
    # Written down, because another release must come to the same.
    assert [shard_of(name, 16) for name in ("orders", "payments", "a.b.c")] == [4, 0, 12]
    assert {shard_of(f"t{number}", 16) for number in range(1000)} == set(range(16))


def test_dead_letters_are_where_their_origin_is() -> None:
    assert all(shard_of(f"t{number}.dlq", 64) == shard_of(f"t{number}", 64) for number in range(100))


def test_a_wide_topic_has_shards_of_its_own() -> None:
    shards = spread_over("orders", 4, 16)
    assert len(set(shards)) == 4
    assert shard_of("orders", 16) in shards
    assert spread_over("orders", 4, 16) == shards != spread_over("payments", 4, 16)
    assert spread_over("orders", 16, 16) == list(range(16))
    assert set(spread_over("orders", 3, 16)) < set(shards)


@pytest.mark.parametrize("spread", [0, 17])
def test_a_topic_is_not_spread_over_shards_that_are_not_there(spread: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to 16 shards"):
        spread_over("orders", spread, 16)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_every_shard_has_a_broker_and_no_broker_too_many(count: int) -> None:
    brokers = [Candidate(f"broker-{number}") for number in range(count)]
    found = placed(16, brokers)
    assert set(found) == set(range(16))
    counts = Counter(found.values())
    assert len(counts) == count
    assert max(counts.values()) - min(counts.values()) <= 1


def test_capacity_is_what_a_broker_takes() -> None:
    found = Counter(placed(64, [Candidate("large", 3), Candidate("small", 1)]).values())
    assert found == {"large": 48, "small": 16}


def test_the_order_of_brokers_does_not_matter() -> None:
    assert placed(16, THREE) == placed(16, THREE[::-1])
    assert ranking(3, THREE) == ranking(3, THREE[::-1])


def test_without_brokers_nothing_is_placed() -> None:
    assert placed(16, []) == {}


def test_one_that_comes_gets_little_more_than_its_share() -> None:
    for number in range(50):
        brokers = [Candidate(f"{number}-{each}") for each in range(4)]
        assert moved(placed(64, brokers), placed(64, [*brokers, Candidate("new")])) <= 64 / 5 + 10


def test_one_that_goes_takes_little_with_it() -> None:
    for number in range(50):
        brokers = [Candidate(f"{number}-{each}") for each in range(4)]
        before = placed(64, brokers)
        gone = Counter(before.values())[f"{number}-0"]
        assert moved(before, placed(64, brokers[1:])) <= gone + 8


def test_all_brokers_stand_in_the_order_of_a_shard() -> None:
    assert sorted(ranking(0, THREE)) == ["b0", "b1", "b2"]
    assert len({tuple(ranking(shard, THREE)) for shard in range(16)}) > 1
