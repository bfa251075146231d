"""What the Python of Spark's workers needs: this package, which can be sent, and what cannot.

A worker on this machine runs this very interpreter. Any other one runs whatever Python it is told to, gets
the package as an archive, and must have the dependencies, some of which are compiled.
"""

import hashlib
import io
import os
import socket
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import quivermq
from quivermq.disk import SystemDisk, read_file
from quivermq.errors import NotFound
from quivermq.spark.launcher import cached_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_VARIABLE = "PYSPARK_PYTHON"
PATH_VARIABLE = "PYTHONPATH"

# What `import quivermq.spark` and reading need beside Python and Spark.
NEEDED = ("crc32c", "cramjam", "pyarrow", "numpy")
_LOOK = (
    "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n) is None), sep=', ')"
)
_TRIAL_SECONDS = 60
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
    command = [program, "-c", _LOOK, *NEEDED]
    try:
        told = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotFound(f"Spark's workers are to run {program}, which does not start: {error}") from None
    if told.returncode:
        reason = told.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NotFound(f"Spark's workers are to run {program}, which does not work: {reason}")
    if missing := told.stdout.decode().strip():
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
    return cached_file(f"quivermq-{hashlib.sha256(content).hexdigest()[:16]}.zip", content)


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
