import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.command_inside import quiver

import quivermq
from quivermq.errors import DirectoryLocked, InvalidRequest, NotFound
from quivermq.spark import run
from quivermq.spark.jobs.state import held

PIPELINE = """\
[pipeline]
name = "totals"
data = "data"

[[source]]
name = "orders"
topics = ["orders"]
format = "json"
schema = "id bigint, amount double"
malformed = "orders.malformed"

[[step]]
name = "large"
sql = "SELECT id, amount * 2 AS twice, message.key AS customer FROM orders WHERE amount >= 5"

[[step]]
name = "named"
python = "steps.py:named"

[[sink]]
from = "named"
topic = "large"
key = "id"

[[sink]]
from = "large"
parquet = "out/large"
"""

STEPS = """\
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

def named(large):
    spell = F.udf(lambda n: f"number {n}", StringType())
    return large.select("id", spell("id").alias("name"))

def wrong(large):
    return 1 / 0

def unknown(large):
    return large.select(large.colour)

def failing(large):
    return large.select("id", F.udf(lambda n: {}["none"], StringType())("id").alias("name"))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "steps.py").write_text(STEPS)
    put(tmp_path, range(10))
    return tmp_path / "pipeline.toml"


def put(tmp_path: Path, numbers: range, *more: bytes) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        values = [json.dumps({"id": n, "amount": n}).encode() for n in numbers]
        mq.queue("orders").put_many([*values, *more])


def stored(tmp_path: Path, topic: str) -> list[Any]:
    with quivermq.open(tmp_path / "data") as mq:
        return mq.queue(topic).read(limit=1000)


def table(spark: SparkSession, tmp_path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(tmp_path / "out" / "large")).collect())


def test_a_pipeline_runs_once_and_goes_on(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    put(tmp_path, range(0), b"no order")
    done = run(file, spark=spark)
    assert {sink.name: sink.read for sink in done.sinks} == {
        "large": 11,
        "out_large": 11,
        "malformed-orders.malformed": 11,
    }
    # What a sink reads is not what goes to it.
    assert {sink.name: sink.written for sink in done.sinks} == {
        "large": 5,
        "out_large": 5,
        "malformed-orders.malformed": 1,
    }
    found = stored(tmp_path, "large")
    assert sorted(json.loads(m.value)["name"] for m in found) == [f"number {n}" for n in range(5, 10)]
    assert sorted(m.key for m in found) == [b"%d" % n for n in range(5, 10)]
    assert table(spark, tmp_path) == [5, 6, 7, 8, 9]
    assert [m.value for m in stored(tmp_path, "orders.malformed")] == [b"no order"]

    put(tmp_path, range(10, 12))
    again = run(file, spark=spark).sinks
    assert [(sink.read, sink.written) for sink in again] == [(2, 2), (2, 2), (2, 0)]
    assert table(spark, tmp_path) == list(range(5, 12))
    assert len(stored(tmp_path, "large")) == 7
    assert [sink.read for sink in run(file, spark=spark).sinks] == [0, 0, 0]


TWO_SOURCES = """\
[pipeline]
name = "both"
data = "data"

[[source]]
name = "orders"
topics = ["orders"]
format = "json"
schema = "id bigint"
malformed = "malformed"
messages_per_trigger_max = 4

[[source]]
name = "events"
topics = ["events"]
format = "json"
schema = "id bigint"
malformed = "malformed"
messages_per_trigger_max = 4

[[sink]]
from = "orders"
topic = "a"

