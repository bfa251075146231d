"""A driver of Spark in a process of its own, which writes a stream to a topic, and may be killed.

The stream has the lines of the text files in a directory, or the messages that the options `source` mean.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

# Who is to be killed when the driver is: set before Spark starts anything.
GROUP_VARIABLE = "QUIVER_TEST_DRIVER_GROUP"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(given: dict[str, Any]) -> None:
    os.environ[GROUP_VARIABLE] = str(os.getpgid(0))
    from quivermq.spark import session

    spark = session(
        given["master"],
        app="driver",
        **{
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": QUICK_START,
            **given.get("conf", {}),
        },
    )
    if "source" in given:
        rows = spark.readStream.format("quiver").options(**given["source"]).load().select("key", "value")
    else:
        rows = spark.readStream.option("maxFilesPerTrigger", str(given["files"])).text(given["input"])
        rows = rows.selectExpr("value", "value AS key")
    if (marker := given.get("fails_once")) is not None:
        rows = rows.mapInArrow(lambda batches: failing(batches, Path(marker)), rows.schema)
    query = (
        rows.writeStream.format("quiver")
        .options(**given["sink"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def failing(batches: Iterator[pa.RecordBatch], marker: Path) -> Iterator[pa.RecordBatch]:
    """Rows one by one, and an error in the middle the first time; then from the last to the first."""
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    is_first = not marker.exists()
    marker.touch()
    for batch in whole:
        order = range(len(batch)) if is_first else range(len(batch) - 1, -1, -1)
        for count, row in enumerate(order):
            if is_first and count > len(batch) * 2 // 3:
                raise RuntimeError("this task fails the first time")
            yield batch.slice(row, 1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
