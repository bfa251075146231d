"""The queue's own state as tables, in a real Spark: from a directory and from its broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.broker import Served, serving

from quivermq.engine import engine_of


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Orders: 6 messages for billing, one of each fate; invoices: one that nobody has read."""
    with serving(tmp_path / "data") as served:
        served.engine.create_topic("orders", partitions=2, segment_messages=2, lease_ms=3_600_000)
        orders = served.engine.queue("orders", "billing")
        for number in range(6):
            orders.put(b"%d" % number, key=b"<k>", headers={"a": b"1"}, partition=0)
        taken = orders.get_many(4)
        taken[0].ack()
        taken[1].nack(delay=3600)
        taken[2].reject("broken", error="ValueError")
        invoices = served.engine.queue("invoices", "billing")
        invoices.put(b"x")
        invoices.seek("earliest")
        yield served


def tables(spark: SparkSession, served: Served, table: str, **options: str) -> Iterator[DataFrame]:
    """The same table from the directory and from the broker."""
    for place in ({"path": str(engine_of(served.engine).path)}, {"server": served.url}):
        yield spark.read.format("quiver").options(**place, table=table, **options).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_groups(spark: SparkSession, served: Served) -> None:
    for frame in tables(spark, served, "groups", subscribe="orders"):
        (found,) = rows(frame.filter("partition = 0"))
        assert (found["group"], found["start"], found["end"], found["position"]) == ("billing", 0, 6, 4)
        assert (found["cursor"], found["lag"], found["in_flight"], found["retrying"]) == (1, 2, 1, 1)


def test_deliveries(spark: SparkSession, served: Served) -> None:
    for frame in tables(spark, served, "deliveries"):
        found = rows(frame.orderBy("offset"))
        assert [(each["offset"], each["attempt"], each["state"]) for each in found] == [
            (1, 1, "retrying"),
            (3, 1, "in_flight"),
        ]
        assert found[0]["due"] is not None
        assert found[1]["deadline"] is not None


def test_dead_letters_are_asked_for_in_sql(spark: SparkSession, served: Served) -> None:
    for frame in tables(spark, served, "dead_letters", subscribe="orders"):
        frame.createOrReplaceTempView("letters")
        asked = spark.sql("SELECT origin_offset, value, headers FROM letters WHERE reason = 'broken'")
        (found,) = rows(asked)
        assert (found["origin_offset"], bytes(found["value"])) == (2, b"2")
        assert [(each["key"], bytes(each["value"])) for each in found["headers"]] == [("a", b"1")]
        assert spark.sql("SELECT * FROM letters WHERE died_at < timestamp '2020-01-01'").count() == 0


def test_segments(spark: SparkSession, served: Served) -> None:
    for frame in tables(spark, served, "segments", subscribe="orders,events.*"):
        found = frame.groupBy("topic").sum("messages").collect()
        assert [tuple(row) for row in found] == [("orders", 6)]
    (from_directory, _) = tables(spark, served, "segments")
    assert {Path(row["path"]).suffix for row in rows(from_directory)} == {".log"}


def test_only_the_columns_that_are_asked_for_are_made(spark: SparkSession, served: Served) -> None:
    reader = (
        spark.read.format("quiver")
        .option("path", str(engine_of(served.engine).path))
        .option("table", "groups")
    )
    assert rows(reader.schema("lag long, topic string").load().filter("topic = 'invoices'")) == [
        {"lag": 1, "topic": "invoices"}
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "letters"}, "messages, groups, deliveries, dead_letters, segments"),
        ({"table": "groups", "startingOffsets": "earliest"}, "is for messages"),
        ({"table": "groups", "subscribePattern": "("}, "no regular expression"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, served: Served, options: dict[str, str], words: str
) -> None:
    reader = (
        spark.read.format("quiver").option("path", str(engine_of(served.engine).path)).options(**options)
    )
    with pytest.raises(Exception, match=words):
        reader.load().collect()
