import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.command_inside import quiver

import quivermq
from quivermq.errors import DirectoryLocked, InvalidRequest
from quivermq.spark import redrive
from quivermq.spark.jobs.redrive import AUDIT_TOPIC, LetterPlace, batches_of, ranges_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        for topic in ("orders", "events"):
            queue = mq.queue(topic, group="billing")
            for number in range(6):
                queue.put(b"%s-%d" % (topic.encode(), number), key=b"k")
            for message in queue.get_many(6):
                number = int(message.value[-1:])
                message.reject("timeout" if number % 2 else "refused", error=f"trace {number}")
    return path


def dead(path: Path, topic: str) -> list[bytes]:
    with quivermq.open(path) as mq:
        return sorted(letter.value for letter in mq.queue(topic).dead_letters())


def audited(path: Path) -> list[dict[str, Any]]:
    with quivermq.open(path) as mq:
        return [json.loads(message.value) for message in mq.queue(AUDIT_TOPIC).read(limit=100)]


def test_sql_chooses_and_the_rest_stays(spark: SparkSession, data: Path) -> None:
    condition = "reason = 'timeout' AND error LIKE '%3' OR value = 'orders-4'"
    done = redrive(["orders"], path=str(data), where=condition, spark=spark)
    assert (done.chosen, done.moved, done.topics) == (2, 2, {"orders.dlq": 2})
    assert dead(data, "orders") == [b"orders-0", b"orders-1", b"orders-2", b"orders-5"]
    assert len(dead(data, "events")) == 6
    with quivermq.open(data) as mq:
        back = mq.queue("orders", group="billing").get_many(9)
    assert sorted(message.value for message in back) == [b"orders-3", b"orders-4"]

    again = redrive(["orders"], path=str(data), where=condition, spark=spark)
    assert (again.chosen, again.moved, again.audit) == (0, 0, None)


def test_every_step_is_in_the_audit(spark: SparkSession, data: Path) -> None:
    done = redrive(path=str(data), where="reason = 'timeout'", batch_messages=2, spark=spark)
    assert (done.moved, done.batches, done.topics) == (6, 4, {"events.dlq": 3, "orders.dlq": 3})
    entries = audited(data)
    events = [entry["event"] for entry in entries]
    assert events == ["begin", *["batch", "moved"] * 4, "end"]
    assert {entry["run"] for entry in entries} == {done.run}
    assert entries[0]["statement"] == "SELECT * FROM dead_letters WHERE reason = 'timeout'"
    assert entries[0]["chosen"] == {"events.dlq": 3, "orders.dlq": 3}
    assert entries[1]["offsets"] == {"0/normal": [[1, 2], [3, 4]]}
    assert [entry["moved"] for entry in entries if entry["event"] == "moved"] == [2, 1, 2, 1]
    assert entries[-1]["moved"] == 6


def test_a_limit_takes_the_oldest_and_a_statement_may_be_anything(spark: SparkSession, data: Path) -> None:
    redrive(["orders"], path=str(data), limit=2, spark=spark)
    assert dead(data, "orders") == [b"orders-2", b"orders-3", b"orders-4", b"orders-5"]
    statement = (
        "SELECT topic, partition, priority, offset FROM dead_letters WHERE attempts = 1 AND offset < 4"
    )
    assert redrive(["orders"], path=str(data), sql=statement, spark=spark).moved == 2
    assert dead(data, "orders") == [b"orders-4", b"orders-5"]


def test_a_comment_takes_no_limit_away(spark: SparkSession, data: Path) -> None:
    done = redrive(path=data, where="true -- all", limit=2, spark=spark, dry_run=True)
    assert done.chosen == 2


def test_what_was_interrupted_is_done_by_the_next_run(spark: SparkSession, data: Path) -> None:
    def interrupt(description: str, done: float, total: float | None = None) -> None:
        if description == "sending back":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        redrive(["orders"], path=str(data), batch_messages=2, spark=spark, progress=interrupt)
    assert len(dead(data, "orders")) == 4
    assert [entry["event"] for entry in audited(data)] == ["begin", "batch", "moved"]

    assert redrive(["orders"], path=str(data), batch_messages=2, spark=spark).moved == 4
    assert dead(data, "orders") == []
    with quivermq.open(data) as mq:
        back = mq.queue("orders", group="billing").get_many(20)
    assert sorted(message.value for message in back) == [b"orders-%d" % number for number in range(6)]


def test_a_dry_run_moves_nothing(spark: SparkSession, data: Path) -> None:
    done = redrive(["orders"], path=str(data), dry_run=True, spark=spark)
    assert (done.chosen, done.moved, len(done.sample)) == (6, 0, 6)
    assert {row["reason"] for row in done.sample} == {"timeout", "refused"}
    assert len(dead(data, "orders")) == 6


def test_what_is_wrong_is_told(spark: SparkSession, data: Path) -> None:
    with pytest.raises(
        InvalidRequest, match=r"has to select topic, partition, priority, offset.*: offset is"
    ):
        redrive(path=str(data), sql="SELECT topic, partition, priority FROM dead_letters", spark=spark)
    with pytest.raises(InvalidRequest, match="colour"):
        redrive(path=str(data), where="colour = 1", spark=spark)
    with quivermq.open(data), pytest.raises(DirectoryLocked):
        redrive(path=str(data), spark=spark)
    assert len(dead(data, "orders")) == 6


def test_the_command(spark: SparkSession, data: Path) -> None:
    words = ("pipeline", "redrive", "orders", "--where", "reason = 'timeout'", "--data", data)
    ran = quiver(*words, "--dry-run")
    assert ran.code == 0, ran.err
    assert "trace 5" in ran.text
    assert json.loads(quiver(*words, "--json").out)["moved"] == 3
    assert len(dead(data, "orders")) == 3


def test_batches_are_of_one_topic_and_ranges_are_half_open() -> None:
    letters = [LetterPlace("a", 0, "normal", n) for n in (0, 1, 5)] + [
        LetterPlace("a", 1, "high", 7),
        LetterPlace("b", 0, "low", 1),
    ]
    batches = list(batches_of(letters, 2))
    assert [(topic, [lying.offset for lying in each]) for topic, each in batches] == [
        ("a", [0, 1]),
        ("a", [5, 7]),
        ("b", [1]),
    ]
    assert ranges_of(letters[:4]) == {"0/normal": [[0, 2], [5, 6]], "1/high": [[7, 8]]}
    assert letters[3].id == "1-0-7"


def test_a_queue_without_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "quiet"
    with quivermq.open(path) as mq:
        mq.queue("orders").put(b"x")
    assert redrive(path=path, spark=spark).chosen == 0
    assert redrive(["orders"], path=path, spark=spark).chosen == 0
    ran = quiver("pipeline", "redrive", "nosuch", "--data", path)
    assert (ran.code, "there is no topic nosuch" in ran.err) == (3, True)
