"""Work for executors: each item of a list is a task of its own, and what comes of it comes back.

All of it is done with DataFrames, so that it is the same over Spark Connect, whose clients have no RDDs.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")

# As many rows have a part in each of any number of cores that matters.
_ROWS_TO_COUNT = 1024
_RESULTS = "number long, result binary"


def is_classic(spark: "SparkSession") -> bool:
    """Whether the session is in the process of its driver, and not a client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: "SparkSession") -> int:
    """About how many tasks run at the same time."""
    if is_classic(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    # A client is not told, but into as many parts does Spark cut what nobody says anything about.
    rows = spark.range(_ROWS_TO_COUNT).select(F.spark_partition_id().alias("part")).collect()
    return len({row.part for row in rows})


def results_of(spark: "SparkSession", items: Sequence[T], function: Callable[[T], Iterable[R]]) -> list[R]:
    """What the function gives for each item, in their order. It and all of these must be picklable.

    Raises what Spark makes of an error in an executor: `failures.translated` makes it one of ours again.
    """
    rows = spread(spark, items, partial(_pickled, function), _RESULTS)
    found = [] if rows is None else rows.collect()
    # Parts of a range come in order as it is; this says so.
    return [pickle.loads(row.result) for row in sorted(found, key=lambda row: row.number)]


def spread(
    spark: "SparkSession",
    items: Sequence[T],
    function: Callable[[int, T], "Iterator[pa.RecordBatch]"],
    schema: str,
) -> "DataFrame | None":
    """The rows that the function makes of each item and its number; None where there are no items."""
    if not items:
        return None
    numbers = spark.range(0, len(items), 1, len(items))
    return numbers.mapInArrow(partial(_worked, list(items), function), schema)


def _worked(
    items: list[Any],
    function: "Callable[[int, Any], Iterator[pa.RecordBatch]]",
    batches: "Iterable[pa.RecordBatch]",
) -> "Iterator[pa.RecordBatch]":
    """In an executor."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from function(number, items[number])


def _pickled(
    function: Callable[[Any], Iterable[Any]], number: int, item: Any
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for result in function(item):
        yield pa.record_batch({"number": [number], "result": [pickle.dumps(result)]})
