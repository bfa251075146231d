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
from benchmarks.messages import dressed, frame_bytes
from benchmarks.shape import MESSAGE_BYTES, TIME_US, Shape
from benchmarks.workload import Bench, fresh_directory

TOPIC = "events"
PARTITIONS = 4
BATCH = 1000
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


def fill(path: Path, messages: int, shape: Shape) -> None:
    """Random messages, none like another: a Parquet file must not make a dictionary of a few."""
    with quivermq.open(path) as mq:
        mq.create_topic(TOPIC, partitions=PARTITIONS, durability="os")
        queue = mq.queue(TOPIC)
        for number in range(messages // BATCH):
            noise = os.urandom(MESSAGE_BYTES * BATCH)
            values = [noise[at : at + MESSAGE_BYTES] for at in range(0, len(noise), MESSAGE_BYTES)]
            time_us = TIME_US + number * _STEP_US
            frame = frame_bytes(dressed(values, shape, time_us), time_us)
            queue.put_frame(frame, partition=number % PARTITIONS)


@contextmanager
def filled_stores(bench: Bench) -> Iterator[dict[Shape, Store]]:
    """A store of as many messages as the scale says for either shape; they go away again."""
    spark = quivermq.spark.session("local[2]", app="benchmarks")
    with fresh_directory(bench.place) as path:
        stores: dict[Shape, Store] = {}
        for shape in bench.shapes:
            fill(path / shape / "data", bench.scale.spark_messages, shape)
            stores[shape] = Store(path / shape, bench.scale.spark_messages, spark)
        yield stores
