import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.archives import archive_queue
from support.broker import serving
from support.command_inside import quiver

import quivermq
from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.settings import Settings, StorageSettings
from quivermq.spark import replay


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        mq.create_topic("orders", partitions=2)
        orders = mq.queue("orders")
        for number in range(20):
            value = json.dumps({"n": number}).encode()
            headers = {"h": b"%d" % number}
            orders.put(
                value, key=b"k%d" % (number % 5), headers=headers, timestamp=1_900_000_000.0 + number
            )
        orders.put(b"\xff", priority="high", timestamp=1_900_000_100.0)
    return path


def stored(path: Path, topic: str) -> list[Any]:
    with quivermq.open(path) as mq:
        queue = mq.queue(topic)
        return [
            message
            for partition in range(mq.topic(topic).partitions)
            for priority in ("high", "normal")
            for message in queue.read(partition=partition, limit=1000, priority=priority)
        ]


def numbers(path: Path, topic: str) -> list[int]:
    return sorted(
        json.loads(message.value)["n"] for message in stored(path, topic) if message.value != b"\xff"
    )


def test_all_of_a_topic_arrives_once(spark: SparkSession, data: Path) -> None:
    done = replay(["orders"], "again", path=str(data), spark=spark)
    assert (done.messages, done.read, done.was_finished) == (21, 21, False)
    assert numbers(data, "again") == list(range(20))
    before = {message.value: message for message in stored(data, "orders")}
    for message in stored(data, "again"):
        old = before[message.value]
        assert (message.key, message.headers, message.priority) == (old.key, old.headers, old.priority)
        assert message.timestamp == old.timestamp

    # A second time says that it was done; what came since then was not asked for.
    with quivermq.open(data) as mq:
        mq.queue("orders").put(b'{"n": 99}')
    done = replay(["orders"], "again", path=str(data), spark=spark)
    assert (done.read, done.was_finished) == (0, True)
    assert len(stored(data, "again")) == 21
    done = replay(["orders"], "again", path=str(data), spark=spark, again=True)
    assert (done.messages, done.read) == (22, 22)
    assert len(stored(data, "again")) == 43


def test_a_range_by_time_and_sql(spark: SparkSession, data: Path) -> None:
    moments = [datetime.fromtimestamp(1_900_000_000 + second, UTC) for second in (5, 15)]
    done = replay(
        ["orders"],
        "some",
        path=str(data),
        start=moments[0],
        end=moments[1],
        where="get_json_object(value, '$.n') % 2 = 0",
        select="key, upper(value) AS value, 'low' AS priority",
        spark=spark,
    )
    assert done.messages < 21
    with quivermq.open(data) as mq:
        found = mq.queue("some").read(limit=99, priority="low")
    assert sorted(m.value for m in found) == sorted(b'{"N": %d}' % n for n in (6, 8, 10, 12, 14))


def test_a_range_by_offset(spark: SparkSession, data: Path) -> None:
    held = stored(data, "orders")
    wanted = sorted(json.loads(m.value)["n"] for m in held if 1 <= m.offset < 4 and m.priority == "normal")
    replay(["*"], "part", path=str(data), start=1, end=4, spark=spark)
    assert numbers(data, "part") == wanted


def test_a_dry_run_writes_nothing(spark: SparkSession, data: Path) -> None:
    done = replay(["orders"], "never", path=str(data), where="key = 'k1'", dry_run=True, spark=spark)
    assert (done.messages, done.matching, done.read) == (21, 4, 0)
    assert {bytes(row["key"]) for row in done.sample} == {b"k1"}
    with quivermq.open(data) as mq:
        assert mq.topics() == ["orders"]
    assert not (data / "pipelines").exists()


