"""Which queues can be imported from, and how a directory is opened as one of them."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, NotFound, StorageFailed
from quivermq.frame.header import MAGIC
from quivermq.importers.files import first_bytes, subdirectories
from quivermq.importers.model import ImportSource
from quivermq.importers.segment_files import segment_files
from quivermq.log.directory import LOCK_NAME

KINDS: Sequence[str] = ("ledgerq", "tinymq", "fluxmq", "goqueue")
_ENCRYPTING = "goqueue"


class KindReader(Protocol):
    """What the module of a kind offers."""

    def open_source(self, path: Path, disk: Disk) -> ImportSource:
        """The directory, opened for reading. Raises InvalidRequest when it is not of that kind."""
        ...

    def looks_like(self, path: Path, disk: Disk) -> bool:
        """Whether a directory seems to be of that kind."""
        ...


def open_source(kind: str, path: Path, disk: Disk, key: str | None = None) -> ImportSource:
    """A directory of that kind. Raises InvalidRequest, NotFound, StorageFailed, and says what to do."""
    if kind not in KINDS:
        raise InvalidRequest(f"{kind!r} is not a queue to import from: choose one of {', '.join(KINDS)}")
    if key is not None and kind != _ENCRYPTING:
        raise InvalidRequest(f"only a GoQueue may be encrypted: a {kind} queue has no key")
    if not disk.is_directory(path) and disk.exists(path):
        raise InvalidRequest(f"{path} is a file: give the directory that it is in")
    if not disk.is_directory(path):
        raise NotFound(f"there is no directory {path} to import from")
    if not disk.names(path):
        raise InvalidRequest(f"{path} is empty: there is nothing to import")
    _refuse_own(path, disk)
    others = [] if _looks_like(kind, path, disk) else detect(path, disk)
    try:
        source = _opened(kind, path, disk, key)
        if not others:
            return source
        source.close()
        raise InvalidRequest(f"{path} is no {kind} directory")
    except InvalidRequest as error:
        if others:
            raise InvalidRequest(f"{error}. This looks like a {' or '.join(others)} directory") from None
        if below := [each.name for each in subdirectories(disk, path) if _looks_like(kind, each, disk)]:
            raise InvalidRequest(f"{error}. What is in {below[0]}/ looks like one: give that") from None
        raise


def _opened(kind: str, path: Path, disk: Disk, key: str | None) -> ImportSource:
    if key is None:
        return _reader(kind).open_source(path, disk)
    from quivermq.importers.goqueue import open_encrypted

    return open_encrypted(path, disk, key)


def _refuse_own(path: Path, disk: Disk) -> None:
    """Raise InvalidRequest for a directory of ours, whose files are named as those of some others are."""
    is_own = disk.exists(path / LOCK_NAME) and disk.is_directory(path / "topics")
    if is_own or any(
        first_bytes(disk, segment.path, len(MAGIC)) == MAGIC
        for segment in segment_files(disk, path, ".log")
    ):
        raise InvalidRequest(
            f"{path} is a directory of Quiver itself: open it as it is, or copy it while nobody uses it"
        )


def detect(path: Path, disk: Disk) -> list[str]:
    """The kinds that a directory may be of."""
    return [kind for kind in KINDS if _looks_like(kind, path, disk)]


def _looks_like(kind: str, path: Path, disk: Disk) -> bool:
    try:
        return _reader(kind).looks_like(path, disk)
    except StorageFailed:
        return False


def _reader(kind: str) -> KindReader:
    # Loaded when it is needed: nobody needs more than one.
    return cast(KindReader, import_module(f"quivermq.importers.{kind}"))
