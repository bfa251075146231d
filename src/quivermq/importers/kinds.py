"""Which queues can be imported from, and how a directory is opened as one of them."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, NotFound, StorageFailed
from quivermq.importers.files import subdirectories
from quivermq.importers.model import Source

KINDS: Sequence[str] = ("ledgerq", "tinymq", "fluxmq", "goqueue")


class Reader(Protocol):
    """What the module of a kind offers."""

    def open_source(self, path: Path, disk: Disk) -> Source:
        """The directory, opened for reading. Raises InvalidRequest when it is not of that kind."""
        ...

    def looks_like(self, path: Path, disk: Disk) -> bool:
        """Whether a directory seems to be of that kind."""
        ...


def open_source(kind: str, path: Path, disk: Disk) -> Source:
    """A directory of that kind. Raises InvalidRequest, NotFound, StorageFailed, and says what to do."""
    if kind not in KINDS:
        raise InvalidRequest(f"{kind!r} is not a queue to import from: choose one of {', '.join(KINDS)}")
    if not disk.is_directory(path) and disk.exists(path):
        raise InvalidRequest(f"{path} is a file: give the directory that it is in")
    if not disk.is_directory(path):
        raise NotFound(f"there is no directory {path} to import from")
    if not disk.names(path):
        raise InvalidRequest(f"{path} is empty: there is nothing to import")
    try:
        return _reader(kind).open_source(path, disk)
    except InvalidRequest as error:
        if others := [each for each in detect(path, disk) if each != kind]:
            raise InvalidRequest(f"{error}. This looks like a {' or '.join(others)} directory") from None
        if below := [each.name for each in subdirectories(disk, path) if _looks_like(kind, each, disk)]:
            raise InvalidRequest(f"{error}. What is in {below[0]}/ looks like one: give that") from None
        raise


def detect(path: Path, disk: Disk) -> list[str]:
    """The kinds that a directory may be of."""
    return [kind for kind in KINDS if _looks_like(kind, path, disk)]


def _looks_like(kind: str, path: Path, disk: Disk) -> bool:
    try:
        return _reader(kind).looks_like(path, disk)
    except StorageFailed:
        return False


def _reader(kind: str) -> Reader:
    # Loaded when it is needed: nobody needs more than one.
    return cast(Reader, import_module(f"quivermq.importers.{kind}"))
