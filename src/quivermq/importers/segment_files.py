"""Files that are named after the first offset in them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from quivermq.disk import Disk
from quivermq.errors import StorageFailed
from quivermq.importers.files import file_bytes, first_bytes, names_in
from quivermq.importers.model import Findings, witness

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
