"""Checking every byte of a log without changing one. May run beside a writer."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import maxsize
from typing import NamedTuple

from quivermq.disk import Disk, SystemDisk, file_size
from quivermq.errors import Corruption, InvalidFrame, StorageFailed
from quivermq.frame import Frame, parse_header
from quivermq.log.directory import check_exists, find_logs
from quivermq.log.opening import base_offsets, gap_of
from quivermq.model.stats import FindingKind, LogFinding, Report
from quivermq.segment import (
    TIMESTAMP_NONE,
    Damage,
    Found,
    Segment,
    SparseIndex,
    index_path,
    load_index,
    log_path,
)
from quivermq.settings import StorageSettings

Advance = Callable[[int], None]


@dataclass(slots=True)
class SegmentCheck:
    """What stands in a segment's files."""

    segment: Segment
    frames: int = 0
    messages: int = 0
    end_offset: int = 0
    timestamp_max: int = TIMESTAMP_NONE
    damages: list[Damage] = field(default_factory=list)
    """What is not whole, but for the tail, and what is missing before the next segment."""
    tail: Damage | None = None
    """What is not whole at the end of the log, as after a torn write."""
    gaps: list[Damage] = field(default_factory=list)
    """Where an earlier repair has set something aside."""
    index_fault: str | None = None


def check_segment(
    segment: Segment,
    index: SparseIndex | None,
    progress: Advance,
    *,
    look: Callable[[Frame], None] = lambda _: None,
    deep: bool = True,
) -> SegmentCheck:
    """Look at every byte of a segment, as `segments_of` gave it with its index.

    `progress` is called with the number of bytes of each step, `look` with each whole frame, which is
    valid no longer than the call. Without `deep` the inside of frames is left to their checksums.
    """
    result = SegmentCheck(segment, end_offset=segment.base_offset)
    places = {0: (segment.base_offset, TIMESTAMP_NONE)}
    seen = 0
    for found in segment.examine(index, deep=deep):
        if isinstance(found, Found):
            _add_frame(result, found)
            look(found.frame)
        else:
            _add_damage(result, found)
        places[found.end] = (result.end_offset, result.timestamp_max)
        progress(found.end - seen)
        seen = found.end
    result.index_fault = _index_fault(result, index, places)
    if not segment.is_active:
        reason = "messages are missing between this segment and the next"
        _add_missing(result, segment.end_offset, reason)
    elif index is not None and result.index_fault is None:
        # What the index marks was on stable storage: if it is not there, no crash has torn it.
        _add_missing(result, index.mark[0], "the file is shorter than it was when last synced")
    return result


def _add_frame(result: SegmentCheck, found: Found) -> None:
    header = found.frame.header
    result.frames += 1
    result.end_offset = header.end_offset
    result.timestamp_max = max(result.timestamp_max, header.timestamp_max)
    if not found.frame.is_control:
        result.messages += header.message_count
    elif reason := gap_of(found.frame):
        offsets = (header.base_offset, header.end_offset)
        result.gaps.append(Damage(found.position, found.end, offsets, reason))


def _add_damage(result: SegmentCheck, damage: Damage) -> None:
    if damage.is_last and result.segment.is_active:
        result.tail = damage
        return
    start, end = damage.offsets
    # In a segment that is not the last, the next one shows how many messages were lost.
    result.end_offset = result.segment.end_offset if end is None else end
    result.damages.append(damage._replace(offsets=(start, result.end_offset)))


def _add_missing(result: SegmentCheck, end_offset: int, reason: str) -> None:
    """Note as damage that the messages up to `end_offset` are not there."""
    offsets = (result.end_offset, end_offset)
    if offsets[0] >= offsets[1]:
        return
    end = result.segment.end
    missing = Damage(end, end, offsets, reason)
    if result.tail is not None:
        missing, result.tail = result.tail._replace(offsets=offsets), None
    result.damages.append(missing)
    result.end_offset = end_offset


