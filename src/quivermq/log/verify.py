"""Checking every byte of a log without changing one. May run beside a writer."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from quivermq.disk import Disk, SystemDisk
from quivermq.errors import StorageFailed
from quivermq.log.directory import check_exists, find_logs
from quivermq.log.opening import base_offsets, file_size
from quivermq.log.survey import Progress, Survey, segments_of, survey
from quivermq.segment import Damage, Index, Segment, index_path, log_path
from quivermq.settings import StorageSettings

# A segment that is replaced faster than it can be looked at does not exist.
_LOOKS_MAX = 3

Kind = Literal["damage", "tail", "index", "gap"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a file that is not as it should be.

    damage  bytes that are not the frames they should be: the only kind that means loss
    tail    a torn write, or one that is under way: cut off when the log is next opened for writing
    index   an index that does not fit its log: made anew when it is next needed
    gap     damage of the past, which a repair has set aside
    """

    kind: Kind
    path: Path
    position: int
    end: int
    offsets: tuple[int, int | None]
    reason: str


@dataclass(slots=True)
class Report:
    """What a verification saw."""

    logs: int = 0
    segments: int = 0
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether every byte that should hold a message does."""
        return all(finding.kind != "damage" for finding in self.findings)


def verify(
    path: str | os.PathLike[str],
    settings: StorageSettings | None = None,
    *,
    disk: Disk | None = None,
    progress: Progress = lambda _: None,
) -> Report:
    """Check every log at or below `path`. `progress` is called with the bytes of each step."""
    path, settings, disk = Path(path), settings or StorageSettings(), disk or SystemDisk()
    check_exists(disk, path)
    report = Report()
    for directory in find_logs(disk, path):
        report.logs += 1
        for offsets, opened in segments_of(disk, directory, settings):
            try:
                _add(report, _seen(opened, progress))
            except FileNotFoundError:
                continue  # Retention was faster.
            except StorageFailed as error:
                path = log_path(directory, offsets[0])
                report.findings.append(Finding("damage", path, 0, 0, offsets, str(error)))
    return report


def _seen(opened: Callable[[], tuple[Segment, Index | None]], progress: Progress) -> Survey:
    """What is in a segment. One that seems damaged is looked at again: compaction may just replace it."""
    seen = survey(*opened(), progress)
    for _ in range(_LOOKS_MAX):
        if seen.segment.is_active or not (seen.damages or seen.index_fault):
            break
        before, seen = seen, survey(*opened(), lambda _: None)
        if (before.segment.end, before.damages) == (seen.segment.end, seen.damages):
            break
    return seen


def total_bytes(path: str | os.PathLike[str], disk: Disk | None = None) -> int:
    """How many bytes there are to look at, for a progress bar."""
    path, disk = Path(path), disk or SystemDisk()
    return sum(
        _size(disk, log_path(directory, base))
        for directory in find_logs(disk, path)
        for base in base_offsets(disk, directory)
    )


def _size(disk: Disk, path: Path) -> int:
    try:
        return file_size(disk, path)
    except (FileNotFoundError, StorageFailed):
        return 0  # Retention was faster, or `verify` will tell.


def _add(report: Report, seen: Survey) -> None:
    segment = seen.segment
    report.segments += 1
    report.frames += seen.frames
    report.messages += seen.messages
    report.bytes += segment.end

    def note(kind: Kind, path: Path, damage: Damage) -> None:
        finding = Finding(kind, path, damage.position, damage.end, damage.offsets, damage.reason)
        report.findings.append(finding)

    for gap in seen.gaps:
        note("gap", segment.path, gap)
    for damage in seen.damages:
        note("damage", segment.path, damage)
    if seen.tail is not None:
        note("tail", segment.path, seen.tail)
    if seen.index_fault is not None:
        offsets = (segment.base_offset, seen.end_offset)
        path = index_path(segment.directory, segment.base_offset)
        note("index", path, Damage(0, segment.end, offsets, seen.index_fault))
