"""Small programs that stand before Java and Python, and other files, kept below the user's cache directory.

Spark starts whatever is called `java` and `python`, with arguments and an environment of its own making;
where those do not fit, a few lines of shell between the two put it right.
"""

import hashlib
import os
import threading
from pathlib import Path

from quivermq.disk import SystemDisk
from quivermq.errors import QuiverError, StorageFailed


def cached_program(name: str, script: str) -> Path:
    """A program of this name that holds this script; made unless it is there.

    Its directory is named after what it holds. So whoever finds it finds the right one, processes that make
    it at once all make the same, and one that is in use is never changed.
    """
    content = script.encode()
    return _cached(Path(_digest(content)) / "bin" / name, content, is_program=True)


def cached_file(name: str, content: bytes) -> Path:
    """The same for a file of any content."""
    return _cached(Path(_digest(content)) / name, content, is_program=False)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _cached(place: Path, content: bytes, *, is_program: bool) -> Path:
    disk = SystemDisk()
    path = cache_directory() / place
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


def cache_directory() -> Path:
    """Where programs keep what they can make again."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "quiver"
