"""A Spark session that is ready for the queue's data: on this machine, or on the cluster of a master."""

import logging
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from quivermq.errors import Conflict, NotFound
from quivermq.spark.execution import is_classic
from quivermq.spark.launcher import (
    PATH_VARIABLE,
    PYTHON_VARIABLE,
    cache_directory,
    cached,
    check_python,
    ended_when_interrupted,
    is_on_this_machine,
    package_archive,
    ship,
    use_java,
    with_archive_in_path,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER_VARIABLE = "QUIVER_SPARK_MASTER"
_PYTHON_SETTING = "spark.pyspark.python"
# How the address of a server of Spark Connect begins, and the modules that its clients import.
_CONNECT = "sc://"
_CONNECT_NEEDS = ("grpc", "grpc_status", "zstandard")
# What Spark starts where nobody says what.
_SPARKS_CHOICE = "python3"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CONNECT_FIRST = Path(__file__).with_name("connect_first.py").absolute()
_LOGGING = Path(__file__).with_name("log4j2.properties")

_PRINTED_BEFORE_RAISED = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_starting = threading.Lock()

_EVERYWHERE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise Spark writes times to Parquet in an old form that has no zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.python.unix.domain.socket.enabled": "true",
    # On a slow machine Python may take longer to answer than the fifteen seconds that Spark waits.
    "spark.python.authenticate.socketTimeout": "120s",
    # Without it every file of a checkpoint has a second one with its checksum, and takes twice as long.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # State that grows beyond the memory goes to the disk.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

_ON_THIS_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# Spark puts its own pyspark.zip before the installed package, and that holds nothing compiled: each start
# of a Python would compile it again, for seconds. The installed one is the same. A Python that has a socket
# of its own to connect to, which Spark starts for a streaming source, does that first.
_PYTHON_SCRIPT = """\
#!/bin/sh
kept=
IFS=:
for entry in $PYTHONPATH; do
    case "$entry" in
        */pyspark.zip) ;;
        *) kept="${{kept:+$kept:}}$entry" ;;
    esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
if [ -n "$PYTHON_WORKER_FACTORY_SOCK_PATH" ] && [ "$1" = -m ]; then
    exec {python} -P {connect_first} "$@"
fi
exec {python} "$@"
"""


def session(master: str | None = None, *, app: str = "quiver", **conf: str) -> "SparkSession":
    """The running Spark session, or a new one.

    `master` is the cluster, or else $QUIVER_SPARK_MASTER, or else all cores of this machine. The address of
    a server of Spark Connect, `sc://host:15002`, makes it a client of that. Further settings are Spark's
    own: `session(**{"spark.driver.memory": "4g"})`. A running session is taken as it is; raises Conflict
    when it has another master than the one asked for, NotFound when Spark or Java is missing.
    """
    check_installed()
    from pyspark.sql import SparkSession

    with _starting:
        running = SparkSession.getActiveSession() or running_session()
        if running is not None:
            _check_master(running, master)
            for name, setting in conf.items():
                running.conf.set(name, setting)
            return running
        master = master or os.environ.get(MASTER_VARIABLE) or "local[*]"
        if master.startswith(_CONNECT):
            return _client(master, conf)
        use_java()
        archive = _prepare_workers(master, conf)
        builder = SparkSession.builder.master(master).appName(app)
        builder = builder.config(map={**settings_for(master, conf)})
        with ended_when_interrupted(), _environment(archive):
            spark = builder.getOrCreate()
        if archive is not None:
            ship(spark, archive)
        _quieten()
        return spark


def _client(address: str, conf: Mapping[str, str]) -> "SparkSession":
    """A session that a server of Spark Connect has. Raises NotFound without what its client needs."""
    from pyspark.sql import SparkSession

    if missing := [name for name in _CONNECT_NEEDS if find_spec(name) is None]:
        raise NotFound(
            f"a client of Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'"
        )
    spark = SparkSession.builder.remote(address).config(map={**conf}).getOrCreate()
    _quieten()
    return spark


def _quieten() -> None:
    """Let Spark not print an error as JSON, with its traceback, before it is raised as well."""
    from pyspark.logger import PySparkLogger

    for name in _PRINTED_BEFORE_RAISED:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _prepare_workers(master: str, conf: Mapping[str, str]) -> Path | None:
    """See to it that workers run a Python that has what they need; the archive to send, if they need it.

    Raises NotFound where the Python that was chosen for them cannot do it.
    """
    given = conf.get(_PYTHON_SETTING) or os.environ.get(PYTHON_VARIABLE)
    if not given and (is_local(master) or is_on_this_machine(master)):
        # Without it Spark takes whatever PATH calls python3, which may have none of our packages.
        os.environ[PYTHON_VARIABLE] = worker_python()
        return None
    if is_local(master) or given == worker_python():
        return None
    check_python(given or _SPARKS_CHOICE)
    return package_archive()


@contextmanager
def _environment(archive: Path | None) -> Iterator[None]:
    """The archive in the path of whatever Python the driver starts, while it is started."""
    before = os.environ.get(PATH_VARIABLE)
    if archive is not None:
        os.environ.update(with_archive_in_path(archive))
    try:
        yield
    finally:
        if before is not None:
            os.environ[PATH_VARIABLE] = before
        else:
            os.environ.pop(PATH_VARIABLE, None)


def check_installed() -> None:
    """Raise NotFound unless Spark is there."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise NotFound("Spark is not installed: pip install 'quivermq[spark]'")


def running_session() -> "SparkSession | None":
    """The session of another thread, which Spark calls active only there."""
    from pyspark.sql import SparkSession

    found: SparkSession | None = SparkSession._instantiatedSession
    return found if found is not None and not found._sc._jsc.sc().isStopped() else None


def _check_master(running: "SparkSession", master: str | None) -> None:
    if master is None:
        return
    if not is_classic(running):
        if not master.startswith(_CONNECT):
            raise Conflict(
                f"a client of Spark Connect is running in this process: stop it before asking for {master}"
            )
    elif running.sparkContext.master != master:
        raise Conflict(
            f"a Spark session with the master {running.sparkContext.master} is running in this process:"
            f" stop it before asking for {master}"
        )


def is_local(master: str) -> bool:
    """Whether the master is a thread pool of the driver, and no cluster."""
    return master == "local" or master.startswith("local[")


def settings_for(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """What a new session is started with, of which `conf` is what was asked for."""
    # Otherwise the current directory gets one that nothing is ever put into.
    ours = {**_EVERYWHERE, "spark.sql.warehouse.dir": (cache_directory() / "warehouse").absolute().as_uri()}
    if is_local(master):
        ours |= _ON_THIS_MACHINE | {"spark.sql.shuffle.partitions": str(local_cores(master))}
    # What is said last counts, so that somebody may ask for other logs.
    java = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {conf.get(_JAVA_OPTIONS, '')}"
    return {**ours, **conf, _JAVA_OPTIONS: java.strip()}


def local_cores(master: str) -> int:
    """How many tasks a local master runs at once."""
    count = master.removeprefix("local").strip("[]").partition(",")[0]
    if count == "*":
        return os.cpu_count() or 1
    return int(count) if count.isdigit() else 1


def worker_python() -> str:
    """The program that Spark starts for Python code on this machine: this interpreter, as a quick start."""
    python, connect_first = shlex.quote(sys.executable), shlex.quote(str(_CONNECT_FIRST))
    script = _PYTHON_SCRIPT.format(python=python, connect_first=connect_first)
    return str(cached("python", script.encode(), is_program=True))
