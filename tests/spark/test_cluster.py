"""A cluster of two workers, whose executors are killed while they read, write and archive."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.bare_python import bare_python
from support.broker import serving
from support.spark_classes import quick_start
from support.spark_cluster import Cluster, cluster
from support.spark_deaths import Death
from support.spark_doors import Doors
from support.spark_lives import Lives, Work

import quivermq

PARTITIONS, ROWS = 4, 2000
VALUES = [b"%d" % (row // 2) for row in range(ROWS)]
TABLE = "*/topic=out/*.parquet"


def stored(mq: Any) -> Counter[bytes]:
    return Counter(m.value for p in range(PARTITIONS) for m in mq.queue("out").read(p, limit=ROWS * 2))


def copy(server: str, checkpoint: Path, /, **sink: str) -> Work:
    source = {"server": server, "subscribe": "in", "startingOffsets": "earliest"}
    sink = {"topic": "out", "batchMessages": "50", **sink}
    return "write_stream", {"source": source, "sink": sink, "checkpoint": str(checkpoint)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as running:
        yield running


def test_executors_die_and_nothing_is_lost_or_comes_twice(running: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "copy"
    with quivermq.open(data) as mq:
        mq.create_topic("out", partitions=PARTITIONS)
    small: Work = ("archive", {"path": str(data), "age": 0, "file_bytes": 500})
    large: Work = ("archive", {"path": str(data), "age": 0})
    with (
        serving(tmp_path / "data") as broker,
        Doors(broker.engine, lambda: os.kill(running.executors()[0], signal.SIGKILL)) as doors,
        Lives(tmp_path / "lives", master=running.master) as lives,
    ):
        mq = broker.engine
        mq.create_topic("in", partitions=PARTITIONS)
        mq.create_topic("out", partitions=PARTITIONS)
        mq.queue("in").put_many([quivermq.Message(value, key=value) for value in VALUES])
        # The frame is stored, and whoever sent it will perhaps never know.
        door = doors.open("POST /v1/topics/out/messages", "after", 1)
        lives.live(
            copy(broker.url, tmp_path / "first", server=door.url),
            copy(broker.url, tmp_path / "second", path=str(data)),
            small,
            large,
            deaths=[
                Death("sync_directory", "after", "*/spark/*/0", victim="executor"),
                Death("open", "after", TABLE, 5, victim="executor"),
            ],
        )
        assert door.is_reached
        assert stored(mq) == Counter(VALUES)
    with quivermq.open(data) as copied:
        assert stored(copied) == Counter(VALUES)
    files = [path for path in (data / "archive" / "messages").rglob("*") if path.is_file()]
    assert len(files) == PARTITIONS
    assert Counter(v for path in files for v in pq.read_table(path)["value"].to_pylist()) == Counter(VALUES)


_ON_A_STRANGE_PYTHON = """
import sys
from quivermq.spark import session
master, data, java = sys.argv[1:]
spark = session(master, **{f"spark.{each}.extraJavaOptions": java for each in ("driver", "executor")})
where = {"path": data, "subscribe": "in"}
copied = spark.readStream.format("quiver").options(**where, startingOffsets="earliest").load()
sink = copied.writeStream.format("quiver").options(path=data, topic="out", checkpointLocation=data + "-at")
sink.trigger(availableNow=True).start().awaitTermination()
print(spark.read.format("quiver").options(**where).load().count())
"""


def test_workers_that_lack_the_package_are_sent_it(running: Cluster, tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("in").put_many(VALUES)
    env = {**os.environ, "PYSPARK_PYTHON": bare_python(tmp_path / "python")}
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_STRANGE_PYTHON, running.master, str(tmp_path / "data"), quick_start()],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ROWS)]
    with quivermq.open(tmp_path / "data") as mq:
        assert Counter(m.value for m in mq.queue("out").read(limit=ROWS * 2)) == Counter(VALUES)
