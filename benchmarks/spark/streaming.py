"""Streams: catching up, writing to a broker, and how old a row is when it comes."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import itemgetter
from statistics import median, quantiles
from typing import Any

from pyspark.sql import DataFrame

import quivermq
from benchmarks.broker.quiver import start_quiver
from benchmarks.measure import Prepare, Work, counted
from benchmarks.messages import call_each, dressed
from benchmarks.race import Race, Subject, itself, once
from benchmarks.row import Figure, Goal
from benchmarks.shape import MESSAGE_BYTES, Shape
from benchmarks.spark.machine import on_machine
from benchmarks.spark.store import TOPIC, Store, filled_stores
from benchmarks.workload import Bench, fresh_directory

_CATCHING_UP = Goal("at least", 1e6)
_WRITING = Goal("at least", 500e3)
_LATENCY = Goal("below", 0.25)
_PATIENCE_S = 120.0
_DIRECTORY, _BROKER, _SINK = "from a directory", "from a broker", "to a broker"
_AS_BATCH = "the same as a batch"
_TICKS = "ticks"


def spark_stream(bench: Bench) -> Iterable[Race]:
    """Every stream ends by itself, behind what was there when it began."""
    with ExitStack() as stack:
        stores = stack.enter_context(filled_stores(bench))
        urls = {
            shape: stack.enter_context(start_quiver(store.data, "os")).url
            for shape, store in stores.items()
        }
        subjects = [
            *(
                Subject(f"catching up {name}", name, _CATCHING_UP, limits=[_AS_BATCH], figure=itself)
                for name in (_DIRECTORY, _BROKER)
            ),
            Subject("writing to a broker", _SINK, _WRITING, limits=[_DIRECTORY], figure=itself),
        ]
        yield Race(partial(_contenders, stores, urls), subjects, on_machine(bench.scale.spark_rounds))
        latencies = [
            Subject("from put to sink, p50", _TICKS, _LATENCY, figure=itemgetter(49)),
            Subject("from put to sink, p99", _TICKS, figure=itemgetter(98)),
        ]
        yield Race(partial(_latencies, bench, stores, urls), latencies, once, unit="seconds")


def _contenders(
    stores: Mapping[Shape, Store], urls: Mapping[Shape, str], shape: Shape
) -> dict[str, Prepare]:
    store, url = stores[shape], urls[shape]
    return {
        _AS_BATCH: counted(lambda: _batch(store), store.messages),
        _DIRECTORY: _catching_up(store, {"path": str(store.data)}),
        _BROKER: _catching_up(store, {"server": url}),
        _SINK: _writing(store, url),
    }


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


def _latencies(
    bench: Bench, stores: Mapping[Shape, Store], urls: Mapping[Shape, str], shape: Shape
) -> dict[str, Callable[[], list[Figure]]]:
    """For each, the times in order, of a hundred."""
    store = stores[shape]
    return {
        _TICKS: partial(_ticks, bench, store, urls[shape], shape),
        "an empty job of Spark": partial(_empty_jobs, store),
    }


def _ticks(bench: Bench, store: Store, url: str, shape: Shape) -> list[Figure]:
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
                call_each(ticks.put, dressed([f"{time.time():.6f}".ljust(MESSAGE_BYTES).encode()], shape))
                until = time.monotonic() + _PATIENCE_S
                while len(ages) <= number and query.isActive:
                    time.sleep(0.001)
                    if time.monotonic() > until:
                        raise RuntimeError(f"message {number} never came to the sink")
        finally:
            query.stop()
        mq.delete_topic("ticks")
    # The first ones pay for the start.
    return _ordered(ages[len(ages) // 5 :])


def _empty_jobs(store: Store) -> list[Figure]:
    times = []
    for _ in range(20):
        start = time.perf_counter()
        store.spark.range(1).collect()
        times.append(time.perf_counter() - start)
    # The usual one is enough to compare with.
    return _ordered([median(times)] * 2)


def _ordered(times: Sequence[float]) -> list[Figure]:
    return [
        Figure(each, held_up_by="Spark's steps between two batches") for each in quantiles(times, n=100)
    ]


def _started(rows: DataFrame, note: Any, checkpoint: str) -> Any:
    writer = rows.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="0 seconds").start()
