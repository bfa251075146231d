"""Where a job keeps what it needs to go on after it was killed."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quivermq.disk import SystemDisk, read_file, replace_file
from quivermq.errors import InvalidRequest
from quivermq.spark.jobs.where import Where

_FILE_BYTES_MAX = 64 * 1024 * 1024
_NAME_BYTES_MAX = 200
_LOCK = "LOCK"


def is_file_name(name: str) -> bool:
    """Whether it is the name of one file or directory, and leads nowhere else."""
    is_plain = name not in ("", ".", "..", _LOCK) and name.isprintable() and not {"/", "\\"} & set(name)
    return is_plain and len(name.encode(errors="replace")) <= _NAME_BYTES_MAX


def state_directory(where: Where, job: str, name: str) -> Path:
    """The directory of one job: in the data directory, or for a broker below the user's state directory.

    Raises InvalidRequest for a name that would lead elsewhere.
    """
    if not is_file_name(name):
        raise InvalidRequest(f"{name!r} is no name for a {job}: the directory of its state is called so")
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
    lock = disk.lock(directory / _LOCK)
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
