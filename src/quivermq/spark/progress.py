"""How far a job is: told to whoever started it, and asked of Spark while it works."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from quivermq.spark.spread import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE_SECONDS = 0.5


class Progress(Protocol):
    """Called from time to time while a job works, from any thread.

    `done` of `total` is done of what `description` says; a total that nobody knows yet is None. Each
    description is something of its own, with a count of its own.
    """

    def __call__(self, description: str, done: float, total: float | None = None) -> None: ...


def no_progress(description: str, done: float, total: float | None = None) -> None:
    """Tells nobody."""


@contextmanager
def watched(spark: "SparkSession", progress: Progress | None, description: str) -> Iterator[None]:
    """Tell how many tasks of the Spark jobs that this thread runs inside of the block are done."""
    if progress is None:
        yield
        return
    watching = _watched_here if is_classic(spark) else _watched_from_afar
    with watching(spark, progress, description):
        yield


@contextmanager
def _watched_from_afar(spark: Any, progress: Progress, description: str) -> Iterator[None]:
    """The same over Spark Connect, whose server tells it by itself."""
    thread = threading.get_ident()

    def tell(stages: Any, **_: Any) -> None:
        # Whoever waits for a job is told of it, so that of another thread is told there.
        total = sum(stage.num_tasks for stage in stages or ())
        if total and threading.get_ident() == thread:
            progress(description, sum(stage.num_completed_tasks for stage in stages), total)

    spark.registerProgressHandler(tell)
    try:
        yield
    finally:
        spark.removeProgressHandler(tell)


@contextmanager
def _watched_here(spark: "SparkSession", progress: Progress, description: str) -> Iterator[None]:
    context = spark.sparkContext
    group = f"quiver-{uuid.uuid4()}"
    context.setJobGroup(group, description)
    is_over = threading.Event()
    watcher = threading.Thread(
        target=_watch,
        args=(spark, group, progress, description, is_over),
        name="quiver-progress",
        daemon=True,
    )
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        # The jobs that come after are not of this group; a null cannot be given through the public call.
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def _watch(
    spark: "SparkSession", group: str, progress: Progress, description: str, is_over: threading.Event
) -> None:
    is_last = False
    while not is_last:
        # Once more at the end, so that a job that was too quick for it is told of as well.
        is_last = is_over.wait(_PAUSE_SECONDS)
        done, total = tasks_of(spark, group)
        if total:
            progress(description, done, total)


def tasks_of(spark: "SparkSession", group: str) -> tuple[int, int]:
    """How many tasks the jobs of a group have done, and how many they have, as far as is known."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    for stage in {number for job in jobs for number in job.stageIds}:
        if (info := tracker.getStageInfo(stage)) is not None:
            done, total = done + info.numCompletedTasks, total + info.numTasks
    return done, total
