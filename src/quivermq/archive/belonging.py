"""Whether an archive is that of a log: one that lost its end goes on with other messages at its offsets."""

from collections.abc import Callable, Iterator

from quivermq.archive.manifest import ArchivedLane
from quivermq.errors import OffsetOutOfRange
from quivermq.frame import Frame


def find_difference(
    lane: ArchivedLane, log_start: int, log_end: int, frames: Callable[[int], Iterator[Frame]]
) -> str | None:
    """What shows that a lane was not archived from this log; None when nothing does.

    `frames` gives those of the log from an offset on. The last archived message is compared by when it
    came in, because a frame may be divided or lose messages, and keeps that.
    """
    if lane.end > log_end:
        return f"the archive ends at offset {lane.end}, and the log at {log_end}"
    last = lane.last
    if last is None or not log_start <= last.offset < log_end:
        return None
    try:
        frame = next(frames(last.offset), None)
    except OffsetOutOfRange:
        return None  # Retention took it just now.
    # A repair or a compaction may have left nothing there, and a broker shows nothing of what was removed.
    if frame is None or frame.is_control:
        return None
    header = frame.header
    if not header.base_offset <= last.offset < header.end_offset or header.append_time == last.append_time:
        return None
    return (
        f"the message at offset {last.offset} came into the log at {header.append_time} µs, and the"
        f" archived one at {last.append_time} µs"
    )
