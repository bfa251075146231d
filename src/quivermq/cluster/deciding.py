"""What one broker should do now: which shards to claim, and which to give away. Pure.

Nobody decides for all. Every broker sees the same view, and so comes to the same: the one that a shard is
placed on claims it at once, the others one after the other if that one does not.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from quivermq.cluster.view import ClusterView


class Decision(NamedTuple):
    """Shards to claim, and shards to give away."""

    claims: list[int]
    gives: list[int]


def decide(
    view: ClusterView,
    me: str,
    *,
    held: Collection[int],
    ownerless_s: Mapping[int, float],
    patience_s: float,
    gives_max: int,
    is_leaving: bool = False,
) -> Decision:
    """What broker `me`, which has `held` open, does about a view.

    `ownerless_s` says for how long nobody has owned a shard; the next in order claims it when that is
    another `patience_s`. No more than `gives_max` are given away at a time.
    """
    claims = [
        shard
        for shard, seconds in ownerless_s.items()
        if shard not in held and _is_turn_of(me, view.order(shard), seconds, patience_s)
    ]
    gives = [
        shard for shard in sorted(held) if view.targets.get(shard, me if not is_leaving else None) != me
    ]
    return Decision(sorted(claims), gives[:gives_max])


def _is_turn_of(me: str, order: list[str], seconds: float, patience_s: float) -> bool:
    return me in order and seconds >= order.index(me) * patience_s
