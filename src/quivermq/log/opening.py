"""From the files of a directory to the segments of a log.

A log is synced in order, so only a run of segments at its end can hold anything that was not. Those
are recovered one after the other; a hole in one means that whatever lies behind it was never durable,
and it goes to quarantine.
"""

import logging
from itertools import pairwise
from pathlib import Path

from quivermq.disk import Disk
from quivermq.segment import (
    Segment,
    Tail,
    base_offset_of,
    index_path,
    inspect_tail,
    log_path,
    recover,
    set_aside,
)
from quivermq.settings import StorageSettings

logger = logging.getLogger(__name__)


def base_offsets(disk: Disk, directory: Path) -> list[int]:
    """The base offsets of the segments in a directory, in order."""
    found = (base_offset_of(name) for name in disk.names(directory))
    return [base for base in found if base is not None]


def sealed_segments(
    disk: Disk, directory: Path, bases: list[int], settings: StorageSettings
) -> list[Segment]:
    """All but the last segment: each ends where the next one begins."""
    return [
        Segment(
            disk,
            directory,
            base,
            settings,
            end_offset=next_base,
            end=file_size(disk, log_path(directory, base)),
        )
        for base, next_base in pairwise(bases)
    ]


def file_size(disk: Disk, path: Path) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def recover_directory(
    disk: Disk, directory: Path, settings: StorageSettings
) -> tuple[list[Segment], Tail | None]:
    """Make the log in a directory whole: its segments and how the last one ends; None when empty."""
    bases = base_offsets(disk, directory)
    tidy(disk, directory, bases)
    first = _first_unsynced(disk, directory, bases, settings)
    count = _whole_run(disk, directory, bases, first, settings)
    # Before the segment with the hole is mended: a crash in between must leave the hole to be seen.
    for base in reversed(bases[count:]):
        _set_segment_aside(disk, directory, base)
    bases = bases[:count]
    tail: Tail | None = None
    for base in bases[first:]:
        tail = recover(disk, directory, base, settings, is_last=base == bases[-1])
    segments = sealed_segments(disk, directory, bases, settings)
    if tail is not None:
        last = Segment(
            disk,
            directory,
            bases[-1],
            settings,
            end_offset=tail.end_offset,
            end=tail.end,
            index=tail.index,
            timestamp_max=tail.timestamp_max,
        )
        segments.append(last)
    return segments, tail


def _first_unsynced(disk: Disk, directory: Path, bases: list[int], settings: StorageSettings) -> int:
    """The place of the first segment to recover; at least the last one is."""
    place = len(bases) - 1
    while place > 0:
        tail = inspect_tail(disk, directory, bases[place], settings)
        if tail.is_closed and tail.size > 0:
            break
        before = inspect_tail(disk, directory, bases[place - 1], settings, is_last=False)
        # One that is closed but ends too early has lost what was written after an earlier closing.
        if before.is_closed and before.size > 0 and before.end_offset == bases[place]:
            break
        place -= 1
    return max(place, 0)


def _whole_run(disk: Disk, directory: Path, bases: list[int], first: int, settings: StorageSettings) -> int:
    """How many segments there are up to the first that ends before the next one begins.

    One that is shorter than its index says was not left so by a crash, nor was one that is followed
    by something synced, which it was before: what follows it stays.
    """
    tails = [inspect_tail(disk, directory, base, settings, is_last=False) for base in bases[first:]]
    for place, tail in enumerate(tails[:-1], start=first):
        is_hole = tail.marked and tail.marked_offset <= tail.end_offset < bases[place + 1]
        if is_hole and not any(later.synced for later in tails[place + 1 - first :]):
            return place + 1
    return len(bases)


def tidy(disk: Disk, directory: Path, bases: list[int]) -> None:
    """Remove what an interrupted creation, deletion or replacement left behind.

    Whatever names are there now are made durable: whoever changed them last may have died before.
    """
    expected = {index_path(directory, base).name for base in bases}
    for name in disk.names(directory):
        is_orphan = name.endswith(".idx") and name not in expected
        if is_orphan or name.endswith(".tmp"):
            disk.remove(directory / name)
    disk.sync_directory(directory)


def _set_segment_aside(disk: Disk, directory: Path, base_offset: int) -> None:
    path = log_path(directory, base_offset)
    logger.warning("%s lies behind a hole in the log: moved to quarantine", path)
    file = disk.open(path)
    try:
        # Nothing needs no room: an empty segment goes even when the disk is full.
        if file.size() > 0:
            set_aside(disk, file, 0, file.size())
    finally:
        file.close()
    remove_segment(disk, directory, base_offset)


def remove_segment(disk: Disk, directory: Path, base_offset: int) -> None:
    """Take a segment's files away, durably: segments must not vanish in another order than this."""
    disk.remove(log_path(directory, base_offset))
    if disk.exists(index_path(directory, base_offset)):
        disk.remove(index_path(directory, base_offset))
    disk.sync_directory(directory)
