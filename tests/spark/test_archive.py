"""The archiver on a real Spark: every message once, and one range out of archived and live offsets."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from support.broker import Served, serving
from support.command_inside import quiver

import quivermq
from quivermq import Message
from quivermq.engine import engine_of
from quivermq.settings import Settings, StorageSettings
from quivermq.spark import ArchiveSummary, archive

SETTINGS = Settings(storage=StorageSettings(durability="os", segment_messages=50))
COLUMNS = ["partition", "priority", "offset", "key", "value", "timestamp", "headers", "expires_at"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def served(data: Path) -> Iterator[Served]:
    with serving(data, settings=SETTINGS) as served:
        yield served


@pytest.fixture(params=["directory", "broker"])
def where(request: pytest.FixtureRequest, served: Served, data: Path) -> dict[str, str]:
    """Where the queue is, for a job; a broker has it open."""
    return {"path": str(data)} if request.param == "directory" else {"server": served.url}


def fill(engine: Any, first: int, behind: int, topic: str = "orders") -> None:
    """Messages of all kinds in two partitions and two lanes, numbered; their time is their number in ms."""
    if topic not in engine.topics():
        engine.create_topic(topic, partitions=2)
    queue = engine.queue(topic, "billing")
    for number in range(first, behind, 10):
        queue.put_many(
            [
                Message(
                    b"%d" % n,
                    key=None if n % 3 else b"k%d" % n,
                    headers={"a": b"1"} if n % 2 else {},
                    timestamp=n * 1000,
                    partition=number // 10 % 2,
                    priority="high" if n % 7 == 0 else "normal",
                )
                for n in range(number, number + 10)
            ],
            # A broker lets be archived what survives power loss.
            durability="fsync",
        )


def finish(engine: Any, count: int, topic: str = "orders") -> None:
    queue = engine.queue(topic, "billing")
    for _ in range(count):
        queue.pop()


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.select(*COLUMNS).collect(), key=lambda row: row[:3])


def load(spark: SparkSession, data: Path, **options: Any) -> DataFrame:
    return spark.read.format("quiver").options(path=str(data), subscribe="orders", **options).load()


def plain(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.parquet(str(directory / "messages"))


def run(spark: SparkSession, where: dict[str, Any], to: Path, **options: Any) -> ArchiveSummary:
    return archive(**where, to=str(to), **{"age": 0, "spark": spark, **options})


def test_plain_parquet_has_what_the_log_has(
    spark: SparkSession, served: Served, data: Path, where: dict[str, str]
) -> None:
    fill(served.engine, 0, 400)
    expected = rows(load(spark, data))
    summary = run(spark, where, data / "archive")
    assert (summary.messages, summary.problems, summary.is_served) == (400, (), True)
    found = plain(spark, data / "archive")
    assert rows(found) == expected
    assert {row.topic for row in found.select("topic").distinct().collect()} == {"orders"}
    today = datetime.now(UTC).date()
    assert {row.day for row in found.select("day").distinct().collect()} <= {today}


def test_many_runs_are_as_one(spark: SparkSession, served: Served, data: Path) -> None:
    where, archived = {"path": str(data)}, data / "archive"
    for number in range(0, 200, 20):
        fill(served.engine, number, number + 20)
        run(spark, where, archived, rewrite=number == 180)
    served.engine.use_archive(None)
    whole = data.parent / "whole"
    run(spark, where, whole)
    assert rows(plain(spark, archived)) == rows(plain(spark, whole)) == rows(load(spark, data))
    files = [path for path in archived.rglob("*.parquet") if "high" not in path.name]
    # Small files of a day have become one, in each partition.
    assert len(files) <= 2 * 2, sorted(files)
    assert run(spark, where, whole).messages == 0


def test_archived_and_live_are_one_range(
    spark: SparkSession, served: Served, data: Path, where: dict[str, str]
) -> None:
    fill(served.engine, 0, 400)
    run(spark, where, data / "archive")
    fill(served.engine, 400, 600)
    expected = rows(load(spark, data, archive="false"))
    finish(served.engine, 600)
    freed = served.engine.compact(archived=True)
    assert freed.messages >= 200
    options = {"archive": str(data / "archive")} if "server" in where else {}
    frame = spark.read.format("quiver").options(**where, subscribe="orders", **options).load()
    assert frame.count() == 600
    assert rows(frame) == expected
    # A broker also reads its archive itself.
    assert rows(spark.read.format("quiver").options(**where, subscribe="orders").load()) == expected
    assert rows(frame.where("offset between 20 and 30")) == [
        row for row in expected if 20 <= row.offset <= 30
    ]
    late = datetime.fromtimestamp(0.35, UTC)
    assert rows(frame.where(frame.timestamp >= late)) == [row for row in expected if int(row.value) >= 350]
    assert [m.offset for m in served.engine.queue("orders").read(1, limit=1000)] == [
        row.offset for row in expected if (row.partition, row.priority) == (1, "normal")
    ]


def test_positions_mean_the_whole_range(spark: SparkSession, served: Served, data: Path) -> None:
    fill(served.engine, 0, 400)
    run(spark, {"path": str(data)}, data / "archive")
    finish(served.engine, 400)
    assert served.engine.compact(archived=True).messages
    fill(served.engine, 400, 420)
    starting = json.dumps({"orders": {"0": 5, "1": {"normal": 7, "high": 3}}})
    found = rows(load(spark, data, startingOffsets=starting))
    firsts = {(row.partition, row.priority): row.offset for row in reversed(found)}
    assert firsts == {(0, "normal"): 5, (0, "high"): 0, (1, "normal"): 7, (1, "high"): 3}
    by_time = rows(load(spark, data, startingTimestamp="1970-01-01T00:00:00.300Z"))
    assert sorted(int(row.value) for row in by_time) == list(range(300, 420))


def test_a_stream_begins_in_the_archive(
    spark: SparkSession, served: Served, data: Path, tmp_path: Path
) -> None:
    fill(served.engine, 0, 300)
    run(spark, {"path": str(data)}, data / "archive")
    finish(served.engine, 300)
    assert served.engine.compact(archived=True).messages
    fill(served.engine, 300, 340)
    stream = spark.readStream.format("quiver").options(path=str(data), subscribe="orders")
    query = (
        stream.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 90)
        .load()
        .select("value")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == list(range(340))


def test_what_is_archived_can_be_freed(spark: SparkSession, data: Path) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        fill(mq, 0, 400)
        finish(mq, 400)
    summary = archive(str(data), age=0, free=True, spark=spark)
    assert summary.freed_segments >= 4
    with quivermq.open(data, SETTINGS) as mq:
        assert mq.stats().messages == 0
        found = [m for p in (0, 1) for lane in ("high", "normal") for m in mq.queue("orders").read(
            p, 0, 1000, priority=lane)]  # fmt: skip
    assert sorted(int(message.value) for message in found) == list(range(400))


def test_a_broker_frees_what_is_archived(
    spark: SparkSession, served: Served, data: Path, tmp_path: Path
) -> None:
    fill(served.engine, 0, 200)
    finish(served.engine, 200)
    summary = run(spark, {"server": served.url}, tmp_path / "away", free=True)
    assert summary.freed_segments >= 2
    assert engine_of(served.engine).archive.directory == tmp_path / "away"
    with quivermq.connect(served.url) as mq:
        assert [m.offset for m in mq.queue("orders").read(0, 0)] == list(range(84))


def test_a_dry_run_changes_nothing(spark: SparkSession, served: Served, data: Path) -> None:
    fill(served.engine, 0, 200)
    summary = run(spark, {"path": str(data)}, data / "archive", dry_run=True)
    assert summary.messages == 200
    assert not (data / "archive").exists()
    assert not (data / "archive.json").exists()


def test_little_and_young_waits(spark: SparkSession, served: Served, data: Path) -> None:
    fill(served.engine, 0, 200)
    summary = run(spark, {"path": str(data)}, data / "archive", age=600)
    assert (summary.messages, summary.topics[0].waiting) == (0, 200)
    much = run(spark, {"path": str(data)}, data / "archive", age=600, file_bytes=1000)
    assert much.messages == 200


def test_a_topic_made_again_is_told_apart(spark: SparkSession, served: Served, data: Path) -> None:
    where = {"path": str(data)}
    fill(served.engine, 0, 100)
    fill(served.engine, 0, 100, "other")
    run(spark, where, data / "archive")
    served.engine.delete_topic("orders")
    fill(served.engine, 500, 600)
    fill(served.engine, 100, 200, "other")
    summary = run(spark, where, data / "archive")
    assert [(each.topic, each.messages) for each in summary.topics] == [("orders", 0), ("other", 100)]
    assert "another topic of the name orders" in summary.problems[0]
    assert sorted(int(row.value) for row in rows(load(spark, data))) == list(range(500, 600))


@pytest.mark.parametrize("option", ["path", "archive"])
def test_a_missing_file_fails_the_query_by_name(
    spark: SparkSession, served: Served, data: Path, option: str
) -> None:
    fill(served.engine, 0, 200)
    run(spark, {"path": str(data)}, data / "archive")
    finish(served.engine, 200)
    served.engine.compact(archived=True)
    gone = next(path for path in (data / "archive").rglob("p1-normal-*.parquet"))
    gone.unlink()
    options = {"archive": str(data / "archive")} if option == "archive" else {}
    with pytest.raises(PySparkException, match=gone.name):
        load(spark, data, **options).count()


def test_another_directory_is_refused(
    spark: SparkSession, served: Served, data: Path, tmp_path: Path
) -> None:
    fill(served.engine, 0, 100)
    run(spark, {"path": str(data)}, data / "archive")
    with pytest.raises(quivermq.Conflict, match="the archive of this queue is"):
        run(spark, {"path": str(data)}, tmp_path / "other")
    with pytest.raises(quivermq.InvalidRequest, match="age"):
        archive(str(data), age=-1, spark=spark)


@pytest.mark.damages
def test_damage_in_one_topic_leaves_the_others_to_be_archived(spark: SparkSession, data: Path) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        for topic in ("a", "b", "c"):
            mq.queue(topic).put_many([b"%d" % number for number in range(20)])
    [log] = (data / "topics" / "b" / "p0" / "normal").glob("*.log")
    content = bytearray(log.read_bytes())
    content[-20] ^= 0xFF
    log.write_bytes(content)
    ran = quiver("pipeline", "archive", "--data", data, "--age", "0s", "--json")
    assert ran.code == 6, ran.err
    told = {each["topic"]: each for each in json.loads(ran.text)["topics"]}
    assert {name: each["messages"] for name, each in told.items()} == {"a": 20, "b": 0, "c": 20}
    assert "is damaged at byte" in told["b"]["problem"]
