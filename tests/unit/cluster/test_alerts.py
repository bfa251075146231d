"""What is wrong with a cluster, judged by the rules that Prometheus has."""

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from quivermq.cluster.alerts import CLUSTER_RULES, ClusterEvidence, judge_cluster
from quivermq.engine.watch import ChangeTracker

ALERTS = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yaml"
UNITS = {"s": 1, "m": 60}


def judged(**evidence: Any) -> list[tuple[str, str]]:
    """At the first look."""
    given = {"now_us": 10**15, "ownerless_s": {}, "lease_left_s": 5.0, "troubles": {}, "candidates": 3}
    alerts = judge_cluster(ClusterEvidence(**{**given, **evidence}), ChangeTracker())
    return [(each.alert, each.summary) for each in alerts]


def test_prometheus_has_the_same_rules_in_the_same_order() -> None:
    group = yaml.safe_load(ALERTS.read_text())["groups"][1]
    written = [
        (
            rule["alert"],
            rule["labels"]["severity"],
            int(rule["for"][:-1]) * UNITS[rule["for"][-1]],
            rule["expr"],
        )
        for rule in group["rules"]
    ]
    assert group["name"] == "quiver-cluster"
    assert written == [(rule.alert, rule.severity, rule.for_s, rule.expr) for rule in CLUSTER_RULES]


def test_a_cluster_that_is_well() -> None:
    assert judged() == []


@pytest.mark.parametrize(
    ("shards", "words"),
    [([3], "shard 3 has no owner"), (range(7), "shards 0, 1, 2, 3, 4 and 2 more have no owner")],
)
def test_shards_without_an_owner_are_told_once_that_has_lasted(shards: Any, words: str) -> None:
    assert judged(ownerless_s=dict.fromkeys(shards, 59.0)) == []
    [(alert, summary)] = judged(ownerless_s=dict.fromkeys(shards, 60.0))
    assert alert == "QuiverShardWithoutOwner"
    assert summary.startswith(words)


def test_a_lease_that_may_be_over_is_told() -> None:
    assert judged(lease_left_s=-29.0) == []
    assert [alert for alert, _ in judged(lease_left_s=-30.0)] == ["QuiverLeaseNotFresh"]


def test_the_worst_comes_first() -> None:
    first, second = judged(troubles={2: "no such bucket"}, candidates=1)
    assert first == ("QuiverShardCannotOpen", "shard 2 cannot be opened: no such bucket")
    assert second[0] == "QuiverNoStandby"
    assert second[1].startswith("1 broker may own shards: start another one")
