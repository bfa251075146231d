"""What a broker claims, and what it gives away."""

from collections.abc import Mapping
from typing import Any

import pytest

from quivermq.cluster.deciding import Decision, decide
from quivermq.cluster.view import BrokerInfo, ClusterView, Owner

SHARDS = 8
BROKERS = {name: BrokerInfo(name, f"http://{name}", "1") for name in "abc"}


def view_of(brokers: Mapping[str, BrokerInfo] = BROKERS, **more: Any) -> ClusterView:
    return ClusterView(SHARDS, brokers, **more)


def decided(view: ClusterView, me: str, held: set[int] | None = None, **more: Any) -> Decision:
    ownerless = more.pop("ownerless_s", {})
    more = {"patience_s": 1.0, "gives_max": 8, **more}
    return decide(view, me, held=held or set(), ownerless_s=ownerless, **more)


def test_everybody_claims_what_is_placed_on_it_and_nothing_else() -> None:
    claims = [decided(view_of(), me, ownerless_s=dict.fromkeys(range(SHARDS), 0)).claims for me in "abc"]
    assert sorted(shard for each in claims for shard in each) == list(range(SHARDS))


def test_the_next_in_order_claims_what_the_first_does_not() -> None:
    first, second, third = view_of().order(0)
    assert decided(view_of(), second, ownerless_s={0: 1.5}).claims == [0]
    assert decided(view_of(), third, ownerless_s={0: 1.5}).claims == []
    assert decided(view_of(), third, ownerless_s={0: 2.0}).claims == [0]
    assert decided(view_of(), first, {0}, ownerless_s={0: 2.0}).claims == []


def test_what_is_placed_elsewhere_is_given_away_a_few_at_a_time() -> None:
    held = set(range(SHARDS))
    mine = {shard for shard, broker in view_of().targets.items() if broker == "a"}
    assert decided(view_of(), "a", held).gives == sorted(held - mine)
    assert decided(view_of(), "a", held, gives_max=1).gives == sorted(held - mine)[:1]
    assert decided(view_of(), "a", mine).gives == []


@pytest.mark.parametrize(
    "view",
    [
        view_of(drains=frozenset("a")),
        view_of({**BROKERS, "a": BROKERS["a"]._replace(is_leaving=True)}),
    ],
)
def test_one_that_is_drained_keeps_nothing_and_claims_nothing(view: ClusterView) -> None:
    found = decided(view, "a", {0, 1}, ownerless_s={2: 100})
    assert found == Decision([], [0, 1])


def test_the_only_broker_keeps_what_it_has_until_it_leaves() -> None:
    alone = view_of({"a": BROKERS["a"]}, drains=frozenset("a"))
    assert decided(alone, "a", {0}).gives == []
    assert decided(alone, "a", {0}, is_leaving=True).gives == [0]


def test_a_wish_counts_more_than_placement() -> None:
    view = view_of(wishes=dict.fromkeys(range(SHARDS), "b"))
    assert decided(view, "b", ownerless_s={0: 0, 7: 0}).claims == [0, 7]
    assert decided(view, "a", {0}).gives == [0]
    assert decided(view, "b", {0}).gives == []
    # For somebody who is not there it does not.
    assert view_of(wishes={0: "gone"}).targets == view_of().targets


def test_the_standby_is_who_gets_a_shard_when_its_owner_is_gone() -> None:
    owners = {shard: Owner(broker, 1) for shard, broker in view_of().targets.items()}
    view = view_of(owners=owners)
    for gone in "abc":
        rest = {name: broker for name, broker in BROKERS.items() if name != gone}
        after = view_of(rest).targets
        mine = [shard for shard, owner in owners.items() if owner.broker == gone]
        assert {shard: view.standbys[shard] for shard in mine} == {shard: after[shard] for shard in mine}
