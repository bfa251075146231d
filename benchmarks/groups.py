"""What can be measured, by name. A group is loaded when it is asked for.

So a group that needs what another version of the package does not have is no obstacle to the others.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

from benchmarks.race import Race
from benchmarks.row import Row, Skipped
from benchmarks.workload import Bench

Group = Callable[[Bench], Iterable[Race | Row | Skipped]]

_FUNCTIONS = {
    "append_many": "append_many.append_many",
    "append_sustained": "append_many.sustained",
    "append_one": "append_one.append_one",
    "fsync_one": "durable.fsync_one",
    "fsync_many": "durable.fsync_many",
    "read": "reading.read",
    "open": "opening.opening",
    "arrow": "arrow_scan.arrow",
    "memory": "memory.memory",
    "codec": "codec.codec",
    "queue_put": "queue_put.queue_put",
    "queue_get": "queue_get.queue_get",
    "backlog": "backlog.backlog",
    "delayed": "delayed.delayed",
    "reopen": "reopening.reopening",
    "broker_publish": "broker.publish_one.publish_one",
    "broker_frames": "broker.publish_many.publish_many",
    "broker_producer": "broker.producing.producing",
    "broker_receive": "broker.consuming.consuming",
    "broker_latency": "broker.latency.latency",
    "broker_memory": "broker.idle.idle",
    "cluster_owner": "cluster.one_owner.cluster_owner",
    "spark_scan": "spark.scanning.spark_scan",
    "spark_jobs": "spark.jobs.spark_jobs",
    "spark_stream": "spark.streaming.spark_stream",
}
NAMES = tuple(_FUNCTIONS)


def rows_of(name: str, bench: Bench) -> Iterator[list[Row | Skipped]]:
    """Measure a group, and return its rows race by race."""
    for each in loaded(name)(bench):
        yield [*each.rows(bench)] if isinstance(each, Race) else [each]


def loaded(name: str) -> Group:
    module, _, function = _FUNCTIONS[name].rpartition(".")
    group: Group = getattr(import_module(f"benchmarks.{module}"), function)
    return group
