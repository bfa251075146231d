"""Small files of a source, and what lies in its directories."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from quivermq.disk import Disk, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.model import Findings, witness

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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def rfc3339_us(text: object) -> int:
    """A moment such as `2026-11-15T19:48:28.546300169Z`; what is finer than a microsecond is cut off.

    Raises ValueError.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a moment")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return (moment - _EPOCH) // _MICROSECOND


_BASE = re.compile(r"[0-9]{1,20}")


class SegmentFile(NamedTuple):
    """A file and the offset that its name says it begins with."""

    path: Path
    base: int


def segment_files(disk: Disk, directory: Path, suffix: str) -> list[SegmentFile]:
    """The segments in a directory, in the order of their offsets."""
    return _segments(directory, names_in(disk, directory), suffix)


def told_segment_files(
    disk: Disk, directory: Path, suffix: str, beside: tuple[str, ...], findings: Findings
) -> list[SegmentFile]:
    """The same, and told what else is there, but for files with an ending of those that lie `beside`."""
    try:
        names = disk.names(directory)
    except StorageFailed as error:
        findings.add(directory, None, str(error))
        return []
    files = _segments(directory, names, suffix)
    known = {file.path.name for file in files}
    for name in names:
        if name not in known and not name.endswith(beside):
            findings.add(directory / name, None, "it is not imported", is_damage=False)
    _tell_orphans(directory, names, files, beside, findings)
    return files


def _tell_orphans(
    directory: Path,
    names: Sequence[str],
    files: Sequence[SegmentFile],
    beside: tuple[str, ...],
    findings: Findings,
) -> None:
    """Tell of segments of which only an index is left, unless they are older than all others: those were
    removed by the queue itself, which ended before it removed the index."""
    bases = {file.base for file in files}
    oldest = min(bases, default=0)
    orphans = {index.base for suffix in beside for index in _segments(directory, names, suffix)} - bases
    for base in sorted(base for base in orphans if base >= oldest):
        findings.add(directory, None, f"the segment that begins with offset {base} is missing")


def _segments(directory: Path, names: Sequence[str], suffix: str) -> list[SegmentFile]:
    files = []
    for name in names:
        digits = name.removesuffix(suffix)
        if digits != name and _BASE.fullmatch(digits):
            files.append(SegmentFile(directory / name, int(digits)))
    return sorted(files, key=lambda file: file.base)


def total_bytes(disk: Disk, files: Sequence[SegmentFile]) -> int:
    """How much there is in files; those that cannot be read count nothing."""
    return sum(file_bytes(disk, file.path) for file in files)


def witnesses_of(disk: Disk, files: Sequence[SegmentFile], header_bytes: int, *place: object) -> list[str]:
    """What each file is known again by: its place, its offset, and the header of its first record."""
    heads = [(file.base, first_bytes(disk, file.path, header_bytes)) for file in files]
    return [witness(*place, base, head) for base, head in heads if len(head) == header_bytes]
