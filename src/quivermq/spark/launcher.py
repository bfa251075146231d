"""Small programs that stand before Java and Python, kept below the user's cache directory.

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
    disk = SystemDisk()
    directory = cache_directory() / hashlib.sha256(script.encode()).hexdigest()[:16] / "bin"
    program = directory / name
    if disk.exists(program):
        return program
    unfinished = directory / f"{name}.{os.getpid()}-{threading.get_ident()}"
    try:
        disk.make_directory(directory)
        file = disk.create(unfinished, is_program=True)
        try:
            file.append([script.encode()])
            file.sync()
        finally:
            file.close()
        disk.rename(unfinished, program)
    except (StorageFailed, OSError) as error:
        raise QuiverError(
            f"{program} cannot be made: {error}; set XDG_CACHE_HOME to a directory that can be written"
        ) from error
    return program


def cache_directory() -> Path:
    """Where programs keep what they can make again."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "quiver"
