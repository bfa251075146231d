"""A session that is warm, and a topic of many messages to work on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import quivermq
import quivermq.spark
from benchmarks.workload import MESSAGE_BYTES, Bench, fresh_directory
from quivermq.frame import encode

TOPIC = "events"
PARTITIONS = 4
BATCH = 1000
_TIME_US = 1_700_000_000_000_000
# What the rows of one frame are apart: ten million messages then span a day.
_STEP_US = 8_640_000


@dataclass(frozen=True)
class Store:
    """A data directory with one topic, and the session to read it with."""

    path: Path
    messages: int
    spark: SparkSession

    @property
    def data(self) -> Path:
        return self.path / "data"

    def read(self, schema: str | None = None) -> DataFrame:
        """The topic as a table; a schema of some columns is how Spark lets a source be pruned."""
        reader = self.spark.read.format("quiver").option("path", str(self.data)).option("subscribe", TOPIC)
        return (reader.schema(schema) if schema else reader).load()

    @cached_property
    def parquet(self) -> Path:
        """The same rows as Spark writes them, not compressed. Made when it is first asked for."""
        path = self.path / "parquet"
        self.read().write.option("compression", "none").parquet(str(path))
        return path


def fill(path: Path, messages: int) -> None:
    """Random messages, none like another: a Parquet file must not make a dictionary of a few."""
    with quivermq.open(path) as mq:
        mq.create_topic(TOPIC, partitions=PARTITIONS, durability="os")
        queue = mq.queue(TOPIC)
        for number in range(messages // BATCH):
            noise = os.urandom(MESSAGE_BYTES * BATCH)
            values = [noise[at : at + MESSAGE_BYTES] for at in range(0, len(noise), MESSAGE_BYTES)]
            frame = encode(values, timestamp=_TIME_US + number * _STEP_US)
            queue.put_frame(bytes(frame), partition=number % PARTITIONS)


@contextmanager
def filled_store(bench: Bench) -> Iterator[Store]:
    """A store of as many messages as the scale says; it goes away again."""
    spark = quivermq.spark.session("local[2]", app="benchmarks")
    with fresh_directory(bench.place) as path:
        fill(path / "data", bench.scale.spark_messages)
        yield Store(path, bench.scale.spark_messages, spark)
