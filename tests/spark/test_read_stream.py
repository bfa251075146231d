"""Streams through a real Spark: every message once, across restarts, limits, and losses of the log."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.broker import Served, serving

from quivermq.settings import Settings, StorageSettings

SETTINGS = Settings(storage=StorageSettings(durability="os", segment_messages=10))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", settings=SETTINGS) as served:
        yield served


@pytest.fixture(params=["directory", "broker"])
def where(request: pytest.FixtureRequest, served: Served, tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "data")} if request.param == "directory" else {"server": served.url}


@pytest.fixture
def broker(served: Served) -> dict[str, str]:
    return {"server": served.url}


@pytest.fixture
def directory(served: Served, tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "data")}


class Stream:
    """A query with one checkpoint, which is run again and again over whatever there is."""

    def __init__(
        self, spark: SparkSession, checkpoint: Path, where: dict[str, str], **options: Any
    ) -> None:
        self._reader = spark.readStream.format("quiver").options(
            **{"subscribe": "orders", "startingOffsets": "earliest"} | where | options
        )
        self._checkpoint = checkpoint
        self.batches: list[list[int]] = []
        self.progress: list[dict[str, Any]] = []

    def _note(self, batch: DataFrame, _: int) -> None:
        self.batches.append(sorted(int(row.value) for row in batch.collect()))

    def run(self) -> list[int]:
        """Read what there is, and return what came this time."""
        before = len(self.batches)
        query = (
            self._reader.load()
            .writeStream.foreachBatch(self._note)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            self.progress = [json.loads(progress.json) for progress in query.recentProgress]
        finally:
            query.stop()
        return sorted(n for batch in self.batches[before:] for n in batch)

    def failure(self) -> str:
        with pytest.raises(StreamingQueryException) as raised:
            self.run()
        return str(raised.value)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[..., Stream]:
    return lambda where, **options: Stream(spark, tmp_path / "checkpoint", where, **options)


def put(served: Served, numbers: range, topic: str = "orders", **options: Any) -> None:
    queue = served.engine.queue(topic)
    for number in numbers:
        queue.put(b"%d" % number, **options)


def test_each_run_reads_what_is_new(
    stream: Callable[..., Stream], where: dict[str, str], served: Served
) -> None:
    served.engine.create_topic("orders", partitions=2)
    put(served, range(25))
    reading = stream(where)
    assert reading.run() == list(range(25))
    assert reading.run() == []
    put(served, range(25, 30))
    # Another lane, another partition and whatever else comes to be is read from its beginning.
    put(served, range(30, 33), priority="high")
    served.engine.alter_topic("orders", partitions=3)
    put(served, range(33, 36), partition=2)
    assert reading.run() == list(range(25, 36))
    assert reading.run() == []


def test_what_is_read_is_limited(
    stream: Callable[..., Stream], broker: dict[str, str], served: Served
) -> None:
    served.engine.create_topic("orders", partitions=2)
    put(served, range(23), partition=0)
    put(served, range(23, 25), partition=1)
    reading = stream(broker, maxOffsetsPerTrigger=10, minPartitions=3)
    assert reading.run() == list(range(25))
    assert [len(batch) for batch in reading.batches] == [10, 10, 5]
    [source] = reading.progress[0]["sources"]
    latest = (
        json.loads(source["latestOffset"])
        if isinstance(source["latestOffset"], str)
        else source["latestOffset"]
    )
    assert latest["orders"]["partitions"] == {"0": {"normal": 23}, "1": {"normal": 2}}


def test_topics_that_come_later(
    stream: Callable[..., Stream], directory: dict[str, str], served: Served
) -> None:
    put(served, range(3), "events.a")
    reading = stream(directory, subscribe="events.*", startingOffsets="latest")
    assert reading.run() == []
    put(served, range(3, 5), "events.a")
    put(served, range(5, 8), "events.b")
    # Retention has already taken the beginning of this one.
    served.engine.create_topic("events.c", segments_max=1)
    put(served, range(8, 28), "events.c")
    served.engine.compact()
    assert reading.run() == [3, 4, 5, 6, 7, *range(18, 28)]
    assert reading.run() == []
    put(served, range(28, 29), "events.c")
    assert reading.run() == [28]


def test_a_topic_that_is_not_there_yet(
    stream: Callable[..., Stream], directory: dict[str, str], served: Served
) -> None:
    reading = stream(directory, startingOffsets="latest")
    assert reading.run() == []
    put(served, range(3))
    assert reading.run() == [0, 1, 2]


def test_where_a_stream_begins_and_ends(
    stream: Callable[..., Stream], directory: dict[str, str], served: Served
) -> None:
    put(served, range(20))
    starting, ending = json.dumps({"orders": {"0": 5}}), json.dumps({"orders": {"0": 12}})
    reading = stream(directory, startingOffsets=starting, endingOffsets=ending)
    assert reading.run() == list(range(5, 12))
    put(served, range(20, 22))
    assert reading.run() == []


def test_retention_that_overtook_the_checkpoint(
    stream: Callable[..., Stream], where: dict[str, str], served: Served
) -> None:
    put(served, range(5))
    reading = stream(where)
    assert reading.run() == list(range(5))
    put(served, range(5, 25))
    served.engine.alter_topic("orders", segments_max=1)
    served.engine.compact()
    message = reading.failure()
    assert "offsets [5, 20) of orders, partition 0, priority normal are gone" in message
    assert "holds [20, 25)" in message
    assert "failOnDataLoss" in message
    assert stream(where, failOnDataLoss="false").run() == list(range(20, 25))
    put(served, range(25, 26))
    assert reading.run() == [25]


def test_a_topic_that_was_made_again(
    stream: Callable[..., Stream], broker: dict[str, str], served: Served
) -> None:
    put(served, range(5))
    reading = stream(broker)
    assert reading.run() == list(range(5))
    served.engine.delete_topic("orders")
    assert "the topic orders was deleted" in reading.failure()
    put(served, range(10, 17))
    assert "deleted and made again" in reading.failure()
    assert stream(broker, failOnDataLoss="false").run() == list(range(10, 17))


@pytest.mark.damages
def test_damage_fails_the_query(
    stream: Callable[..., Stream], directory: dict[str, str], served: Served, tmp_path: Path
) -> None:
    put(served, range(25))
    segment = tmp_path / "data/topics/orders/p0/normal/00000000000000000010.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    message = stream(directory).failure()
    assert segment.name in message
    assert "offsets [1" in message


def test_a_group_shows_how_far_a_query_has_come(
    stream: Callable[..., Stream], broker: dict[str, str], served: Served
) -> None:
    put(served, range(5))
    reading = stream(broker, group="spark", maxOffsetsPerTrigger=2)
    assert reading.run() == list(range(5))
    # Spark commits a batch when it begins the next one, so the last one is not known yet.
    put(served, range(5, 6))
    assert reading.run() == [5]
    assert served.engine.queue("orders", "spark").stats().pending <= 1


def test_the_same_batch_has_the_same_tasks_and_rows(
    spark: SparkSession, directory: dict[str, str], served: Served, tmp_path: Path
) -> None:
    """A batch that is run again, because its end was not written down, must be the same batch."""
    served.engine.create_topic("orders", partitions=3)
    put(served, range(60))
    seen: list[list[tuple[int, int, int]]] = []

    def note(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr("spark_partition_id()", "partition", "offset").collect()
        seen.append([(row[0], row[1], row[2]) for row in rows])
        if len(seen) == 1:
            put(served, range(60, 90))
            raise RuntimeError("the sink fails")

    def run() -> None:
        query = (
            spark.readStream.format("quiver")
            .options(**directory, subscribe="orders", startingOffsets="earliest", minPartitions=5)
            .load()
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run()
    run()
    assert len(seen[0]) == 60
    assert seen[1] == seen[0]
    assert len(seen[2]) == 30


def test_a_first_batch_that_failed_is_run_again_from_where_it_began(
    spark: SparkSession, directory: dict[str, str], served: Served, tmp_path: Path
) -> None:
    """Spark has written down where it ends, and asks anew where it begins: `latest` is elsewhere now."""
    put(served, range(10))
    seen: list[list[int]] = []
    fails = [True]

    def note(batch: DataFrame, _: int) -> None:
        if fails[0]:
            raise RuntimeError("the sink fails")
        seen.append(sorted(int(row.value) for row in batch.collect()))

    def run(starting: str) -> None:
        query = (
            spark.readStream.format("quiver")
            .options(**directory, subscribe="orders", startingOffsets=starting)
            .load()
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run(json.dumps({"orders": {"0": 4}}))
    put(served, range(10, 15))
    fails[0] = False
    run("latest")
    assert seen == [list(range(4, 10)), list(range(10, 15))]
