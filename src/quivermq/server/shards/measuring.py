"""The metrics of a broker of a cluster: its own, and those of every shard that it serves."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from quivermq.metrics import Metrics, Sample
from quivermq.model.turns import in_turns

if TYPE_CHECKING:
    from quivermq.server.shards.app import ClusterApp


def measure_all(app: "ClusterApp", is_wanted: Callable[[str], bool]) -> Iterator[Sample]:
    """All samples, those of a name together; of topics, those that somebody wants."""
    by_name: dict[str, list[Sample]] = {}
    for sample in _of_cluster(app):
        by_name.setdefault(sample["name"], []).append(sample)
    for number, served in sorted(app.served.copy().items()):
        for sample in in_turns(served.shard.engine.collect_metrics()):
            labels = sample["labels"]
            if "topic" in labels and not is_wanted(labels["topic"]):
                continue
            sample["labels"] = {**labels, "shard": str(number)}
            by_name.setdefault(sample["name"], []).append(sample)
    for samples in by_name.values():
        yield from samples


def _of_cluster(app: "ClusterApp") -> list[Sample]:
    node, view, figures, metrics = app.node, app.view, app.node.figures, Metrics()
    gauges = [
        ("quiver_http_connections", "Connections that are open.", app.count_connections()),
        ("quiver_cluster_brokers", "Brokers that are there.", len(view.brokers)),
        ("quiver_cluster_candidates", "Brokers that may own shards.", len(view.candidates)),
        ("quiver_cluster_shards", "Shards that the cluster has.", view.shards),
        ("quiver_cluster_shards_owned", "Shards that this broker serves.", len(app.served)),
        (
            "quiver_cluster_ownerless_shards",
            "Shards that nobody owns.",
            sum(shard not in view.owners for shard in range(view.shards)),
        ),
        (
            "quiver_cluster_troubled_shards",
            "Shards that this broker cannot open.",
            len(figures.troubles),
        ),
        (
            "quiver_cluster_lease_fresh",
            "1 while the broker may answer for its shards.",
            int(node.is_fresh),
        ),
        (
            "quiver_cluster_lease_left_seconds",
            "How long the lease is certainly held.",
            max(node.lease_left_s, 0),
        ),
    ]
    for name, help_text, value in gauges:
        metrics.gauge(name, help_text).set(value)
    counters = [
        ("quiver_cluster_shards_opened_total", "Shards that this broker took over.", figures.opened),
        ("quiver_cluster_shards_given_total", "Shards that it gave away on purpose.", figures.given),
        ("quiver_cluster_shards_lost_total", "Shards that it lost to another broker.", figures.lost),
        ("quiver_cluster_openings_failed_total", "Shards that it could not open.", figures.failed),
    ]
    for name, help_text, count in counters:
        metrics.counter(name, help_text).add(count)
    return metrics.collect()
