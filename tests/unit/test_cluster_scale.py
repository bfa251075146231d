"""The calculation of a large cluster, and its page."""

from dataclasses import replace

import pytest
from cluster_scale import GB, MB, PAGE, Assumptions, Load, cost_of, most_of_a_shard, with_tables

GIVEN = Assumptions()
LOAD = Load(brokers=100, shards=100, partitions=10_000, bytes_per_s=GB)


def test_page_has_what_the_calculation_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page


def test_a_shard_finds_its_own_pace() -> None:
    cost = cost_of(LOAD, GIVEN)
    assert cost is not None
    # What arrives during one commit is what the next one takes.
    arrived = LOAD.bytes_per_s / LOAD.shards * GIVEN.shipped_per_byte * cost.commit_s
    assert cost.chunk_bytes == pytest.approx(arrived)


def test_requests_grow_with_the_shards_and_hardly_with_the_bytes() -> None:
    half = cost_of(replace(LOAD, bytes_per_s=GB / 2), GIVEN)
    twice = cost_of(replace(LOAD, shards=200), GIVEN)
    whole = cost_of(LOAD, GIVEN)
    assert half is not None
    assert twice is not None
    assert whole is not None
    assert half.puts_per_s == pytest.approx(whole.puts_per_s, rel=0.15)
    assert twice.puts_per_s > 1.8 * whole.puts_per_s


@pytest.mark.parametrize("share", [1.05, 3])
def test_more_than_a_shard_can_commit_is_said(share: float) -> None:
    most = most_of_a_shard(GIVEN) / GIVEN.shipped_per_byte
    assert cost_of(Load(1, 1, 1, 0.95 * most), GIVEN) is not None
    assert cost_of(Load(1, 1, 1, share * most), GIVEN) is None
    assert most < GIVEN.put_bytes_per_s < 100 * MB


def test_etcd_breaks_first_with_very_many_shards() -> None:
    cost = cost_of(replace(LOAD, shards=1600), GIVEN)
    assert cost is not None
    assert cost.limit == "**etcd**"
