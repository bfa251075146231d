"""How long the oldest message has been there that a group has not finished with."""

import threading
from collections.abc import Mapping

from quivermq.clock import Clock
from quivermq.engine.hosted import Hosted
from quivermq.errors import QuiverError
from quivermq.group.group import Group
from quivermq.log import Log


class Ages:
    """Looks it up in the logs, and only where a group has moved on since the last time. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looking = threading.Lock()
        # By topic, group, partition and lane: an offset, and when it was appended.
        self._appended: dict[tuple[str, str, int, int], tuple[int, int]] = {}

    def look(self, hosted: Mapping[str, Hosted]) -> dict[tuple[str, str], int]:
        """By topic and group, in microseconds; 0 when everything is finished."""
        with self._looking:
            known, self._appended = self._appended, {}
            return {
                (topic.name, group.name): self._age_us(topic, group, known)
                for topic in hosted.values()
                for group in topic.groups.values()
            }

    def _age_us(
        self, hosted: Hosted, group: Group, known: dict[tuple[str, str, int, int], tuple[int, int]]
    ) -> int:
        oldest = now_us = self._clock.now_us()
        cursors = group.cursors
        for (partition, lane), log in hosted.topic.lanes().items():
            if partition >= len(cursors):
                # It is just being added, and the group does not know of it yet.
                continue
            floor = max(
                log.start,
                hosted.topic.partitions[partition].removals.lanes[lane].floor,
                cursors[partition].lanes[lane].floor,
            )
            place = (hosted.name, group.name, partition, lane)
            offset, appended = known.get(place, (-1, 0))
            if floor != offset:
                appended = _append_time(log, floor, now_us)
            if appended < now_us:
                self._appended[place] = (floor, appended)
            oldest = min(oldest, appended)
        return now_us - oldest


def _append_time(log: Log, offset: int, now_us: int) -> int:
    """When the message at an offset came in; now, where there is none."""
    if offset >= log.end:
        return now_us
    try:
        frame = next(log.frames(offset), None)
    except QuiverError:
        # Retention was faster, or the log is damaged, which others report.
        return now_us
    return now_us if frame is None else frame.header.append_time
