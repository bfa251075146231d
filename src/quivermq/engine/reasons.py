"""How many dead letters there are for which reason, without a look at what is in them."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from quivermq.delivery.dead_letters import holds_dead_letters
from quivermq.engine.hosted import Hosted
from quivermq.frame import Frame, left_of
from quivermq.model.dead_letters import DLQ_HEADER_PREFIX, DeadLetterReason, merged_reasons
from quivermq.topic.partition import Partition

# Where one is: its partition, its lane and its offset. Lists go in this order.
Place = tuple[int, int, int]
BEFORE_ALL: Place = (0, 0, -1)

_REASON, _GROUP = (DLQ_HEADER_PREFIX + name for name in ("reason", "group"))


class Counted(NamedTuple):
    """What was counted, and behind which place to go on; None when that was all."""

    reasons: list[DeadLetterReason]
    next: Place | None


def count_reasons(
    graves: Hosted, after: Place = BEFORE_ALL, is_over: Callable[[int], bool] = lambda _: False
) -> Counted:
    """Count from a place on, until `is_over` says that so many bytes more were enough."""
    counts: Counter[tuple[bytes, bytes, bytes]] = Counter()
    topic = (graves.origin or graves.name).encode()
    for place, frame, stories in _frames(graves, after):
        if holds_dead_letters(frame.header):
            counts.update((told.get(_REASON, b""), topic, told.get(_GROUP, b"")) for told in stories)
        elif stories:
            counts[b"", topic, b""] += len(stories)
        if is_over(frame.header.raw_bytes):
            return Counted(merged_reasons(_reasons(counts)), place)
    return Counted(merged_reasons(_reasons(counts)), None)


def _reasons(counts: Counter[tuple[bytes, bytes, bytes]]) -> Iterator[DeadLetterReason]:
    for story, count in counts.items():
        reason, topic, group = (part.decode(errors="replace") for part in story)
        yield DeadLetterReason(reason, topic, group, count)


def _frames(graves: Hosted, after: Place) -> Iterator[tuple[Place, Frame, list[dict[str, bytes]]]]:
    """Each frame, its last place, and the headers of the dead letters in it that are still there."""
    for partition in graves.topic.partitions:
        for lane, log in enumerate(partition.logs):
            place = partition.number, lane
            if log is None or place < after[:2]:
                continue
            behind = after[2] if place == after[:2] else -1
            start = max(log.start, partition.removals.lanes[lane].floor, behind + 1)
            for frame in log.frames(start) if start < log.end else ():
                yield (*place, frame.header.end_offset - 1), frame, _stories(partition, lane, frame, start)


def _stories(partition: Partition, lane: int, frame: Frame, start: int) -> list[dict[str, bytes]]:
    removed = partition.removals.lanes[lane]
    return [
        record.headers
        for record in left_of(frame, frame.records())
        if record.offset >= start and record.offset not in removed
    ]
