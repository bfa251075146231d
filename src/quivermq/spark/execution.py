"""Work for executors: each item of a list is a task of its own, and what comes of it comes back.

All of it is done with DataFrames, so that it is the same over Spark Connect, whose clients have no RDDs.
"""

import pickle
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from quivermq import errors
from quivermq.errors import InvalidRequest, NotFound, QuiverError
from quivermq.reading.reader import ProgressCallback
from quivermq.spark.launcher import ADVICE, NEEDED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


T = TypeVar("T")
R = TypeVar("R")

# As many rows have a part in each of any number of cores that matters.
_ROWS_TO_COUNT = 1024
_RESULTS = "number long, result binary"


def is_classic(spark: "SparkSession") -> bool:
    """Whether the session is in the process of its driver, and not a client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: "SparkSession") -> int:
    """About how many tasks run at the same time."""
    if is_classic(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    # A client is not told, but into as many parts does Spark cut what nobody says anything about.
    rows = spark.range(_ROWS_TO_COUNT).select(F.spark_partition_id().alias("part")).collect()
    return len({row.part for row in rows})


def results_of(spark: "SparkSession", items: Sequence[T], function: Callable[[T], Iterable[R]]) -> list[R]:
    """What the function gives for each item, in their order. It and all of these must be picklable.

    Raises what Spark makes of an error in an executor: `failures.translated` makes it one of ours again.
    """
    rows = spread(spark, items, partial(_pickled, function), _RESULTS)
    found = [] if rows is None else rows.collect()
    # Parts of a range come in order as it is; this says so.
    return [pickle.loads(row.result) for row in sorted(found, key=lambda row: row.number)]


def spread(
    spark: "SparkSession",
    items: Sequence[T],
    function: Callable[[int, T], "Iterator[pa.RecordBatch]"],
    schema: str,
) -> "DataFrame | None":
    """The rows that the function makes of each item and its number; None where there are no items."""
    if not items:
        return None
    numbers = spark.range(0, len(items), 1, len(items))
    return numbers.mapInArrow(partial(_worked, list(items), function), schema)


def _worked(
    items: list[Any],
    function: "Callable[[int, Any], Iterator[pa.RecordBatch]]",
    batches: "Iterable[pa.RecordBatch]",
) -> "Iterator[pa.RecordBatch]":
    """In an executor."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from function(number, items[number])


def _pickled(
    function: Callable[[Any], Iterable[Any]], number: int, item: Any
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for result in function(item):
        yield pa.record_batch({"number": [number], "result": [pickle.dumps(result)]})


_PAUSE_SECONDS = 0.5


@contextmanager
def watched(spark: "SparkSession", progress: ProgressCallback | None, description: str) -> Iterator[None]:
    """Tell how many tasks of the Spark jobs that this thread runs inside of the block are done."""
    if progress is None:
        yield
        return
    watching = _watched_here if is_classic(spark) else _watched_from_afar
    with watching(spark, progress, description):
        yield


@contextmanager
def _watched_from_afar(spark: Any, progress: ProgressCallback, description: str) -> Iterator[None]:
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
def _watched_here(spark: "SparkSession", progress: ProgressCallback, description: str) -> Iterator[None]:
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
    spark: "SparkSession",
    group: str,
    progress: ProgressCallback,
    description: str,
    is_over: threading.Event,
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


# The last line of a Python traceback. What Java adds to it is on lines of its own.
_OURS = re.compile(r"^(?:\w+\.)*quivermq\.errors\.(\w+): (.*)$", re.MULTILINE)
_IN_PYTHON = "Traceback (most recent call last)"
# A failure of SQL at work: wrong data (classes 21 and 22 of SQLSTATE), or a wrong statement (42). Others
# may stand around it; the innermost has no other in between.
_OF_SQL = re.compile(
    r"\[[A-Z][A-Z0-9_.]+\] (?:(?!\[[A-Z][A-Z0-9_]+[\].])[^\n])*?(?= SQLSTATE: (?:21|22|42)\w{3}\b)"
)
_NOT_FOUND = re.compile(r"\[DATA_SOURCE_NOT_FOUND\][^\n]*: quiver\b")
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)
_CANNOT_BE_SENT = {*NEEDED, "quivermq", "pyspark_quiver"}
# The last line of a traceback, and the line of the program before it.
_FAILED = re.compile(
    r"^(?!\s|Traceback )([\w.]*(?:Error|Exception|Warning|Interrupt|Exit)\b.*)$", re.MULTILINE
)
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_POSITION = re.compile(r"\s*(?:;|== SQL).*", re.DOTALL)


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of Spark's as errors of ours. What nobody foresaw stays what it is."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        ours = our_error(error)
        if ours is None:
            raise
        raise ours from error


def our_error(error: BaseException) -> QuiverError | None:
    """The error of this library that is meant by one of Spark's; None when it means none."""
    from pyspark.errors import AnalysisException, ParseException

    if (found := error_in(str(error))) is not None:
        return found
    if (lacking := _lacking(str(error))) is not None:
        return lacking
    # A failure inside of the data source comes as an analysis that failed, too, and is nobody's wrong SQL.
    if isinstance(error, ParseException | AnalysisException) and _IN_PYTHON not in str(error):
        return InvalidRequest(_POSITION.sub("", str(error)).strip())
    if (of_sql := _OF_SQL.search(str(error))) is not None:
        return InvalidRequest(of_sql.group())
    return None


def _lacking(text: str) -> NotFound | None:
    """The error of a Python that was started without what it needs."""
    if _NOT_FOUND.search(text):
        return NotFound(
            "Spark finds no data source quiver, because the Python that it starts for it ($PYSPARK_PYTHON,"
            f" or else python3 of PATH) has no quivermq: {ADVICE}, or let quivermq.spark.session() start it"
        )
    missing = _MISSING.search(text)
    if missing is None or missing[1] not in _CANNOT_BE_SENT:
        return None
    return NotFound(f"the Python of a worker of Spark's has no {missing[1]}: {ADVICE}")


def in_users_code(text: str) -> InvalidRequest | None:
    """What a function that was given to Spark failed with, on one line; None when it did not."""
    begin = text.find(_IN_PYTHON)
    if begin < 0:
        return None
    failed = _FAILED.search(text, begin)
    if failed is None:
        return None
    places = _PLACE.findall(text, begin, failed.start())
    where = f" (line {places[-1][1]} of {places[-1][0]})" if places else ""
    return InvalidRequest(f"{failed[1].strip()}{where}")


def one_line(error: BaseException) -> str:
    """The first line of what Spark says, without its Java."""
    text = str(error).strip() or type(error).__name__
    return text.partition("\n")[0].strip()


def error_in(text: str) -> QuiverError | None:
    """The first error of ours that a traceback tells of."""
    for name, message in _OURS.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, QuiverError):
            # Without its fields, which a traceback does not tell.
            return kind.__new__(kind, message)
    return None


def reworded(error: QuiverError, message: str) -> QuiverError:
    """The same error with another text."""
    other = type(error).__new__(type(error), message)
    other.__dict__.update(error.__dict__)
    return other
