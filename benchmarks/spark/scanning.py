"""`sum(length(value))` over the log: through the data source, over Parquet, and tuple by tuple."""

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame
from pyspark.sql.functions import length
from pyspark.sql.functions import sum as total

from benchmarks.measure import Prepare, counted
from benchmarks.row import Goal, Row
from benchmarks.spark.machine import Contest
from benchmarks.spark.store import PARTITIONS, TOPIC, Store, filled_store
from benchmarks.spark.tuples import TupleSource
from benchmarks.workload import MESSAGE_BYTES, Bench

_PARQUET = {"Parquet, not compressed": "parquet"}
_TUPLES = {"a source of tuples": "tuples"}


def spark_scan(bench: Bench) -> Iterable[Row]:
    """Rates in messages; Parquet is native code over a format made for this, so it is the limit."""
    with filled_store(bench) as store:
        store.spark.dataSource.register(TupleSource)
        # Made before anything is timed.
        assert store.parquet.exists()
        tuples = min(bench.scale.spark_tuples, store.messages)
        contest = Contest(bench.scale.spark_rounds)
        contest.run(
            {
                "source": _summing(store.read, store.messages),
                "pruned": _summing(lambda: store.read("value binary"), store.messages),
                "parquet": _summing(lambda: store.spark.read.parquet(str(store.parquet)), store.messages),
                "tuples": _summing(lambda: _tuples(store, tuples), tuples),
            }
        )
    yield contest.row("all columns", "source", _PARQUET, Goal("share", 0.5))
    yield contest.row("a schema of `value`", "pruned", _PARQUET, Goal("share", 0.65))
    yield contest.row("all columns, beside tuples", "source", _TUPLES, Goal("share", 10))


def _tuples(store: Store, messages: int) -> DataFrame:
    reader = store.spark.read.format("tuples").option("path", str(store.data)).option("topic", TOPIC)
    return reader.option("limit", messages // PARTITIONS).load()


def _summing(read: Callable[[], DataFrame], messages: int) -> Prepare:
    def run() -> None:
        found = read().select(total(length("value"))).collect()[0][0]
        if found != messages * MESSAGE_BYTES:
            raise RuntimeError(f"{found} bytes were found, {messages * MESSAGE_BYTES} were written")

    return counted(run, messages)