[[sink]]
from = "events"
topic = "b"
"""


def test_sinks_commit_to_one_directory_and_share_a_topic_for_what_is_malformed(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "both.toml").write_text(TWO_SOURCES)
    put(tmp_path, range(20), b"no order")
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("events").put_many([*(b'{"id": %d}' % n for n in range(20)), b"no event"])
    # In several batches, so that the commits of all three sinks meet.
    run(tmp_path / "both.toml", spark=spark)
    assert sorted(m.value for m in stored(tmp_path, "malformed")) == [b"no event", b"no order"]
    for topic in ("a", "b"):
        found = sorted(json.loads(m.value)["id"] for m in stored(tmp_path, topic))
        assert found == list(range(20))


def test_continuously_until_it_is_stopped(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    stop = threading.Event()

    def told(standings: Any) -> None:
        if all(standing.rows >= 10 and standing.lag == 0 for standing in standings.values()):
            stop.set()

    done = run(file, spark=spark, mode="continuous", told=told, stop=stop)
    assert done.mode == "continuous"
    assert table(spark, tmp_path) == [5, 6, 7, 8, 9]


def test_a_signal_ends_the_command(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    is_over = threading.Event()

    def end() -> None:
        written = tmp_path / "out" / "large" / "_spark_metadata" / "0"
        while not written.exists():
            if is_over.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=end)
    watcher.start()
    try:
        ran = quiver("pipeline", "run", file, "--continuous", "--json")
    finally:
        is_over.set()
        watcher.join()
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["mode"] == "continuous"
    assert table(spark, tmp_path) == [5, 6, 7, 8, 9]


def test_a_dry_run_checks_everything_and_writes_nothing(
    spark: SparkSession, file: Path, tmp_path: Path
) -> None:
    ran = quiver("pipeline", "run", file, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["tables"]["large"] == "id bigint, twice double, customer binary"
    assert told["sinks"][0]["columns"] == "key string, value string"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("amount * 2", "colour * 2", r"\[\[step\]\] 1 'large': .*colour"),
        ("id bigint, amount double", "id nonsense", r"\[\[source\]\] 1 'orders': .*NONSENSE"),
        ("steps.py:named", "steps.py:other", r"\[\[step\]\] 2 'named': python: there is no function other"),
        ("steps.py:named", "nothing.py:named", r"\[\[step\]\] 2 'named': python: there is no file"),
        ('name = "large"', 'name = "big"', r"\[\[step\]\] 2 'named': python: the parameter large names no"),
        ('key = "id"', 'key = "colour"', r"\[\[sink\]\] 1 'large': .*colour"),
        (
            "steps.py:named",
            "steps.py:wrong",
            r"\[\[step\]\] 2 'named': python: ZeroDivisionError: .*\(line",
        ),
        ("steps.py:named", "steps.py:unknown", r"\[\[step\]\] 2 'named': .*`?colour`?"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    spark: SparkSession, file: Path, old: str, new: str, reason: str
) -> None:
    file.write_text(PIPELINE.replace(old, new).replace('from = "large"', 'from = "orders"'))
    with pytest.raises((InvalidRequest, NotFound), match=reason) as caught:
        run(file, spark=spark, dry_run=True)
    assert str(file) in str(caught.value)


def test_what_fails_at_work_is_said_on_one_line(spark: SparkSession, file: Path) -> None:
    file.write_text(PIPELINE.replace("steps.py:named", "steps.py:failing"))
    ran = quiver("pipeline", "run", str(file))
    assert ran.code == InvalidRequest.exit_code
    [line] = ran.err.splitlines()
    assert line.startswith(f"error: {file}: [[sink]] 'large': KeyError: 'none' (line ")
    assert "steps.py" in line


def test_a_mistyped_column_is_one_line(
    spark: SparkSession, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = quiver("pipeline", "sql", "SELECT colour FROM orders", "--data", str(file.parent / "data"))
    assert ran.code == InvalidRequest.exit_code
    assert len(ran.err.splitlines()) == 1
    assert capfd.readouterr().err == ""


def test_the_same_pipeline_runs_in_one_place_at_a_time(
    spark: SparkSession, file: Path, tmp_path: Path
) -> None:
    with held(tmp_path / "data" / "pipelines" / "run" / "totals"), pytest.raises(DirectoryLocked):
        run(file, spark=spark)
