"""Streams: catching up, writing to a broker, and how old a row is when it comes."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median, quantiles
from typing import Any

from pyspark.sql import DataFrame

import quivermq
from benchmarks.broker.quiver import start_quiver
from benchmarks.measure import Prepare, Work, counted
from benchmarks.row import Goal, Row
from benchmarks.spark.machine import Contest
from benchmarks.spark.store import TOPIC, Store, filled_store
from benchmarks.workload import MESSAGE_BYTES, Bench, fresh_directory

_CATCHING_UP = Goal("at least", 1e6)
_WRITING = Goal("at least", 500e3)
_LATENCY = Goal("below", 0.25)
_PATIENCE_S = 120.0
_BATCH = {"the same as a batch": "batch"}


def spark_stream(bench: Bench) -> Iterable[Row]:
    """Every stream ends by itself, behind what was there when it began."""
    contest = Contest(bench.scale.spark_rounds)
    with filled_store(bench) as store, start_quiver(store.data, "os") as broker:
        contest.run(
            {
                "batch": counted(lambda: _batch(store), store.messages),
                "directory": _catching_up(store, {"path": str(store.data)}),
                "broker": _catching_up(store, {"server": broker.url}),
                "writing": _writing(store, broker.url),
            }
        )
        for name in ("directory", "broker"):
            yield contest.row(f"catching up from a {name}", name, _BATCH, _CATCHING_UP)
        yield contest.row("writing to a broker", "writing", {"only reading it": "directory"}, _WRITING)
        yield from _latency(bench, store, broker.url)


def _batch(store: Store) -> None:
    store.read().select("key", "value").write.format("noop").mode("overwrite").save()


def _catching_up(store: Store, place: dict[str, str]) -> Prepare:
    @contextmanager
    def prepare() -> Iterator[Work]:
        with fresh_directory(store.path) as checkpoint:
            yield partial(_drain, store, place, {"format": "noop"}, str(checkpoint))

    return prepare


def _writing(store: Store, url: str) -> Prepare:
    @contextmanager
    def prepare() -> Iterator[Work]:
        with fresh_directory(store.path) as checkpoint, quivermq.connect(url) as mq:
            mq.create_topic("out", partitions=4, durability="os")
            sink = {"format": "quiver", "server": url, "topic": "out"}
            yield partial(_drain, store, {"path": str(store.data)}, sink, str(checkpoint))
            stored = mq.stats().topics["out"].messages
            if stored != store.messages:
                raise RuntimeError(f"{stored} messages were stored, {store.messages} were read")
            mq.delete_topic("out")

    return prepare


def _drain(store: Store, place: dict[str, str], sink: dict[str, str], checkpoint: str) -> int:
    table = store.spark.readStream.format("quiver").options(**place).option("subscribe", TOPIC)
    rows = table.option("startingOffsets", "earliest").load().select("key", "value")
    options = {name: value for name, value in sink.items() if name != "format"}
    writer = rows.writeStream.format(sink["format"]).options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    read = sum(progress.numInputRows for progress in query.recentProgress)
    if read != store.messages:
        raise RuntimeError(f"the stream read {read} rows, there are {store.messages}")
    return store.messages


def _latency(bench: Bench, store: Store, url: str) -> Iterable[Row]:
    """One message at a time, put when the one before has come: from its put to the end of its batch."""
    ages: list[float] = []

    def note(rows: DataFrame, _: int) -> None:
        ages.extend(time.time() - row.at for row in rows.selectExpr("double(string(value)) at").collect())

    with quivermq.connect(url) as mq, fresh_directory(store.path) as checkpoint:
        mq.create_topic("ticks", durability="os")
        ticks = mq.queue("ticks")
        stream = store.spark.readStream.format("quiver").option("server", url).option("subscribe", "ticks")
        query = _started(stream.option("startingOffsets", "earliest").load(), note, str(checkpoint))
        try:
            for number in range(bench.scale.spark_ticks):
                ticks.put(f"{time.time():.6f}".ljust(MESSAGE_BYTES).encode())
                until = time.monotonic() + _PATIENCE_S
                while len(ages) <= number and query.isActive:
                    time.sleep(0.001)
                    if time.monotonic() > until:
                        raise RuntimeError(f"message {number} never came to the sink")
        finally:
            query.stop()
        mq.delete_topic("ticks")
    # The first ones pay for the start.
    ordered = quantiles(ages[len(ages) // 5 :], n=100)
    beside = {"an empty job of Spark": _empty_job_s(store)}
    held_up_by = "Spark's steps between two batches"
    yield Row("from put to sink, p50", "seconds", ordered[49], beside, _LATENCY, held_up_by)
    yield Row("from put to sink, p99", "seconds", ordered[98], beside, None, held_up_by)


def _empty_job_s(store: Store) -> float:
    times = []
    for _ in range(20):
        start = time.perf_counter()
        store.spark.range(1).collect()
        times.append(time.perf_counter() - start)
    return median(times)


def _started(rows: DataFrame, note: Any, checkpoint: str) -> Any:
    writer = rows.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="0 seconds").start()
