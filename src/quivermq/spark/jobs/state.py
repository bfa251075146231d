"""Where a job keeps what it needs to go on after it was killed."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quivermq.disk import SystemDisk, read_file, replace_file
from quivermq.spark.jobs.where import Where

_FILE_BYTES_MAX = 64 * 1024 * 1024


def state_directory(where: Where, job: str, name: str) -> Path:
    """The directory of one job: in the data directory, or for a broker below the user's state directory."""
    if where.path is not None:
        return Path(where.path).absolute() / "pipelines" / job / name
    given = os.environ.get("XDG_STATE_HOME")
    home = Path(given) if given else Path.home() / ".local" / "state"
    return home / "quiver" / "pipelines" / fingerprint(where.server) / job / name


def fingerprint(value: object) -> str:
    """A short name for what a job was asked to do: the same question has the same name."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Work in a directory that nobody else works in. Raises DirectoryLocked."""
    disk = SystemDisk()
    disk.make_directory(directory)
    lock = disk.lock(directory / "LOCK")
    try:
        yield
    finally:
        lock.release()


def remember(file: Path, document: Mapping[str, Any]) -> None:
    """Write a document down, durably and all at once."""
    disk = SystemDisk()
    disk.make_directory(file.parent)
    replace_file(disk, file, json.dumps(document, indent=2).encode())


def remembered(file: Path) -> dict[str, Any] | None:
    """A document that was written down; None when there is none."""
    try:
        document: dict[str, Any] = json.loads(read_file(SystemDisk(), file, bytes_max=_FILE_BYTES_MAX))
    except FileNotFoundError:
        return None
    return document
