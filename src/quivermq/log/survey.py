"""One look at every byte of a segment, and what was seen. Verification tells it, repair acts on it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import maxsize

from quivermq.disk import Disk
from quivermq.frame import Frame
from quivermq.log.gap import gap_of
from quivermq.log.opening import base_offsets, file_size
from quivermq.segment import TIMESTAMP_NONE, Damage, Found, Index, Segment, load_index, log_path
from quivermq.settings import StorageSettings

Progress = Callable[[int], None]


@dataclass(slots=True)
class Survey:
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


def survey(
    segment: Segment,
    index: Index | None,
    progress: Progress,
    *,
    look: Callable[[Frame], None] = lambda _: None,
    deep: bool = True,
) -> Survey:
    """Look at every byte of a segment, as `segments_of` gave it with its index.

    `progress` is called with the number of bytes of each step, `look` with each whole frame, which is
    valid no longer than the call. Without `deep` the inside of frames is left to their checksums.
    """
    result = Survey(segment, end_offset=segment.base_offset)
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


def _add_frame(result: Survey, found: Found) -> None:
    header = found.frame.header
    result.frames += 1
    result.end_offset = header.end_offset
    result.timestamp_max = max(result.timestamp_max, header.timestamp_max)
    if not found.frame.is_control:
        result.messages += header.message_count
    elif reason := gap_of(found.frame):
        offsets = (header.base_offset, header.end_offset)
        result.gaps.append(Damage(found.position, found.end, offsets, reason))


def _add_damage(result: Survey, damage: Damage) -> None:
    if damage.is_last and result.segment.is_active:
        result.tail = damage
        return
    start, end = damage.offsets
    # In a segment that is not the last, the next one tells how many messages were lost.
    result.end_offset = result.segment.end_offset if end is None else end
    result.damages.append(damage._replace(offsets=(start, result.end_offset)))


def _add_missing(result: Survey, end_offset: int, reason: str) -> None:
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


def _index_fault(result: Survey, index: Index | None, places: dict[int, tuple[int, int]]) -> str | None:
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
) -> Iterator[tuple[tuple[int, int | None], Callable[[], tuple[Segment, Index | None]]]]:
    """The offsets of each segment of a log, oldest first, and what opens it with its index.

    A segment is as its file is, unrecovered; the last one is active, and its end is not known.
    """
    bases = base_offsets(disk, directory)
    for base, next_base in zip(bases, [*bases[1:], None], strict=True):
        yield (base, next_base), partial(open_segment, disk, directory, base, next_base, settings)


def open_segment(
    disk: Disk, directory: Path, base: int, next_base: int | None, settings: StorageSettings
) -> tuple[Segment, Index | None]:
    """A segment and its index. Raises FileNotFoundError, StorageFailed."""
    # Before the size: beside a writer, the log may grow in between, and then the index as well.
    index = load_index(disk, directory, base)
    size = file_size(disk, log_path(directory, base))
    if next_base is None:
        return Segment(disk, directory, base, settings, end_offset=base, end=size, index=Index(base)), index
    return Segment(disk, directory, base, settings, end_offset=next_base, end=size), index
