"""Batch reads through a real Spark: what is in the log, and nothing else."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from support.broker import Served, serving

from quivermq import Message
from quivermq.settings import Settings, StorageSettings

# Small segments, so that a few messages are many of them.
SETTINGS = Settings(storage=StorageSettings(durability="os", segment_messages=100))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", settings=SETTINGS) as served:
        yield served


@pytest.fixture
def path(tmp_path: Path, served: Served) -> str:
    return str(tmp_path / "data")


@pytest.fixture(params=["directory", "broker"])
def where(request: pytest.FixtureRequest, served: Served, path: str) -> dict[str, str]:
    """The options that say where the queue is, while a broker has it open."""
    return {"path": path} if request.param == "directory" else {"server": served.url}


def load(
    spark: SparkSession, where: dict[str, str], schema: str | None = None, **options: Any
) -> DataFrame:
    reader = spark.read.format("quiver").options(**where, **options)
    return (reader if schema is None else reader.schema(schema)).load()


def fill(served: Served, topic: str = "orders", count: int = 250, **settings: Any) -> None:
    """Messages 0, 1, … by turns in all partitions, in frames of ten. Their time is their number in ms."""
    if topic not in served.engine.topics():
        served.engine.create_topic(topic, **settings)
    queue, partitions = served.engine.queue(topic), served.engine.topic(topic).partitions
    for first in range(0, count, 10):
        queue.put_many(
            [
                Message(b"%d" % n, timestamp=n * 1000, partition=first // 10 % partitions)
                for n in range(first, min(first + 10, count))
            ]
        )


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def refusal(act: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        act()
    return str(raised.value)


def test_every_column_of_a_message(spark: SparkSession, where: dict[str, str], served: Served) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    queue = served.engine.queue("orders")
    given: dict[str, Any] = {"key": b"k", "headers": {"a": b"1"}, "priority": "high", "timestamp": moment}
    put = queue.put(b"v", **given, ttl=2**31, dedup_id="d", delay=3600)
    assert put.scheduled_id
    assert queue.deliver_now(put.scheduled_id)
    frame = load(spark, where, subscribe="orders")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("priority", "string"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("expires_at", "timestamp"),
        ("dedup_id", "string"),
        ("append_time", "timestamp"),
        ("scheduled_id", "string"),
    ]
    [row] = frame.collect()
    assert (row.key, row.value, row.topic, row.partition) == (b"k", b"v", "orders", 0)
    assert (row.priority, row.offset) == ("high", 0)
    assert row.headers == [Row(key="a", value=b"1")]
    [(found_us,)] = frame.selectExpr("unix_micros(timestamp)").collect()
    assert found_us == moment.timestamp() * 1_000_000
    assert row.expires_at is not None
    assert (row.dedup_id, row.scheduled_id) == ("d", put.scheduled_id)
    assert row.append_time > row.timestamp


def test_all_messages_of_all_lanes(spark: SparkSession, where: dict[str, str], served: Served) -> None:
    fill(served, partitions=3)
    served.engine.queue("orders").put(b"250", priority="low")
    frame = load(spark, where, subscribe="orders")
    assert numbers(frame) == list(range(251))
    places = {
        (r.partition, r.priority): r[2] for r in frame.groupBy("partition", "priority").count().collect()
    }
    assert places[0, "normal"] == 90
    assert sum(places.values()) == 251


def test_topics_by_name_wildcard_and_expression(
    spark: SparkSession, where: dict[str, str], served: Served
) -> None:
    for topic in ("events.a", "events.b.c", "orders", "orders.dlq"):
        served.engine.queue(topic).put(b"1")

    def topics(**options: str) -> list[str]:
        return sorted(row.topic for row in load(spark, where, "topic string", **options).collect())

    assert topics(subscribe="orders, events.*") == ["events.a", "orders"]
    assert topics(subscribe="events.>") == ["events.a", "events.b.c"]
    assert topics(subscribePattern="(events|or).*") == ["events.a", "events.b.c", "orders"]
    assert topics(subscribe="nothing.*") == []
    assert "there is no topic none" in refusal(lambda: load(spark, where, subscribe="none").collect())


def test_ranges_by_offset(spark: SparkSession, where: dict[str, str], served: Served) -> None:
    fill(served, partitions=2, count=100)
    everything = load(spark, where, subscribe="orders", startingOffsets="earliest", endingOffsets="latest")
    assert numbers(everything) == list(range(100))
    starting = json.dumps({"orders": {"0": 45, "1": -2}})
    ending = json.dumps({"orders": {"0": {"normal": 47}, "1": 3}})
    some = load(spark, where, subscribe="orders", startingOffsets=starting, endingOffsets=ending)
    # Offset 45 of partition 0 is in its fifth frame of ten, which is the ninth of all.
    assert numbers(some) == [10, 11, 12, 85, 86]
    unknown = json.dumps({"orders": {"7": 1}})
    message = refusal(lambda: load(spark, where, subscribe="orders", startingOffsets=unknown).collect())
    assert "partition 7 of orders" in message


def test_ranges_by_time(spark: SparkSession, where: dict[str, str], served: Served) -> None:
    fill(served, count=100)
    some = load(
        spark, where, subscribe="orders", startingTimestamp="20", endingTimestamp="1970-01-01T00:00:00.025"
    )
    assert numbers(some) == [20, 21, 22, 23, 24]


def test_every_use_is_fresh_and_on_request_as_it_was_loaded(
    spark: SparkSession, where: dict[str, str], served: Served
) -> None:
    fill(served, count=10)
    frame = load(spark, where, subscribe="orders")
    pinned = load(spark, where, subscribe="orders", endingOffsets="now")
    options = ", ".join(f"{name} '{value}'" for name, value in where.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING quiver OPTIONS ({options}, subscribe 'orders')")
    assert [frame.count(), pinned.count(), spark.table("v").count()] == [10, 10, 10]
    fill(served, count=5)
    assert [frame.count(), pinned.count(), spark.table("v").count()] == [15, 10, 15]
    assert pinned.where("offset >= 0").count() == 10
    assert spark.sql("SELECT count(*) FROM v WHERE offset >= 10").first() == (5,)


def test_a_large_lane_is_read_by_many_tasks(spark: SparkSession, path: str, served: Served) -> None:
    fill(served, count=250)
    frame = load(spark, {"path": path}, subscribe="orders", minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert numbers(frame) == list(range(250))
    assert load(spark, {"path": path}, subscribe="orders").rdd.getNumPartitions() == 1


def test_filters(spark: SparkSession, where: dict[str, str], served: Served) -> None:
    fill(served, partitions=2, count=100)
    served.engine.queue("events").put(b"7", timestamp=1)

    def found(condition: str) -> list[int]:
        return numbers(load(spark, where, subscribe="orders,events").where(condition))

    assert found("topic = 'events'") == [7]
    assert found("topic like 'ord%' and partition = 1 and offset in (3, 5)") == [13, 15]
    assert found("topic = 'orders' and timestamp >= timestamp_micros(95000)") == [95, 96, 97, 98, 99]


@pytest.mark.parametrize("pushes", ["true", "false"])
def test_filters_of_one_use_are_not_those_of_another(
    spark: SparkSession, path: str, served: Served, pushes: str
) -> None:
    """Spark 4.3 keeps what a reader plans with the filters of one use for every other use."""
    fill(served, partitions=2, count=100)
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name) or "false"
    spark.conf.set(name, pushes)
    try:
        frame = load(spark, {"path": path}, subscribe="orders")
        assert frame.where("partition = 0").count() == 50
        assert frame.count() == 100
        assert frame.where("partition = 0").union(frame.where("partition = 1")).count() == 100
    finally:
        spark.conf.set(name, before)
    assert "no option `filterpushdown`" in refusal(
        lambda: load(spark, {"path": path}, subscribe="orders", filterPushdown="true").collect()
    )


def test_only_the_columns_that_are_asked_for(
    spark: SparkSession, where: dict[str, str], served: Served
) -> None:
    fill(served, count=20)
    assert sorted(load(spark, where, "offset bigint", subscribe="orders").collect()) == [
        Row(offset=n) for n in range(20)
    ]
    assert load(
        spark, where, "priority string, partition int", subscribe="orders"
    ).distinct().collect() == [Row(priority="normal", partition=0)]
    assert "headers" not in load(spark, where, subscribe="orders", includeHeaders="false").columns
    wrong = refusal(lambda: load(spark, where, "value string", subscribe="orders").collect())
    assert "the column value is binary, not string" in wrong


def test_what_was_removed_is_not_read(spark: SparkSession, where: dict[str, str], served: Served) -> None:
    queue = served.engine.queue("orders")
    queue.put_many([b"%d" % n for n in range(10)])
    queue.reject(queue.get_many(10), "no")
    queue.redrive(lambda letter: int(letter.value) % 2 == 0)
    assert numbers(load(spark, where, subscribe="orders.dlq")) == [1, 3, 5, 7, 9]


def test_wrong_options_are_named(spark: SparkSession, path: str, served: Served) -> None:
    fill(served, count=1)
    here = {"path": path}
    assert "no option `startingofsets`: did you mean `startingOffsets`?" in refusal(
        lambda: load(spark, here, subscribe="orders", startingOfsets="earliest").collect()
    )
    assert "`subscribe`" in refusal(lambda: load(spark, here).collect())
    assert "the option `path`" in refusal(lambda: load(spark, {}, subscribe="orders").collect())
    assert "`topic` is for writing" in refusal(
        lambda: load(spark, here, subscribe="orders", topic="x").collect()
    )
    assert "`minPartitions`" in refusal(
        lambda: load(spark, here, subscribe="orders", minPartitions="0").collect()
    )
    assert "cannot be latest" in refusal(
        lambda: load(spark, here, subscribe="orders", startingOffsets="latest").collect()
    )


def test_sql_tables(spark: SparkSession, path: str, served: Served) -> None:
    fill(served, count=30)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW o USING quiver OPTIONS (data '{path}', subscribe 'orders')"
    )
    assert spark.sql("SELECT sum(int(string(value))) FROM o WHERE offset < 10").first() == (45,)


def test_tables_of_the_catalog(
    spark: SparkSession, where: dict[str, str], served: Served, tmp_path: Path
) -> None:
    fill(served, count=30)
    name, place = next(iter(where.items()))
    given = f"{name.replace('path', 'data')} '{place}', subscribe 'orders'"
    names = [f"t{tmp_path.name}_{number}".replace("-", "_") for number in range(3)]
    spark.sql(
        f"CREATE TABLE {names[0]} USING quiver OPTIONS ({given}, includeHeaders 'false') COMMENT 'c'"
        " TBLPROPERTIES (my.own 'x')"
    )
    spark.sql(f"CREATE TABLE {names[1]} (offset bigint) USING quiver OPTIONS ({given})")
    spark.sql(f"CREATE TABLE {names[2]} USING quiver OPTIONS ({given}, table 'segments')")
    try:
        assert "headers" not in spark.table(names[0]).columns
        total = f"SELECT sum(int(string(value))) FROM {names[0]} WHERE offset < 10"
        assert spark.sql(total).first() == (45,)
        fill(served, count=5)
        assert spark.table(names[0]).count() == 35
        ending = '{"orders": {"0": 3}}'
        assert spark.sql(f"SELECT * FROM {names[0]} WITH (endingOffsets '{ending}')").count() == 3
        assert spark.table(names[2]).count() == 1
        if name == "server":
            spark.sql(
                f"INSERT INTO {names[0]} (value, key) VALUES (CAST('9' AS binary), X'01'), (X'39', NULL)"
            )
            rows = spark.sql(f"SELECT key, string(value) FROM {names[0]} WHERE offset >= 35").collect()
            assert sorted(rows, key=str) == [(None, "9"), (b"\x01", "9")]
            assert "cannot be written" in refusal(
                lambda: spark.sql(f"INSERT INTO {names[0]} (value, dedup_id) VALUES (X'39', 'x')")
            )
            served.engine.queue("orders").seek("latest")
        assert "own state" in refusal(lambda: spark.sql(f"INSERT INTO {names[2]} (topic) VALUES ('x')"))
        # Spark tells nothing of this one.
        message = refusal(spark.table(names[1]).count)
        assert "say where the queue is" in message
        assert "CREATE TEMPORARY VIEW" in message
        assert spark.sql(f"SELECT * FROM {names[1]} WITH ({given})").count() in (35, 37)
    finally:
        for each in names:
            spark.sql(f"DROP TABLE IF EXISTS {each}")


def test_retention_that_overtook_the_reader(
    spark: SparkSession, where: dict[str, str], served: Served
) -> None:
    fill(served, count=250)
    explicit = json.dumps({"orders": {"0": 5}})
    strict = load(spark, where, subscribe="orders", startingOffsets=explicit)
    earliest = load(spark, where, subscribe="orders")
    lenient = load(spark, where, subscribe="orders", startingOffsets=explicit, failOnDataLoss="false")
    assert strict.count() == 245
    served.engine.alter_topic("orders", segments_max=1)
    served.engine.compact()
    message = refusal(strict.count)
    assert "offsets [5, 250) of orders, partition 0, priority normal are gone" in message
    assert "holds [200, 250)" in message
    assert "failOnDataLoss" in message
    assert numbers(lenient) == list(range(200, 250))
    # Whoever asked for the earliest asked for what there is.
    assert numbers(earliest) == list(range(200, 250))


def test_a_topic_that_was_made_again_is_another(
    spark: SparkSession, where: dict[str, str], served: Served
) -> None:
    fill(served, count=10)
    frame = load(spark, where, subscribe="orders")
    pinned = load(spark, where, subscribe="orders", endingOffsets="now")
    assert frame.count() == 10
    served.engine.delete_topic("orders")
    fill(served, count=20)
    assert "was deleted and made again" in refusal(frame.count)
    assert "was deleted and made again" in refusal(pinned.count)


@pytest.mark.damages
@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_damage_fails_the_job_with_file_and_offset(
    spark: SparkSession, path: str, served: Served, harm: str
) -> None:
    fill(served, count=250)
    segment = Path(path) / "topics/orders/p0/normal/00000000000000000100.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "gone":
        segment.unlink()
    else:
        segment.write_bytes(data if harm == "flip" else data[: len(data) // 2])
    message = refusal(load(spark, {"path": path}, subscribe="orders").count)
    name = "00000000000000000000.log" if harm == "gone" else segment.name
    assert name in message
    assert "is damaged at byte" in message
