"""A whole store audited in a real Spark: what is wrong is told with its place, and nothing else."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker import serving
from support.command_inside import quiver
from support.damage import flip

import quivermq
from quivermq.frame import Frame, Producer, encode
from quivermq.log import DataDirectory
from quivermq.spark import archive, audit, compact, report

NOW = 1_700_000_000_000_000


def fill(path: Path) -> None:
    with quivermq.open(path) as mq:
        mq.create_topic("orders", partitions=2, segment_messages=20)
        orders = mq.queue("orders", "billing")
        for number in range(10):
            orders.put_many([quivermq.Message(value=b"%d" % number, partition=number % 2)] * 10)
        for number in range(5):
            orders.put(b"once", dedup_id=f"id-{number}")
            orders.put(b"again", dedup_id=f"id-{number}")
        for message in orders.get_many(20):
            message.ack()
        for message in orders.get_many(3):
            message.reject("broken")


def test_a_sound_store_has_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    seen: list[str] = []
    summary = audit(str(tmp_path), spark=spark, deep=True, progress=lambda what, *_: seen.append(what))
    assert summary.findings == ()
    assert summary.is_sound
    journals = len(list((tmp_path / "groups").rglob("*.log")))
    lanes = len(list((tmp_path / "topics").rglob("*.log")))
    assert (summary.segments, summary.is_dry_run) == (journals + lanes, False)
    assert summary.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.log"))


@pytest.mark.damages
def test_damage_is_told_and_the_rest_is_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    first = tmp_path / "topics/orders/p0/normal" / f"{0:020d}.log"
    other = tmp_path / "topics/orders/p1/normal" / f"{20:020d}.log"
    flip(first, 100)
    flip(other, 10)
    summary = audit(str(tmp_path), spark=spark)
    assert not summary.is_sound
    found = {
        (each.where, each.position, each.offsets) for each in summary.findings if each.kind == "damage"
    }
    assert found == {(str(first), 0, (0, 10)), (str(other), 0, (20, 30))}
    assert {each.kind for each in audit(str(tmp_path), spark=spark, ignore=["damage"]).findings} <= {
        "index"
    }


def test_what_is_there_twice_is_found_across_segments(spark: SparkSession, tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", partitions=2)
        mq.queue("orders", "billing").put(b"x", partition=0)
        mq.queue("orders", "billing").put(b"x", partition=1)
        (message,) = mq.queue("orders", "billing").get_many(1)
        message.reject("broken")
        letter = mq.queue("orders").dead_letters()[0]
        # Nobody gave this one up, whatever it says.
        mq.queue("orders.dlq").put(b"x", headers=letter.headers, partition=0)
    with DataDirectory(tmp_path) as directory:
        letters = directory.log(f"topics/orders.dlq/p{message.partition}/normal")
        (told, *_) = letters.frames(0)
        following = told.header.base_sequence + 1
        again = Frame(told.header._replace(flags=0, base_sequence=following), told.stored)
        again_at = letters.append_frame(again, flags=told.header.flags)
        log = directory.log("topics/orders/p0/normal")
        for sequence in (0, 2, 0):
            log.append_frame(encode([b"a", b"b"], timestamp=NOW, producer=Producer(7, 1, sequence)))
            log.roll()
        log.append_frame(encode([b"a"], timestamp=NOW, dedup_ids=["same"]))
        directory.log("topics/orders/p1/normal").append_frame(
            encode([b"a"] * 50, timestamp=NOW, dedup_ids=["same", *(f"{n}" for n in range(49))])
        )
    summary = audit(str(tmp_path), spark=spark)
    found = {(each.kind, each.where, each.offsets) for each in summary.findings}
    assert found == {
        ("sequence", "orders, partition 0, priority normal", (5, 7)),
        ("dedup_id", "orders, partition 1, priority normal", (1, 2)),
        (
            "dead_letter",
            f"orders.dlq, partition {message.partition}, priority normal",
            (again_at, again_at + 1),
        ),
    }
    assert not summary.is_sound


def test_a_broker_is_audited_over_http(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "data")
    with serving(tmp_path / "data") as served:
        summary = audit(server=served.url, spark=spark)
        assert summary.findings == ()
        assert (summary.messages, summary.segments) == (108, 0)
        assert audit(server=served.url, spark=spark, topics="orders.dlq").messages == 3


def test_an_empty_store_is_sound(spark: SparkSession, tmp_path: Path) -> None:
    with quivermq.open(tmp_path):
        pass
    summary = audit(str(tmp_path), spark=spark)
    assert (summary.is_sound, summary.messages) == (True, 0)


def test_what_other_jobs_leave_behind_is_sound(spark: SparkSession, tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("state", segment_messages=100, cleanup="compact")
    frame = spark.range(500).selectExpr("cast(id % 7 as string) key", "cast(id as string) value")
    for _ in range(2):
        frame.write.format("quiver").options(path=str(tmp_path), topic="state").mode("append").save()
    (compacted,) = compact(str(tmp_path), spark=spark).topics
    assert compacted.messages_after < compacted.messages_before
    archive(str(tmp_path), age=0, spark=spark)
    summary = audit(str(tmp_path), spark=spark, deep=True)
    assert summary.findings == ()
    assert report(str(tmp_path), to=tmp_path / "report.html", spark=spark).messages < 1000


@pytest.mark.damages
def test_an_archive_that_lost_a_file_is_told(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    archive(str(tmp_path), age=0, spark=spark)
    gone, *_, mangled = sorted((tmp_path / "archive").rglob("*.parquet"))
    gone.unlink()
    flip(mangled, mangled.stat().st_size // 3, 0xFF)
    found = audit(str(tmp_path), spark=spark).findings
    assert {(each.kind, each.where) for each in found} == {
        ("archive", str(gone)),
        ("archive", str(mangled)),
    }


@pytest.mark.damages
def test_the_command_exits_by_what_it_found(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    sound = quiver("pipeline", "audit", "--data", tmp_path)
    assert (sound.code, "sound" in sound.text) == (0, True), sound.err
    path = tmp_path / "topics/orders/p0/normal" / f"{0:020d}.log"
    flip(path, 100)
    damaged = quiver("pipeline", "audit", "--data", tmp_path)
    assert damaged.code == 6
    assert "topics/orders/p0/normal/00000000000000000000.log" in damaged.text
    assert "1 ERROR" in damaged.text
    told = json.loads(quiver("pipeline", "audit", "--data", tmp_path, "--json").out)
    assert (told["is_sound"], told["findings"][0]["offsets"]) == (False, [0, 10])
    assert (
        quiver("pipeline", "audit", "--data", tmp_path, "--ignore", "damage", "--ignore", "index").code == 0
    )
    assert quiver("pipeline", "audit", "--data", tmp_path, "--ignore", "rumour").code == 2
    assert "to look at" in quiver("pipeline", "audit", "--data", tmp_path, "--dry-run").text
