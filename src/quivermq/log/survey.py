"""One look at every byte of a segment, and what was seen. Verification tells it, repair acts on it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from quivermq.disk import Disk
from quivermq.log.gap import gap_of
from quivermq.log.opening import base_offsets, file_size
from quivermq.segment import TIMESTAMP_NONE, Damage, Found, Segment, load_index, log_path
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


def survey(segment: Segment, is_last: bool, progress: Progress) -> Survey:
    """Look at every byte of a segment; `progress` is called with the number of bytes of each step."""
    result = Survey(segment, end_offset=segment.base_offset)
    places = {0: (segment.base_offset, TIMESTAMP_NONE)}
    seen = 0
    for found in segment.examine():
        if isinstance(found, Found):
            _add_frame(result, found)
        else:
            _add_damage(result, found, is_last)
        places[found.end] = (result.end_offset, result.timestamp_max)
        progress(found.end - seen)
        seen = found.end
    if not is_last and result.end_offset < segment.end_offset:
        offsets = (result.end_offset, segment.end_offset)
        reason = "messages are missing between this segment and the next"
        result.damages.append(Damage(segment.end, segment.end, offsets, reason))
        result.end_offset = segment.end_offset
    result.index_fault = _index_fault(segment, places)
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


def _add_damage(result: Survey, damage: Damage, is_last: bool) -> None:
    if damage.is_last and is_last:
        result.tail = damage
        return
    start, end = damage.offsets
    # In a segment that is not the last, the next one tells how many messages were lost.
    result.end_offset = result.segment.end_offset if end is None else end
    result.damages.append(damage._replace(offsets=(start, result.end_offset)))


def _index_fault(segment: Segment, places: dict[int, tuple[int, int]]) -> str | None:
    """What is wrong with a segment's index, given what stands at each position where frames meet."""
    index = load_index(segment.disk, segment.directory, segment.base_offset)
    if index is None:
        return "the index is missing or unreadable"
    for offset, timestamp, position in zip(index.offsets, index.timestamps, index.positions, strict=True):
        if places.get(position) != (offset, timestamp):
            return f"the index has a wrong entry for byte {position}"
    return None


def segments_of(disk: Disk, directory: Path, settings: StorageSettings) -> Iterable[tuple[Segment, bool]]:
    """The segments of a log as their files are, unrecovered, and whether each is the last."""
    bases = base_offsets(disk, directory)
    for base, next_base in zip(bases, [*bases[1:], None], strict=True):
        size = file_size(disk, log_path(directory, base))
        end_offset = base if next_base is None else next_base
        segment = Segment(disk, directory, base, settings, end_offset=end_offset, end=size)
        yield segment, next_base is None
