"""`sum(length(value))` over the log: through the data source, over Parquet, and tuple by tuple."""

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame
from pyspark.sql.functions import length
from pyspark.sql.functions import sum as total

from benchmarks.measure import Prepare, alternate, counted
from benchmarks.row import Goal, Row, row_of
from benchmarks.spark.store import PARTITIONS, TOPIC, Store, filled_store
from benchmarks.spark.tuples import TupleSource
from benchmarks.workload import MESSAGE_BYTES, Bench


def spark_scan(bench: Bench) -> Iterable[Row]:
    """Rates in messages; Parquet is native code over a format made for this, so it is the limit."""
    with filled_store(bench) as store:
        store.spark.dataSource.register(TupleSource)
        tuples = min(bench.scale.spark_tuples, store.messages)
        contenders = {
            "source": _summing(store.read, store.messages),
            "pruned": _summing(lambda: store.read("value binary"), store.messages),
            "parquet": _summing(lambda: store.spark.read.parquet(str(store.parquet)), store.messages),
            "tuples": _summing(lambda: _tuples(store, tuples), tuples),
        }
        # Made before anything is timed.
        assert store.parquet.exists()
        measured = alternate(contenders, bench.scale.spark_rounds)
    parquet = {"Parquet, not compressed": measured["parquet"]}
    tuples_beside = {"a source of tuples": measured["tuples"]}
    yield row_of("all columns", measured["source"], {**parquet, **tuples_beside}, goal=Goal("share", 0.5))
    yield row_of("schema of `value`", measured["pruned"], parquet, goal=Goal("share", 0.65))
    yield row_of("all columns", measured["source"], tuples_beside, goal=Goal("share", 10))


def _tuples(store: Store, messages: int) -> DataFrame:
    reader = store.spark.read.format("tuples").option("path", str(store.data)).option("topic", TOPIC)
    return reader.option("limit", messages // PARTITIONS).load()


def _summing(read: Callable[[], DataFrame], messages: int) -> Prepare:
    def run() -> None:
        found = read().select(total(length("value"))).collect()[0][0]
        if found != messages * MESSAGE_BYTES:
            raise RuntimeError(f"{found} bytes were found, {messages * MESSAGE_BYTES} were written")

    return counted(run, messages)
