"""From the files of a directory to the segments of a log.

A log is synced in order, so only a run of segments at its end can hold anything that was not. Those
are recovered one after the other; a hole in one means that whatever lies behind it was never durable,
and it goes to quarantine.
"""

import json
import logging
from collections.abc import Callable
from contextlib import closing
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path

from quivermq.disk import Disk, file_size
from quivermq.errors import DiskRefused, InvalidFrame
from quivermq.frame import Frame, encode_control
from quivermq.segment import (
    Segment,
    Tail,
    base_offset_of,
    index_path,
    inspect_tail,
    log_path,
    recover,
    set_aside,
    write_index,
)
from quivermq.settings import StorageSettings

logger = logging.getLogger(__name__)


def base_offsets(disk: Disk, directory: Path) -> list[int]:
    """The base offsets of the segments in a directory, in order."""
    return _bases(disk.names(directory))


def _bases(names: list[str]) -> list[int]:
    return [base for name in names if (base := base_offset_of(name)) is not None]


def sealed_segments(
    disk: Disk, directory: Path, bases: list[int], settings: StorageSettings
) -> list[Segment]:
    """All but the last segment: each ends where the next one begins."""
    return [
        Segment(
            *(disk, directory, base, settings),
            end_offset=next_base,
            end=file_size(disk, log_path(directory, base)),
        )
        for base, next_base in pairwise(bases)
    ]


def recover_directory(
    disk: Disk, directory: Path, settings: StorageSettings
) -> tuple[list[Segment], Tail | None]:
    """Make the log in a directory whole: its segments and how the last one ends; None when empty.

    The directory is made when it is not there.
    """
    names = disk.names(directory)
    if not names:
        disk.make_directory(directory)
        return [], None
    bases = _bases(names)
    _tidy(disk, directory, names, bases)
    # Looked at once: the tail may be long. A segment that becomes the last one has an index to believe,
    # and then it does not matter that it was not the last when it was looked at.
    look = cache(lambda base: inspect_tail(disk, directory, base, settings, is_last=base == bases[-1]))
    first = _first_unsynced(bases, look)
    count = _whole_run(bases, first, look)
    # Before the segment with the hole is mended: a crash in between must leave the hole to be seen.
    for base in bases[count:]:
        _set_segment_aside(disk, directory, base)
    tails = [look(base) for base in bases[first:count]]
    bases = bases[:count]
    for tail, next_base in zip_longest(tails, bases[first + 1 :]):
        # One that ends too early all the same is damaged, and stays as it is for its repair.
        if next_base is None or tail.end_offset == next_base:
            recover(disk, directory, tail, is_last=next_base is None)
    _write_lost_indexes(disk, directory, bases[: first + 1], look)
    segments = sealed_segments(disk, directory, bases, settings)
    if not tails:
        return segments, None
    return [*segments, tails[-1].segment(disk, directory, settings)], tails[-1]


def _first_unsynced(bases: list[int], look: Callable[[int], Tail]) -> int:
    """The place of the first segment to look at: the last one that holds something and was closed.

    Even that may have lost what was written after an earlier closing, but nothing before it can have.
    """
    place = len(bases) - 1
    while place > 0:
        tail = look(bases[place])
        if tail.is_closed and tail.size > 0:
            break
        place -= 1
    return max(place, 0)


def _write_lost_indexes(disk: Disk, directory: Path, bases: list[int], look: Callable[[int], Tail]) -> None:
    """Write the index again of segments that were synced long ago, all but the last of `bases`.

    Somebody took it away, or died while the segment was replaced. Of one that is damaged it stays away: it
    would say that everything before its mark is whole.
    """
    names = set(disk.names(directory)) if len(bases) > 1 else ()
    for base, next_base in pairwise(bases):
        if index_path(directory, base).name in names:
            continue
        tail = look(base)
        if tail.damages or tail.cut is not None or tail.end_offset != next_base:
            continue
        if tail.index.mark[2] != tail.end:
            tail.index.add(tail.end_offset, tail.timestamp_max, tail.end)
        try:
            write_index(disk, directory, tail.index)
        except DiskRefused as error:
            logger.warning("%s has no index on disk: %s", log_path(directory, base), error)


def _whole_run(bases: list[int], first: int, look: Callable[[int], Tail]) -> int:
    """How many segments there are up to the first that ends before the next one begins.

    One that is shorter than its index says was not left so by a crash, nor was one that is followed
    by something synced, which it was before: what follows it stays.
    """
    tails = [look(base) for base in bases[first:]]
    for place, tail in enumerate(tails[:-1], start=first):
        is_hole = tail.marked and tail.marked_offset <= tail.end_offset < bases[place + 1]
        if is_hole and not any(later.synced for later in tails[place + 1 - first :]):
            return place + 1
    return len(bases)


def tidy(disk: Disk, directory: Path) -> None:
    """Remove what an interrupted creation, deletion or replacement left behind.

    Whatever names are there now are made durable: whoever changed them last may have died before.
    Other names are somebody else's, and so are directories, whatever they are called.
    """
    names = disk.names(directory)
    _tidy(disk, directory, names, _bases(names))


def _tidy(disk: Disk, directory: Path, names: list[str], bases: list[int]) -> None:
    expected = set(bases)
    for name in names:
        indexed = base_offset_of(name, ".idx")
        is_orphan = indexed is not None and indexed not in expected
        is_temporary = base_offset_of(name, ".tmp") is not None
        if (is_orphan or is_temporary) and not disk.is_directory(directory / name):
            disk.remove(directory / name)
    disk.sync_directory(directory)


def _set_segment_aside(disk: Disk, directory: Path, base_offset: int) -> None:
    path = log_path(directory, base_offset)
    logger.warning("%s lies behind a hole in the log: moved to quarantine", path)
    with closing(disk.open(path)) as file:
        # Nothing needs no room: an empty segment goes even when the disk is full.
        if file.size() > 0:
            set_aside(disk, file, 0, file.size())
    remove_segment(disk, directory, base_offset)


def remove_segment(disk: Disk, directory: Path, base_offset: int) -> None:
    """Take a segment's files away, durably: segments must not vanish in another order than this."""
    disk.remove(log_path(directory, base_offset))
    if disk.exists(index_path(directory, base_offset)):
        disk.remove(index_path(directory, base_offset))
    disk.sync_directory(directory)


_COUNT_MAX = 2**32 - 1


def gap_frames(offsets: tuple[int, int], side_file: Path | None, reason: str, now_us: int) -> list[Frame]:
    """Control frames over the offsets [start, end): one, unless a header cannot count that far."""
    record = {
        "kind": "gap",
        "reason": reason,
        "quarantine": None if side_file is None else side_file.name,
    }
    body = json.dumps(record).encode()
    return [
        encode_control(body, count=min(_COUNT_MAX, offsets[1] - start), timestamp=now_us).stamped(
            start, now_us
        )
        for start in range(*offsets, _COUNT_MAX)
    ]


def gap_of(frame: Frame) -> str | None:
    """What a gap frame says; None when the frame is something else."""
    if not frame.is_control:
        return None
    try:
        return _gap_text(json.loads(bytes(frame.raw).rstrip(b"\0")))
    except (ValueError, RecursionError, InvalidFrame):
        return None


def _gap_text(record: object) -> str | None:
    if not isinstance(record, dict) or record.get("kind") != "gap":
        return None
    side_file = record.get("quarantine")
    where = "nothing was left to set aside" if side_file is None else f"set aside in {side_file}"
    return f"{record.get('reason')}; {where}"
