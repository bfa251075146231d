"""Spark on a queue in a bucket, beside its owner: no broker is asked, and nobody is disturbed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import quivermq
from quivermq.engine import open_engine
from quivermq.errors import InvalidRequest
from quivermq.reading import reader_of
from quivermq.settings import Settings, StorageSettings
from quivermq.shared import SharedDisk, SharedLimits, open_bucket
from quivermq.spark import archive, audit, report

SETTINGS = Settings(storage=StorageSettings(segment_messages=100))
LIMITS = SharedLimits(part_bytes_min=1000, garbage_delay_s=0, checkpoint_chunks=7)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket"


@pytest.fixture
def disk(url: str, tmp_path: Path) -> Iterator[SharedDisk]:
    disk = open_bucket(url, tmp_path / "cache", limits=LIMITS)
    yield disk
    disk.abandon()


@pytest.fixture
def owner(disk: SharedDisk) -> Iterator[quivermq.Connection]:
    with quivermq.Connection(open_engine(disk.root, SETTINGS, disk=disk)) as mq:
        yield mq


def fill(owner: quivermq.Connection, count: int, start: int = 0) -> None:
    orders = owner.queue("orders")
    for first in range(start, start + count, 50):
        last = min(first + 50, start + count)
        orders.put_many([quivermq.Message(b"%d" % n, key=b"k%d" % (n % 7)) for n in range(first, last)])


def test_a_batch_is_that_of_the_directory(
    spark: SparkSession, owner: quivermq.Connection, disk: SharedDisk, url: str
) -> None:
    owner.create_topic("orders", partitions=3)
    fill(owner, 1000)
    assert disk.checkpoint()
    # Behind the checkpoint, in chunks.
    fill(owner, 100, 1000)
    options = {"subscribe": "orders", "minPartitions": "6"}
    order = ("partition", "offset")
    beside = spark.read.format("quiver").options(path=url, **options).load()
    local = spark.read.format("quiver").options(path=str(disk.root), **options).load()
    rows = beside.orderBy(*order).collect()
    assert len(rows) == 1100
    assert rows == local.orderBy(*order).collect()
    groups = spark.read.format("quiver").options(path=url, table="segments").load()
    assert groups.filter("messages > 0").count() == len(reader_of(url).segments("orders"))
    # The owner is who it was.
    fill(owner, 1, 1100)
    assert spark.read.format("quiver").options(path=url, **options).load().count() == 1101


def test_a_stream_follows_the_owner(
    spark: SparkSession, owner: quivermq.Connection, disk: SharedDisk, url: str, tmp_path: Path
) -> None:
    fill(owner, 100)
    stream = spark.readStream.format("quiver").options(
        path=url, subscribe="orders", startingOffsets="earliest"
    )
    query = (
        stream.load()
        .writeStream.format("memory")
        .queryName("followed")
        .option("checkpointLocation", str(tmp_path / "spark"))
        .start()
    )
    try:
        for start in range(100, 400, 100):
            query.processAllAvailable()
            fill(owner, 100, start)
            # What the stream has read of chunks is in objects now.
            assert disk.checkpoint()
        query.processAllAvailable()
        found = sorted(int(row.value) for row in spark.sql("SELECT value FROM followed").collect())
        assert found == list(range(400))
    finally:
        query.stop()


def test_jobs_look_at_a_bucket(
    spark: SparkSession, owner: quivermq.Connection, disk: SharedDisk, url: str, tmp_path: Path
) -> None:
    fill(owner, 500)
    orders = owner.queue("orders", group="billing")
    orders.ack(orders.get_many(100))
    assert disk.checkpoint()
    fill(owner, 100, 500)
    looked = audit(path=url, spark=spark, deep=True)
    assert (looked.where, looked.messages >= 600, looked.findings) == (url, True, ())
    local = audit(path=disk.root, spark=spark, deep=True)
    assert (looked.logs, looked.segments, looked.frames, looked.messages, looked.bytes) == (
        *(local.logs, local.segments, local.frames, local.messages, local.bytes),
    )
    counted = report(url, to=tmp_path / "report.html", spark=spark)
    assert counted.messages == 600
    directory = tmp_path / "archive"
    with pytest.raises(InvalidRequest, match="say where the archive"):
        archive(path=url, spark=spark)
    archived = archive(path=url, to=directory, age=0, spark=spark)
    assert (archived.messages, archived.is_served) == (600, False)
    both = spark.read.format("quiver").options(path=url, subscribe="orders", archive=str(directory))
    assert both.load().count() == 600
    fill(owner, 1, 600)


def test_nobody_writes_to_a_bucket_behind_its_owner(
    spark: SparkSession, owner: quivermq.Connection, url: str
) -> None:
    fill(owner, 10)
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match=r"use that broker with `server`"):
        rows.write.format("quiver").options(path=url, topic="orders").mode("append").save()
    assert reader_of(url).lanes("orders")
    fill(owner, 10, 10)
    assert len(owner.queue("orders").read(limit=100)) == 20


def test_a_bucket_without_a_queue_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for place in ("s3://", "http://127.0.0.1/x"):
        with pytest.raises(PySparkException, match="bucket"):
            spark.read.format("quiver").options(path=place, subscribe="orders").load().count()
    with pytest.raises(PySparkException, match="there is no directory"):
        spark.read.format("quiver").options(path=f"file://{tmp_path}/none", subscribe="a").load().count()
