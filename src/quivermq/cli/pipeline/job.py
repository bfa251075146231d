"""What all jobs on Spark have in common: where the queue is, the session, the progress, and the errors."""

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quivermq.cli.output import print_table
from quivermq.cli.place import KEY_VARIABLE, check_directory, find_place, with_advice
from quivermq.client import connect
from quivermq.errors import DirectoryLocked, QuiverError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quivermq.spark import Progress

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="The master of a Spark cluster, such as spark://host:7077. Or set `QUIVER_SPARK_MASTER`."
        " Otherwise the cores of this machine.",
    ),
]
# Whether an error is shown with all that Spark says of it.
debug = False

_CHECK_SECONDS = 10.0
_CHECK_RETRIES = 2

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]


@dataclass(frozen=True, slots=True)
class Job:
    """What a job is given: `where` are its first arguments, `path` or `server` and `key`."""

    where: dict[str, Any]
    spark: "SparkSession"
    progress: "Progress | None"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that every job takes."""
        return {**self.where, "spark": self.spark, "progress": self.progress}


@contextmanager
def spark_job(
    data: Path | None,
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
    where = job_place(data, server)
    if check is not None:
        check()
    if "server" in where:
        check_broker(where["server"], where["key"])

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
            _keep_to_one_line()
            spark = session(master)
            _interrupt_plainly()
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


def job_place(data: Path | None, server: str | None) -> dict[str, Any]:
    """Where the queue is, as the arguments of a job."""
    place = find_place(data, server)
    if place.data is None:
        return {"server": place.server, "key": os.environ.get(KEY_VARIABLE) or None}
    check_directory(place.data)
    # A process that is to work on it may have another current directory.
    return {"path": str(place.data.absolute())}


def check_broker(server: str, key: str | None) -> None:
    """Raise Unreachable when there is no broker, or Denied when it does not want the key."""
    with connect(server, key=key, timeout=_CHECK_SECONDS, retries=_CHECK_RETRIES) as client:
        client.topics()


def _keep_to_one_line() -> None:
    # Where nobody has asked for logs, py4j would print tracebacks of calls that Ctrl-C has cut off.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


def _interrupt_plainly() -> None:
    # Spark's own handler asks Java to end all jobs, in the midst of another question to it.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def progress_display() -> "Iterator[Progress | None]":
    """Bars on the error stream, one for each description; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(description: str, done: float, total: float | None = None) -> None:
            if description not in tasks:
                tasks[description] = bars.add_task(description, total=total)
            bars.update(tasks[description], completed=int(done), total=total)
            if total is not None and done >= total:
                bars.update(tasks[description], visible=False)

        yield show


def print_summary(facts: dict[str, object]) -> None:
    """What a job did, a line for each fact."""
    print_table(("", ""), [(name, _fact(value)) for name, value in facts.items()])


def _fact(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
