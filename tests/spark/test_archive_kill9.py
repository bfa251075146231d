"""kill -9 of the archiver's driver and of its tasks: nothing is lost, and nothing is there twice."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.spark_deaths import Death
from support.spark_lives import Lives, Work

import quivermq
from quivermq.archive import Archive
from quivermq.archive.reading import ArchivedTopic
from quivermq.log import follow
from quivermq.model.lanes import Lane
from quivermq.spark import archive

pytestmark = pytest.mark.fault("interrupted", "engine")

MANIFEST, TABLE = "*/_quiver/orders.json", "*/topic=orders/*.parquet"


def add(data: Path, numbers: range) -> None:
    with quivermq.open(data) as mq:
        if not mq.topics():
            mq.create_topic("orders", partitions=2)
        mq.queue("orders").put_many([quivermq.Message(b"%d" % n, partition=n % 2) for n in numbers])


def add_small_files(data: Path, numbers: range, spark: SparkSession) -> None:
    """So many for each lane that they are worth to become one."""
    for first in range(numbers.start, numbers.stop, len(numbers) // 10):
        add(data, range(first, first + len(numbers) // 10))
    summary = archive(data, age=0, file_bytes=200, rewrite=False, spark=spark)
    assert summary.topics[0].files > 16


def archived(data: Path) -> ArchivedTopic | None:
    store = Archive(data / "archive")
    manifest = store.manifest("orders")
    return None if manifest is None else store.topic("orders", manifest.created_us)


def check_nothing_twice(data: Path) -> int:
    """Whoever goes by the manifest has the log up to some offset; others have no more than that.

    Returns how many messages the manifest has.
    """
    topic, seen = archived(data), Counter[bytes]()
    for partition in (0, 1):
        place = Lane("orders", partition, "normal")
        found = [] if topic is None else [r.value for r in topic.records(place, 0, topic.lane(place).end)]
        log = follow(data, f"topics/orders/p{partition}/normal")
        assert found == [record.value for record in log.records(limit=len(found))]
        seen += Counter(found)
    plain = Counter(value for file in files(data) for value in pq.read_table(file)["value"].to_pylist())
    assert max(plain.values(), default=1) == 1
    assert plain <= seen
    return seen.total()


def files(data: Path) -> list[Path]:
    """What readers of plain Parquet take, some of which take every file that is there."""
    return [path for path in (data / "archive" / "messages").rglob("*") if path.is_file()]


def test_killed_at_every_stage_and_run_again(
    lives: Lives, spark: SparkSession, connect_server: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    work: Work = ("archive", {"path": str(data), "age": 0})
    add(data, range(100))
    # Who dies at a manifest is the driver; its tasks are done by then, so a client of a server will do.
    # The first manifest of a topic says that there is one, the second one counts its first files.
    lives.die(work, at=Death("rename", "before", MANIFEST, 2), server=connect_server)
    assert check_nothing_twice(data) == 0
    lives.die(work, at=Death("rename", "after", MANIFEST, 2), server=connect_server)
    assert check_nothing_twice(data) == 100
    # The files are those of the run before, which has counted them and given them no names.
    lives.die(work, at=Death("rename", "after", TABLE), is_spark_needed=False)
    assert check_nothing_twice(data) == 100
    assert len(files(data)) == 1

    add_small_files(data, range(100, 400), spark)
    before = set(files(data))
    # Nothing is new, so the first manifest of a run is that of the large files.
    lives.die(work, at=Death("rename", "before", MANIFEST), server=connect_server)
    assert check_nothing_twice(data) == 400
    assert set(files(data)) == before
    lives.die(work, at=Death("rename", "after", MANIFEST), server=connect_server)
    assert check_nothing_twice(data) == 400
    assert set(files(data)) == before
    lives.die(work, at=Death("remove", "after", TABLE), is_spark_needed=False)
    assert check_nothing_twice(data) == 400
    assert len(before - set(files(data))) == 1

    add_small_files(data, range(400, 700), spark)
    assert len(files(data)) < len(before) + 20
    add(data, range(700, 800))
    # Now only tasks die, each when its file is whole or half of it is, and are run again.
    staged = Death("sync_directory", "after", "*/_quiver/staging/*", victim="worker")
    lives.live(work, deaths=[staged, Death("open", "after", TABLE, 5, victim="worker")])
    assert check_nothing_twice(data) == 800
    assert len(files(data)) < 10
    values = [
        row.value
        for row in spark.read.parquet(str(data / "archive" / "messages")).select("value").collect()
    ]
    assert sorted(values) == sorted(b"%d" % n for n in range(800))
    assert not list((data / "archive" / "_quiver" / "staging").iterdir())
