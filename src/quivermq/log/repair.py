"""Mending a log: damaged bytes go to quarantine, their offsets stay, nothing is thrown away.

A damaged segment is replaced in one step by a copy in which a gap frame stands where the damage was.
A crash at any moment leaves the old segment or the new one, and repairing again goes on from there.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk, File, SystemDisk, remove_tree
from quivermq.log.directory import CATALOG_NAME, LOCK_NAME, check_exists, find_logs, locked
from quivermq.log.opening import gap_frames, tidy
from quivermq.log.rewriting import copying, remove_index, use_copy
from quivermq.log.verify import Advance, SegmentCheck, check_segment, segments_of
from quivermq.segment import Damage, Segment, copy_range, inspect_tail, recover, set_aside
from quivermq.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class Mended:
    """A damaged range of a file, and where its bytes are now; None where there were none."""

    path: Path
    position: int
    end: int
    offsets: tuple[int, int | None]
    reason: str
    side_file: Path | None


@dataclass(slots=True)
class Repair:
    """What a repair did."""

    logs: int = 0
    segments: int = 0
    indexes_rebuilt: int = 0
    mended: list[Mended] = field(default_factory=list)


def repair(
    path: str | os.PathLike[str],
    settings: StorageSettings | None = None,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    progress: Advance = lambda _: None,
) -> Repair:
    """Mend every log below the data directory `path`. Raises DirectoryLocked while it is in use."""
    path, settings, disk = Path(path), settings or StorageSettings(), disk or SystemDisk()
    check_exists(disk, path)
    now_us = (clock or SystemClock()).now_us()
    done = Repair()
    with locked(disk, path):
        for directory in find_logs(disk, path):
            done.logs += 1
            tidy(disk, directory)
            for _, opened in segments_of(disk, directory, settings):
                done.segments += 1
                _mend(done, check_segment(*opened(), progress), now_us)
        if done.indexes_rebuilt:
            _forget_catalog(disk, path)
    return done


def _forget_catalog(disk: Disk, path: Path) -> None:
    """Let the queue look at its topics anew: what it knew of them came from the logs before."""
    for directory in (path, *path.parents):
        if disk.exists(directory / LOCK_NAME):
            remove_tree(disk, directory / CATALOG_NAME)


def _mend(done: Repair, seen: SegmentCheck, now_us: int) -> None:
    segment = seen.segment
    disk, directory, settings = segment.disk, segment.directory, segment.settings
    ranges = [*seen.damages, *([] if seen.tail is None else [seen.tail])]
    if ranges:
        _replace(done, segment, ranges, now_us)
    if ranges or seen.index_fault is not None:
        remove_index(segment)
        is_last = segment.is_active
        tail = inspect_tail(disk, directory, segment.base_offset, settings, is_last=is_last)
        recover(disk, directory, tail, is_last=is_last)
        done.indexes_rebuilt += 1


def _replace(done: Repair, segment: Segment, ranges: list[Damage], now_us: int) -> None:
    with copying(segment) as (source, copy):
        position = 0
        for damage in ranges:
            copy_range(source, copy, position, damage.position)
            done.mended.append(_set_aside(segment.disk, source, copy, damage, now_us))
            position = damage.end
        copy_range(source, copy, position, segment.end)
    # Without the old index, the new file is judged by itself.
    use_copy(segment)


def _set_aside(disk: Disk, source: File, copy: File, damage: Damage, now_us: int) -> Mended:
    """Put a damaged range away, and a gap frame into the copy where messages were lost."""
    side_file = None
    if damage.end > damage.position:
        side_file = set_aside(disk, source, damage.position, damage.end)
    start, end = damage.offsets
    if end is not None and end > start:
        for gap in gap_frames((start, end), side_file, damage.reason, now_us):
            copy.append(gap.buffers())
    return Mended(source.path, damage.position, damage.end, damage.offsets, damage.reason, side_file)