def test_what_is_wrong_is_told(spark: SparkSession, data: Path) -> None:
    with pytest.raises(TopicNotFound):
        replay(["nothing"], "out", path=str(data), spark=spark)
    with pytest.raises(InvalidRequest, match="before it begins"):
        replay(["orders"], "out", path=str(data), start=5, end=2, spark=spark)
    with pytest.raises(InvalidRequest, match="its own WHERE"):
        replay(["orders"], "out", path=str(data), sql="SELECT 1", where="true", spark=spark)
    with pytest.raises(InvalidRequest, match="colour"):
        replay(["orders"], "out", path=str(data), where="colour = 1", spark=spark)
    replay(["orders"], "out", path=str(data), id="mine", end=1, spark=spark)
    with pytest.raises(
        InvalidRequest, match="mine is the id of a replay that was asked for something else"
    ):
        replay(["orders"], "out", path=str(data), id="mine", end=2, spark=spark)


def test_what_came_after_the_plan_and_another_rate_change_nothing(spark: SparkSession, data: Path) -> None:
    done = replay(["orders"], "out", path=str(data), id="mine", spark=spark)
    run = Path(done.state) / "run-1"
    assert json.loads((run / "plan.json").read_text())["one_task"] is False
    # As if it had been killed before its first batch.
    (run / "done.json").unlink()
    shutil.rmtree(run / "checkpoint")
    with quivermq.open(data) as mq:
        mq.alter_topic("orders", partitions=3)
        mq.queue("orders").put(b'{"n": 99}', partition=2)
    replay(["orders"], "out", path=str(data), id="mine", rate=10_000, spark=spark)
    assert numbers(data, "out") == sorted([*range(20)] * 2)


def test_a_batch_that_was_interrupted_keeps_its_tasks_whatever_the_rate(
    spark: SparkSession, tmp_path: Path
) -> None:
    with serving(tmp_path / "data") as served:
        served.engine.create_topic("many", partitions=2)
        many = served.engine.queue("many")
        for partition in range(2):
            # So many that each partition has a task of its own, unless one task writes all.
            many.put_many(
                [quivermq.Message(b"%d" % number, partition=partition) for number in range(10_000)]
            )
        checkpoint = tmp_path / "state"

        def send(rate: int | None) -> int:
            return replay(
                ["many"], "out", server=served.url, rate=rate, checkpoint=str(checkpoint), spark=spark
            ).read

        assert send(1_000_000) == 20_000
        # As if it had been killed when everything was written, before that was written down.
        (checkpoint / "run-1" / "done.json").unlink()
        shutil.rmtree(checkpoint / "run-1" / "checkpoint" / "commits")
        assert send(None) == 20_000
        assert served.engine.queue("out").stats().pending == 20_000


def test_archived_messages_are_sent(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with quivermq.open(data, Settings(storage=StorageSettings(segment_messages=10))) as mq:
        queue = mq.queue("orders")
        for first in range(0, 50, 10):
            queue.put_many([b'{"n": %d}' % number for number in range(first, first + 10)])
        archive_queue(data, data / "archive", "orders", end=40)
        mq.use_archive("archive")
        while queue.pop() is not None:
            pass
        assert mq.compact(archived=True).messages == 40
    done = replay(["orders"], "out", path=str(data), spark=spark)
    assert (done.messages, done.read) == (50, 50)
    assert numbers(data, "out") == list(range(50))


def test_the_command(spark: SparkSession, data: Path) -> None:
    words = ("pipeline", "replay", "orders", "--to", "out", "--data", data, "--rate", "1000")
    ran = quiver(*words, "--until", "1900000003", "--dry-run")
    assert ran.code == 0, ran.err
    assert "that would be sent" in ran.text
    ran = quiver(*words, "--until", "1900000003", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["read"] >= 3
    assert numbers(data, "out") == [0, 1, 2]
    ran = quiver(*words, "--until", "1900000003")
    assert "finished before" in ran.text
    assert quiver(*words, "--until", "1900000003", "--end", "3").code == 2


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_condition_that_fails_is_one_line(spark: SparkSession, data: Path, more: tuple[str, ...]) -> None:
    ran = quiver(
        "pipeline", "replay", "orders", "--to", "x", "--data", data, "--where", "int(value) > 1", *more
    )
    assert (ran.code, "[CAST_INVALID_INPUT]" in ran.err, len(ran.err.splitlines())) == (2, True, 1), ran.err
