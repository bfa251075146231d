"""`df.writeStream.format("quiver")`: each row of each batch once, also when a batch is executed again."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.broker import serving

import quivermq

FILES, ROWS = 3, 40


def add_files(directory: Path, names: range) -> None:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / f"{name}.txt").write_text("\n".join(f"{name} {row // 2}" for row in range(ROWS)))


def expected(files: int) -> Counter[bytes]:
    return Counter(b"%d %d" % (name, row // 2) for name in range(files) for row in range(ROWS))


def lines(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", "1").text(str(directory))


def run(rows: DataFrame, checkpoint: Path, **options: Any) -> None:
    query = (
        rows.writeStream.format("quiver")
        .options(batchMessages="7", topic="out", **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def stored(mq: quivermq.Connection) -> Counter[bytes]:
    partitions = range(mq.topic("out").partitions)
    return Counter(m.value for p in partitions for m in mq.queue("out").read(p, limit=100_000))


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died between the write and Spark's own note of it."""
    (checkpoint / "commits" / str(batch)).unlink()
    # Some file systems of Spark keep a checksum beside it.
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


@pytest.fixture(params=["broker", "directory"])
def stream(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Callable[[], Counter[bytes]]:
    """Runs the query on what there is, and returns what is in the topic then."""

    def to_broker() -> Counter[bytes]:
        with serving(tmp_path / "data") as broker:
            if "out" not in broker.engine.topics():
                broker.engine.create_topic("out", partitions=2)
            run(lines(spark, tmp_path / "in"), tmp_path / "checkpoint", server=broker.url)
            return stored(broker.engine)

    def to_directory() -> Counter[bytes]:
        run(lines(spark, tmp_path / "in"), tmp_path / "checkpoint", path=str(tmp_path / "data"))
        with quivermq.open(tmp_path / "data") as mq:
            return stored(mq)

    return to_broker if request.param == "broker" else to_directory


def test_batches_arrive_once_and_a_query_goes_on_where_it_was(
    stream: Callable[[], Counter[bytes]], tmp_path: Path
) -> None:
    add_files(tmp_path / "in", range(2))
    assert stream() == expected(2)
    assert stream() == expected(2)
    add_files(tmp_path / "in", range(2, FILES))
    assert stream() == expected(FILES)
    # The driver died before Spark noted that the last batch was written; its rows come in another order.
    forget_commit(tmp_path / "checkpoint", FILES - 1)
    last = tmp_path / "in" / f"{FILES - 1}.txt"
    last.write_text("\n".join(reversed(last.read_text().splitlines())))
    assert stream() == expected(FILES)
    assert (tmp_path / "checkpoint" / "commits" / str(FILES - 1)).exists(), "the batch was executed again"


def test_a_stream_only_appends(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "in", range(1))
    counts = lines(spark, tmp_path / "in").groupBy("value").count().select("value")
    writer = counts.writeStream.format("quiver").outputMode("complete").option("topic", "out")
    writer = writer.option("path", str(tmp_path / "data")).trigger(availableNow=True)
    with pytest.raises(Exception, match="a log only grows"):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