def _index_fault(
    result: SegmentCheck, index: SparseIndex | None, places: dict[int, tuple[int, int]]
) -> str | None:
    """What is wrong with a segment's index, given what stands at each position where frames meet."""
    if index is None:
        return "the index is missing or unreadable"
    broken = [(damage.position, damage.end) for damage in result.damages]
    if result.tail is not None:
        broken.append((result.tail.position, maxsize))
    for offset, timestamp, position in zip(index.offsets, index.timestamps, index.positions, strict=True):
        if position > result.segment.end or any(start < position < end for start, end in broken):
            continue
        # Nobody knows the timestamps of what is damaged; a larger one misleads no reader.
        is_known = not broken or position <= broken[0][0]
        place, largest = places.get(position, (-1, timestamp))
        if place != offset or (timestamp != largest if is_known else timestamp < largest):
            return f"the index has a wrong entry for byte {position}"
    return None


def segments_of(
    disk: Disk, directory: Path, settings: StorageSettings
) -> Iterator[tuple[tuple[int, int | None], Callable[[], tuple[Segment, SparseIndex | None]]]]:
    """The offsets of each segment of a log, oldest first, and what opens it with its index.

    A segment is as its file is, unrecovered; the last one is active, and its end is not known.
    """
    bases = base_offsets(disk, directory)
    for base, next_base in zip(bases, [*bases[1:], None], strict=True):
        yield (base, next_base), partial(open_segment, disk, directory, base, next_base, settings)


def open_segment(
    disk: Disk, directory: Path, base: int, next_base: int | None, settings: StorageSettings
) -> tuple[Segment, SparseIndex | None]:
    """A segment and its index. Raises FileNotFoundError, StorageFailed."""
    # Before the size: beside a writer, the log may grow in between, and then the index as well.
    index = load_index(disk, directory, base)
    size = file_size(disk, log_path(directory, base))
    if next_base is None:
        return Segment(
            disk, directory, base, settings, end_offset=base, end=size, index=SparseIndex(base)
        ), index
    return Segment(disk, directory, base, settings, end_offset=next_base, end=size), index


# A segment that is replaced faster than it can be looked at does not exist.
_LOOKS_MAX = 3


def verify(
    path: str | os.PathLike[str],
    settings: StorageSettings | None = None,
    *,
    disk: Disk | None = None,
    progress: Advance = lambda _: None,
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
                report.findings.append(LogFinding("damage", path, 0, 0, offsets, str(error)))
    return report


def _seen(opened: Callable[[], tuple[Segment, SparseIndex | None]], progress: Advance) -> SegmentCheck:
    """What is in a segment. One that seems damaged is looked at again: compaction may just replace it."""
    seen = check_segment(*opened(), progress)
    for _ in range(_LOOKS_MAX):
        if seen.segment.is_active or not (seen.damages or seen.index_fault):
            break
        before, seen = seen, check_segment(*opened(), lambda _: None)
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


def _add(report: Report, seen: SegmentCheck) -> None:
    segment = seen.segment
    report.segments += 1
    report.frames += seen.frames
    report.messages += seen.messages
    report.bytes += segment.end

    def note(kind: FindingKind, path: Path, damage: Damage) -> None:
        finding = LogFinding(kind, path, damage.position, damage.end, damage.offsets, damage.reason)
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


class SegmentContents(NamedTuple):
    """One segment. Times are unix microseconds, None where it is empty or cannot be read."""

    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp: int | None
    """The smallest one of the first frame."""
    last_timestamp: int | None
    """The largest one of all."""


def contents(segment: Segment) -> SegmentContents:
    """What a segment holds. Raises FileNotFoundError when retention was faster."""
    first = last = None
    try:
        if segment.messages:
            first = next(segment.frames(segment.base_offset))[1].header.timestamp_min
            last = _last_timestamp(segment)
    except Corruption:
        pass  # A table of segments says nothing about damage: `verify` and `audit` do.
    segment.forget_index()
    return SegmentContents(
        segment.base_offset,
        segment.end_offset,
        segment.end,
        first,
        last,
    )


def _last_timestamp(segment: Segment) -> int:
    # The index of a segment that is being written knows all but the frames of its last few kilobytes.
    offset, largest, _ = segment.index.mark
    return max(
        largest, max((frame.header.timestamp_max for _, frame in segment.frames(offset)), default=largest)
    )


def count_frames(segment: Segment) -> int | None:
    """How many frames a segment has, by their headers alone; None when one cannot be read."""
    if not segment.end:
        return 0
    file = segment.disk.open(segment.path)
    try:
        memory = file.map(segment.end)
    finally:
        file.close()
    position = frames = 0
    try:
        while position < segment.end:
            position += parse_header(memory, position).frame_bytes
            frames += 1
    except InvalidFrame:
        return None
    return frames
