"""What all jobs on Spark have in common: where the queue is, the session, the progress, and the errors."""

import logging
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quivermq.cli.connecting import Place, check_broker, find_location, with_advice
from quivermq.cli.output import TextTable
from quivermq.cli.progress import progress_display
from quivermq.errors import DirectoryLocked, QuiverError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quivermq.spark import ProgressCallback

# Whether an error is shown with all that Spark says of it.
debug = False


@dataclass(frozen=True, slots=True)
class Job:
    """What a job is given: `where` are its first arguments, `path` or `server` and `key`."""

    where: dict[str, Any]
    spark: "SparkSession"
    progress: "ProgressCallback | None"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that every job takes."""
        return {**self.where, "spark": self.spark, "progress": self.progress}


@contextmanager
def spark_job(
    data: Place | None,
    server: str | None,
    master: str | None,
    *,
    shows_progress: bool = True,
    check: Callable[[], None] | None = None,
) -> Iterator[Job]:
    """A session and a progress display for the time of a job; its errors come out as ours.

    A job with a display of its own wants no other, because a terminal has room for one. `check` looks at
    the other options before Spark is started, which takes long.

    Raises NotFound when Spark is not installed, and Unreachable, before anything is started.
    """
    from quivermq.spark.session import check_installed

    check_installed()
    where = find_location(data, server).arguments()
    if check is not None:
        check()
    if "server" in where:
        check_broker(**where)

    from quivermq.spark import session
    from quivermq.spark.execution import translated
    from quivermq.spark.launcher import end_running

    try:
        with (
            progress_display() if shows_progress else nullcontext() as progress,
            _on_one_line(),
            translated(),
        ):
            if progress is not None:
                progress("starting Spark", 0)
            # Where nobody has asked for logs, py4j would print tracebacks of calls that Ctrl-C has cut off.
            if not logging.getLogger().handlers:
                logging.getLogger().addHandler(logging.NullHandler())
            spark = session(master)
            # Spark's own handler asks Java to end all jobs, in the midst of another question to it.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if progress is not None:
                progress("starting Spark", 1, 1)
            yield Job(where, spark, progress)
    except KeyboardInterrupt:
        # A job may be killed at any time, and whoever pressed Ctrl-C does not want to wait for it.
        end_running()
        raise
    except DirectoryLocked as error:
        raise with_advice(error) if hasattr(error, "pid") else error from None


@contextmanager
def _on_one_line() -> Iterator[None]:
    """Tell on one line also what nobody foresaw, unless somebody wants to see all of it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from quivermq.spark.execution import one_line

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if debug:
            raise
        raise QuiverError(
            f"{one_line(error)} (quiver pipeline --debug … shows all that Spark says)"
        ) from error
    except QuiverError as error:
        if debug and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise


def summary_table(facts: dict[str, object]) -> TextTable:
    """What a job did, a line for each fact."""
    return TextTable(
        ("", ""),
        [(name, f"{value:,}" if type(value) is int else value) for name, value in facts.items()],
    )
