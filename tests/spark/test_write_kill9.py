"""A driver that is killed with -9 between any two steps of a streaming write, and started again."""

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from support.broker import serving
from support.spark_deaths import Death
from support.spark_doors import Doors
from support.spark_lives import Lives, Work
from support.spark_program import write_stream

import quivermq

ROWS = 120

BEGIN = r"POST /v1/topics/out/producers/\d+"
PUT = "POST /v1/topics/out/messages"


def stream(directory: Path, sink: dict[str, str], **given: Any) -> Work:
    """Batches of two files, which are two tasks, each with some frames."""
    return "write_stream", {
        "source": {"input": str(directory / "in"), "files": "2"},
        "sink": {"topic": "out", "batchMessages": "20", **sink},
        "checkpoint": str(directory / "checkpoint"),
        **given,
    }


def add_batch(directory: Path, number: int) -> Counter[bytes]:
    """Two more files for the stream. Returns what is in them."""
    (directory / "in").mkdir(exist_ok=True)
    lines = [[f"{number} {name} {row // 2}" for row in range(ROWS)] for name in range(2)]
    for name, of_file in enumerate(lines):
        (directory / "in" / f"{number}-{name}.txt").write_text("\n".join(of_file))
    return Counter(line.encode() for of_file in lines for line in of_file)


def stored(mq: quivermq.Connection) -> Counter[bytes]:
    partitions = range(mq.topic("out").partitions)
    return Counter(m.value for p in partitions for m in mq.queue("out").read(p, limit=100_000))


def test_a_driver_that_writes_to_a_broker(lives: Lives, tmp_path: Path, is_campaign: bool) -> None:
    everything = add_batch(tmp_path, 0)
    with serving(tmp_path / "data") as broker, Doors(broker.engine, lives.kill) as doors:
        broker.engine.create_topic("out", partitions=2)
        # A frame is stored, and whoever sent it will perhaps never know.
        deaths = [(PUT, "after", 1)]
        deaths += [(BEGIN, "after", 1), (PUT, "before", 3)] if is_campaign else []
        for number, death in enumerate(deaths, 1):
            door = doors.open(*death)
            lives.die(stream(tmp_path, {"server": door.url}), at=door)
            # Whoever is left of this life may write all that it had to: for the next one there is more.
            everything += add_batch(tmp_path, number)
        # A task that fails in the middle is run again, and has its rows in another order then.
        failed = tmp_path / "failed"
        lives.live(stream(tmp_path, {"server": broker.url}, fails_once=str(failed)))
        assert failed.exists()
        assert stored(broker.engine) == everything


def test_a_driver_that_writes_to_a_directory(
    lives: Lives, spark: SparkSession, tmp_path: Path, is_campaign: bool
) -> None:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        mq.create_topic("out", partitions=2)
    work, everything = stream(tmp_path, {"path": str(path)}), add_batch(tmp_path, 0)
    # The rows of a task are staged, and nobody knows of them.
    staged = Death("sync_directory", "after", "*/spark/*/0")
    if is_campaign:
        lives.die(work, at=staged)
    # The same happens to a worker alone, and its task is run again. Then the batch is committed, and
    # nothing of it is in its topic.
    lives.die(work, before=[staged._replace(victim="worker")], at=Death("rename", "after", "*/0.json"))
    lives.die(work, at=Death("append", "after", "*/out/p1/normal/*.log"))
    if is_campaign:
        # Everything is done, and Spark does not know.
        lives.die(work, at=Death("rename", "after", "*/applied"))
    everything += add_batch(tmp_path, 1)
    lives.wait_for_orphans()
    write_stream(spark, **work[1])
    with quivermq.open(path) as mq:
        assert stored(mq) == everything
    [query] = (path / "spark").iterdir()
    assert [file.name for file in query.iterdir()] == ["applied"]
