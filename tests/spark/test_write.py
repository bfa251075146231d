"""`df.write.format("quiver")`, to a broker and to a directory that nobody has open."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.
from support.broker import Served, serving

import quivermq
from quivermq.spark.execution import translated
from quivermq.topic.routing import Router


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "broker") as served:
        yield served


def write(frame: DataFrame, mode: str = "append", **options: Any) -> None:
    with translated():
        frame.write.format("quiver").options(**options).mode(mode).save()


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, numPartitions=tasks).selectExpr("CAST(id AS STRING) AS value")


def stored(mq: quivermq.Connection, topic: str) -> list[quivermq.StoredMessage]:
    return [
        message
        for partition in range(mq.topic(topic).partitions)
        for priority in ("high", "normal", "low")
        for message in mq.queue(topic).read(partition, priority=priority, limit=100_000)
    ]


def test_every_column_arrives_at_a_broker(spark: SparkSession, broker: Served) -> None:
    broker.engine.create_topic("out", partitions=3)
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    rows = [
        ("k1", "one", [("h", b"1")], "out", None, "high", moment, None),
        ("k2", "two", None, "out", 1, None, None, moment.replace(year=2100)),
        (None, "three", [], "other", None, "low", moment, None),
    ]
    schema = (
        "key STRING, value STRING, headers ARRAY<STRUCT<key STRING, value BINARY>>, topic STRING,"
        " partition INT, priority STRING, timestamp TIMESTAMP, expires_at TIMESTAMP"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1), server=broker.url)
    found = {message.value: message for message in stored(broker.engine, "out")}
    one, two = found[b"one"], found[b"two"]
    moment_us = round(moment.timestamp() * 1_000_000)
    assert (one.key, one.headers, one.priority, one.timestamp) == (b"k1", {"h": b"1"}, "high", moment_us)
    assert one.partition == Router(3).partition_of(b"k1")
    assert (two.key, two.headers, two.partition, two.priority) == (b"k2", {}, 1, "normal")
    assert two.expires_at == round(moment.replace(year=2100).timestamp() * 1_000_000)
    [three] = stored(broker.engine, "other")
    assert (three.value, three.key, three.priority, three.timestamp) == (b"three", None, "low", moment_us)


def test_many_rows_from_many_tasks(spark: SparkSession, broker: Served) -> None:
    broker.engine.create_topic("out", partitions=4, codec="lz4")
    keyed = numbers(spark, 30_000, 3).withColumn("key", F.expr("CAST(CAST(value AS LONG) % 100 AS STRING)"))
    write(keyed, server=broker.url, topic="out", durability="fsync")
    found = stored(broker.engine, "out")
    assert Counter(message.value for message in found) == Counter(b"%d" % n for n in range(30_000))
    router = Router(4)
    assert all(message.partition == router.partition_of(message.key) for message in found)
    # Rows of a key come from one task in their order, and stay so.
    of_one_key = [int(m.value) for m in found if m.key == b"7" and int(m.value) < 10_000]
    assert of_one_key == sorted(of_one_key)


def test_a_directory_that_nobody_has_open(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        mq.create_topic("out", partitions=2, codec="zstd")
    keyed = numbers(spark, 5000).withColumn("key", F.col("value"))
    write(keyed, path=str(path), topic="out", batchMessages=100)
    write(numbers(spark, 10), data=str(path), topic="new")
    with quivermq.open(path) as mq:
        found = stored(mq, "out")
        assert Counter(message.value for message in found) == Counter(b"%d" % n for n in range(5000))
        assert all(message.partition == Router(2).partition_of(message.key) for message in found)
        assert sorted(int(message.value) for message in stored(mq, "new")) == list(range(10))
    assert os.listdir(path / "spark") == []


def test_a_directory_that_somebody_has_open(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        with pytest.raises(quivermq.Unavailable, match=rf"process {os.getpid()}.*option `server`"):
            write(numbers(spark, 10), path=str(path), topic="out")
        assert mq.topics() == []
    assert os.listdir(path / "spark") == []


def test_a_write_with_an_id_is_done_once(spark: SparkSession, broker: Served, tmp_path: Path) -> None:
    for place in ({"server": broker.url}, {"path": str(tmp_path / "data")}):
        for count in (100, 100):
            write(numbers(spark, count), **place, topic="out", writeId="job/2024 05", batchMessages=7)
        write(numbers(spark, 100), **place, topic="out", writeId="job/2024 06")
    with quivermq.open(tmp_path / "data") as mq:
        for engine in (broker.engine, mq):
            found = Counter(int(message.value) for message in stored(engine, "out"))
            assert found == Counter(dict.fromkeys(range(100), 2))


def test_what_cannot_be_written_is_told(spark: SparkSession, broker: Served) -> None:
    frame = numbers(spark, 3, 1)
    wrong: list[tuple[DataFrame, dict[str, str], str]] = [
        # On the driver, before anything is executed.
        (frame.withColumn("colour", F.lit(1)), {}, r'colour cannot be written.*\.drop\("colour"\)'),
        (frame, {"topic": ""}, "which topic to write to"),
        # In an executor, where a row is no message.
        (frame.withColumn("value", F.lit(None).cast("string")), {}, "a value is null"),
        (frame.withColumn("partition", F.lit(7)), {}, "there is no partition 7"),
    ]
    for rows, options, words in wrong:
        with pytest.raises(quivermq.InvalidRequest, match=words):
            write(rows, **{"server": broker.url, "topic": "out", **options})
    with pytest.raises(quivermq.InvalidRequest, match="a log only grows"):
        write(frame, "overwrite", server=broker.url, topic="out")
    assert stored(broker.engine, "out") == []
