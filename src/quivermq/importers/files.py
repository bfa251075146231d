"""Small files of a source, and what lies in its directories."""

import json
from pathlib import Path
from typing import Any

from quivermq.disk import Disk, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.model import Findings

# State is small; what is larger was not written by the queue that it seems to be of.
_STATE_BYTES_MAX = 256 * 1024 * 1024


def json_object(disk: Disk, path: Path, findings: Findings, lost: str) -> dict[str, Any] | None:
    """The JSON object that a file holds; None when there is no file, or when it is damaged, which is told.

    `lost` says what nobody knows then, as in `retry counts are`.
    """
    try:
        data = read_file(disk, path, bytes_max=_STATE_BYTES_MAX)
        told = parse_json(data)
    except FileNotFoundError:
        return None
    except (StorageFailed, ValueError) as error:
        findings.add(path, getattr(error, "pos", None), f"it cannot be read, so {lost} not known: {error}")
        return None
    if not isinstance(told, dict):
        findings.add(path, 0, f"it is not a JSON object, so {lost} not known")
        return None
    return told


def parse_json(data: bytes) -> Any:
    """What JSON in UTF-8 means. Raises ValueError, whatever is wrong with it."""
    try:
        return _decode(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Made once: there are many lines.
_decode = json.JSONDecoder(parse_constant=_refuse).decode


def names_in(disk: Disk, path: Path, findings: Findings | None = None) -> list[str]:
    """The names in a directory; none where it cannot be looked into, which is told."""
    try:
        return disk.names(path)
    except StorageFailed as error:
        if findings is not None:
            findings.add(path, None, f"what is in it cannot be imported: {error}")
        return []


def subdirectories(disk: Disk, path: Path, findings: Findings | None = None) -> list[Path]:
    """The directories inside of one; a link to one counts, as operators move them to other disks."""
    names = names_in(disk, path, findings)
    return [path / name for name in names if is_directory(disk, path / name)]


def is_directory(disk: Disk, path: Path) -> bool:
    """Whether there is a directory; where nobody can tell, whoever lists the one above is told."""
    try:
        return disk.is_directory(path)
    except StorageFailed:
        return False


def first_bytes(disk: Disk, path: Path, length: int) -> bytes:
    """What a file begins with; nothing where it cannot be read."""
    try:
        file = disk.open(path)
    except (FileNotFoundError, StorageFailed):
        return b""
    try:
        return file.read(0, length)
    except StorageFailed:
        return b""
    finally:
        file.close()


def file_bytes(disk: Disk, path: Path) -> int:
    """How large a file is; 0 where it cannot be read."""
    try:
        file = disk.open(path)
    except (FileNotFoundError, StorageFailed):
        return 0
    try:
        return file.size()
    finally:
        file.close()
