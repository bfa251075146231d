"""When the oldest message came in that a group has not finished with."""

import threading
from collections.abc import Mapping

from quivermq.clock import Clock
from quivermq.engine.hosted import Hosted
from quivermq.errors import QuiverError
from quivermq.group.group import Group
from quivermq.log import Log
from quivermq.model.turns import in_turns
from quivermq.topic.seen import Lanes


class Ages:
    """Looks it up in the logs, and only where a group has moved on since the last time. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looking = threading.Lock()
        # By topic, partition, lane and offset, when it was appended: groups are often at the same place.
        self._appended: dict[tuple[str, int, int, int], int] = {}

    def look(self, hosted: Mapping[str, Hosted]) -> dict[tuple[str, str], int]:
        """By topic and group, in unix microseconds; 0 when everything is finished."""
        with self._looking:
            known, self._appended = self._appended, {}
            oldest: dict[tuple[str, str], int] = {}
            for topic in in_turns(hosted.values()):
                lanes = topic.topic.lanes()
                for group in in_turns(topic.all_groups()):
                    oldest[topic.name, group.name] = self._oldest_us(topic, lanes, group, known)
            return oldest

    def oldest_us(self, hosted: Hosted, group: Group) -> int:
        """The same of one group."""
        with self._looking:
            return self._oldest_us(hosted, hosted.topic.lanes(), group, self._appended)

    def _oldest_us(
        self, hosted: Hosted, lanes: Lanes, group: Group, known: dict[tuple[str, int, int, int], int]
    ) -> int:
        oldest = now_us = self._clock.now_us()
        cursors = group.cursors
        for (partition, lane), log in lanes.items():
            if partition >= len(cursors):
                # It is just being added, and the group does not know of it yet.
                continue
            owner = hosted.topic.partitions[partition]
            floor = owner.first_told(
                lane, max(owner.removals.lanes[lane].floor, cursors[partition].lanes[lane].floor)
            )
            place = (hosted.name, partition, lane, floor)
            appended = self._appended.get(place) or known.get(place)
            if appended is None:
                archived = owner.append_time_told(lane, floor) if floor < log.start else None
                appended = _append_time(log, floor, now_us) if archived is None else archived
            if appended < now_us:
                self._appended[place] = appended
            oldest = min(oldest, appended)
        return oldest if oldest < now_us else 0


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
