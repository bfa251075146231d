"""Which shard a topic is on, and which broker a shard belongs to. Pure: everybody comes to the same.

Shards find their brokers by rendezvous hashing: each pair of a shard and a broker has a score, and the
best pairs are taken first. Each broker has its share of the shards, by its capacity, give or take one.
When one comes or goes, hardly more shards move than have to.
"""

import math
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import NamedTuple

from quivermq.errors import InvalidRequest
from quivermq.model.names import DEAD_LETTER_SUFFIX

SHARDS_MAX = 1024


class Candidate(NamedTuple):
    """A broker that may own shards: one of capacity 2 has twice as many as one of 1."""

    broker: str
    capacity: int = 1


def shard_of(topic: str, shards: int) -> int:
    """The shard of a topic that is on one. Dead letters are where their origin is."""
    return _hash(topic.removesuffix(DEAD_LETTER_SUFFIX)) % shards


def spread_over(topic: str, spread: int, shards: int) -> list[int]:
    """The shards of a topic that is made wide, all different. Raises InvalidRequest for too many."""
    if not 1 <= spread <= shards:
        raise InvalidRequest(
            f"a topic is spread over 1 to {shards} shards, as the cluster has them, not {spread}"
        )
    first = shard_of(topic, shards)
    others = sorted(set(range(shards)) - {first}, key=lambda shard: (_hash(f"{topic}/{shard}"), shard))
    return sorted([first, *others[: spread - 1]])


def ranking(shard: int, candidates: Iterable[Candidate]) -> list[str]:
    """The brokers in the order in which they would have a shard if each had room."""
    return [
        each.broker for each in sorted(candidates, key=lambda each: (-_score(shard, each), each.broker))
    ]


def placed(shards: int, candidates: Collection[Candidate]) -> dict[int, str]:
    """A broker for each shard; none for any when there are no brokers."""
    pairs = [(-_score(shard, each), shard, each.broker) for shard in range(shards) for each in candidates]
    pairs.sort()
    total = sum(each.capacity for each in candidates)
    found: dict[int, str] = {}
    # Everybody gets its share, rounded down, and then some get one more: or the last to come had nothing.
    _fill(found, pairs, {each.broker: shards * each.capacity // total for each in candidates})
    _fill(found, pairs, {each.broker: 1 for each in candidates})
    return found


def _fill(found: dict[int, str], pairs: list[tuple[float, int, str]], room: dict[str, int]) -> None:
    """Place shards that have no broker yet, the best pairs first."""
    for _, shard, broker in pairs:
        if shard not in found and room[broker]:
            found[shard] = broker
            room[broker] -= 1


def _score(shard: int, candidate: Candidate) -> float:
    # Weighted as in "Weighted distributed hash tables" by Schindelhauer and Schomaker.
    part = (_hash(f"{shard}/{candidate.broker}") + 0.5) / 2**64
    return -candidate.capacity / math.log(part)


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])
