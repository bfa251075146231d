"""What is wrong with a cluster, as one of its brokers sees it: rules like those of a queue.

They are the group `quiver-cluster` of deploy/prometheus/alerts.yaml, and a test holds the two together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quivermq.engine.rules import SECOND_US, Rule, RuleMatch, judged, many
from quivermq.engine.watch import ChangeTracker
from quivermq.model.stats import Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvidence:
    """One look at what a broker knows of its cluster."""

    now_us: int
    ownerless_s: Mapping[int, float]
    """By shard: for how long nobody has owned it."""
    lease_left_s: float
    """How long the lease of this broker is certainly held; below zero, for how long it has not been."""
    troubles: Mapping[int, str]
    """By shard: why this broker cannot open it."""
    candidates: int
    """How many brokers may own shards."""


def judge_cluster(evidence: ClusterEvidence, watch: ChangeTracker) -> list[Alert]:
    """Everything that is wrong with a cluster, the worst first. `watch` is for these rules alone."""
    watch.see({}, {}, {}, evidence.now_us)
    return judged(CLUSTER_RULES, evidence, watch)


def _ownerless(evidence: ClusterEvidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if evidence.ownerless_s:
        shards = _named(evidence.ownerless_s)
        verb = "has" if len(evidence.ownerless_s) == 1 else "have"
        yield RuleMatch(
            f"{shards} {verb} no owner: start a broker, or see in the logs why none of them opens it",
            len(evidence.ownerless_s),
            held_us=int(max(evidence.ownerless_s.values()) * SECOND_US),
        )


def _lease_ends(evidence: ClusterEvidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if evidence.lease_left_s <= 0:
        yield RuleMatch(
            "the broker has no fresh lease and answers nothing: can it reach etcd, and has that a leader?",
            1,
            held_us=int(-evidence.lease_left_s * SECOND_US),
        )


def _cannot_open(evidence: ClusterEvidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    for shard, reason in sorted(evidence.troubles.items()):
        yield RuleMatch(f"shard {shard} cannot be opened: {reason}", 1)


def _no_standby(evidence: ClusterEvidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if evidence.candidates < 2:
        yield RuleMatch(
            f"{many(evidence.candidates, 'broker')} may own shards: start another one, or undo a drain,"
            " or nobody takes over when it is lost",
            2 - evidence.candidates,
        )


def _named(shards: Mapping[int, float]) -> str:
    named = [str(shard) for shard in sorted(shards)]
    shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
    return f"shard {shown}" if len(named) == 1 else f"shards {shown}"


CLUSTER_RULES: tuple[Rule[ClusterEvidence], ...] = (
    Rule("QuiverShardWithoutOwner", "page", 60, "quiver_cluster_ownerless_shards > 0", _ownerless),
    Rule("QuiverLeaseNotFresh", "page", 30, "quiver_cluster_lease_fresh == 0", _lease_ends),
    Rule(
        "QuiverShardCannotOpen",
        "page",
        60,
        "quiver_cluster_troubled_shards > 0",
        _cannot_open,
        is_moment=True,
    ),
    Rule(
        "QuiverNoStandby",
        "ticket",
        600,
        "quiver_cluster_candidates < 2",
        _no_standby,
        is_moment=True,
    ),
)
