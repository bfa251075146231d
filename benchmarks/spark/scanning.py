"""`sum(length(value))` over the log: through the data source, over Parquet, and tuple by tuple."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.functions import length
from pyspark.sql.functions import sum as total

from benchmarks.measure import Prepare, counted
from benchmarks.race import Race, Subject, itself
from benchmarks.row import Goal
from benchmarks.shape import MESSAGE_BYTES, Shape
from benchmarks.spark.machine import on_machine
from benchmarks.spark.store import PARTITIONS, TOPIC, Store, filled_stores
from benchmarks.spark.tuples import TupleSource
from benchmarks.workload import Bench

_SOURCE, _PRUNED = "source", "pruned"
_PARQUET, _TUPLES = "Parquet, not compressed", "a source of tuples"


def spark_scan(bench: Bench) -> Iterable[Race]:
    """Rates in messages; Parquet is native code over a format made for this, so it is the limit."""
    subjects = [
        Subject("all columns", _SOURCE, Goal("share", 0.5), limits=[_PARQUET, _TUPLES], figure=itself),
        Subject("a schema of `value`", _PRUNED, Goal("share", 0.65), limits=[_PARQUET], figure=itself),
        Subject("all columns, beside tuples", _SOURCE, Goal("share", 10), limits=[_TUPLES], figure=itself),
    ]
    with filled_stores(bench) as stores:
        contenders = partial(_contenders, bench, stores)
        yield Race(contenders, subjects, on_machine(bench.scale.spark_rounds))


def _contenders(bench: Bench, stores: Mapping[Shape, Store], shape: Shape) -> dict[str, Prepare]:
    store = stores[shape]
    found = {
        _SOURCE: _summing(store.read, store.messages),
        _PRUNED: _summing(lambda: store.read("value binary"), store.messages),
    }
    if bench.is_alone:
        return found
    store.spark.dataSource.register(TupleSource)
    # Made before anything is timed.
    assert store.parquet.exists()
    tuples = min(bench.scale.spark_tuples, store.messages)
    found[_PARQUET] = _summing(lambda: store.spark.read.parquet(str(store.parquet)), store.messages)
    found[_TUPLES] = _summing(lambda: _tuples(store, tuples), tuples)
    return found


def _tuples(store: Store, messages: int) -> DataFrame:
    reader = store.spark.read.format("tuples").option("path", str(store.data)).option("topic", TOPIC)
    return reader.option("limit", messages // PARTITIONS).load()


def _summing(read: Callable[[], DataFrame], messages: int) -> Prepare:
    def run() -> None:
        found = read().select(total(length("value"))).collect()[0][0]
        if found != messages * MESSAGE_BYTES:
            raise RuntimeError(f"{found} bytes were found, {messages * MESSAGE_BYTES} were written")

    return counted(run, messages)
