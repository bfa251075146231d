"""kill -9 of the archiver's driver and of its tasks: nothing is lost, and nothing is there twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import quivermq
from quivermq.archive import Archive, LanePlace
from quivermq.archive.reading import ArchivedTopic
from quivermq.log import follow
from quivermq.spark import archive

TESTS = Path(__file__).parents[1]

# The first manifest of a topic says that there is one, the second one counts its first files.
# In the last run the files are those of the run before, which has counted them and given them no names.
DEATHS = ["worker", "before:manifest:2", "after:manifest:2", "after:file:1"]


def add(data: Path, first: int, behind: int) -> None:
    with quivermq.open(data) as mq:
        if not mq.topics():
            mq.create_topic("orders", partitions=2)
        mq.queue("orders").put_many(
            [quivermq.Message(b"%d" % n, partition=n % 2) for n in range(first, behind)]
        )


def archiver(data: Path, when: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "support.doomed_archiver", str(data), when],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        timeout=200,
    )
    return done.returncode


def archived(data: Path) -> ArchivedTopic | None:
    store = Archive(data / "archive")
    manifest = store.manifest("orders")
    return None if manifest is None else store.topic("orders", manifest.created_us)


def check_nothing_twice(data: Path) -> None:
    """Whoever goes by the manifest has the log up to some offset; others have no more than that."""
    topic, seen = archived(data), set[bytes]()
    for partition in (0, 1):
        place = LanePlace(partition, "normal")
        found = [] if topic is None else [r.value for r in topic.records(place, 0, topic.lane(place).end)]
        log = follow(data, f"topics/orders/p{partition}/normal")
        assert found == [record.value for record in log.records(limit=len(found))]
        seen |= set(found)
    plain = [value for file in files(data) for value in pq.read_table(file)["value"].to_pylist()]
    assert len(plain) == len(set(plain))
    assert set(plain) <= seen


def files(data: Path) -> list[Path]:
    """The files that readers of plain Parquet take."""
    return [path for path in (data / "archive").rglob("*.parquet") if "_quiver" not in path.parts]


# Each death takes a Spark of its own.
@pytest.mark.timeout(900)
def test_killed_at_every_stage_and_run_again(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number, when in enumerate(DEATHS):
        add(data, number * 100, number * 100 + 100)
        status = archiver(data, when)
        # A task takes its job with it, and the driver tells of it.
        assert status == (1 if when == "worker" else -signal.SIGKILL), when
        check_nothing_twice(data)
    summary = archive(str(data), age=0, spark=spark)
    assert summary.problems == ()
    values = sorted(
        row.value for row in spark.read.parquet(str(data / "archive")).select("value").collect()
    )
    assert values == sorted(b"%d" % n for n in range(100 * len(DEATHS)))
    assert not list((data / "archive" / "_quiver" / "staging").iterdir())
    check_nothing_twice(data)
