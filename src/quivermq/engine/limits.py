"""What there may be no more of: topics, partitions and groups, and bytes on the disk.

A queue that has more than it may have, because somebody lowered a limit, opens and works: only more are
refused.
"""

import logging
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import DiskFull, LimitReached
from quivermq.settings.tree import EngineSettings

logger = logging.getLogger(__name__)


class Space:
    """Whether there is room for messages. Looked at now and then; acks do not ask."""

    def __init__(self, disk: Disk, path: Path, free_bytes_min: int) -> None:
        self._disk = disk
        self._path = path
        self._free_bytes_min = free_bytes_min
        self.shortage: DiskFull | None = None

    def free_bytes(self) -> int:
        return self._disk.free_bytes(self._path)

    def look(self) -> None:
        """Learn how much room there is now."""
        free, wanted = self.free_bytes(), self._free_bytes_min
        if free >= max(wanted, 1):
            self.shortage = None
        elif self.shortage is None:
            logger.error("%s has only %d bytes left: messages are refused", self._path, free)
            # Without a reserve, it is the disk itself that has none.
            reserve = {"free_bytes_min": wanted} if wanted else {}
            self.shortage = DiskFull(self._path, needed_bytes=max(wanted - free, 1), **reserve)

    def check(self) -> None:
        """Raise DiskFull while there is none."""
        if (shortage := self.shortage) is not None:
            raise DiskFull(
                shortage.path, needed_bytes=shortage.needed_bytes, free_bytes_min=shortage.free_bytes_min
            )


class Limits:
    """What there is of each. Whoever adds to it checks first, and may be one of several who do."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self.topics = 0
        self.partitions = 0
        self.groups = 0

    def check_topic(self, name: str, partitions: int) -> None:
        """Raise LimitReached when there may be no further topic of so many partitions."""
        limit = self._settings.topics_max
        if self.topics >= limit:
            raise LimitReached(f"the topic {name}", setting="engine.topics_max", limit=limit)
        self.check_partitions(name, partitions)

    def check_partitions(self, topic: str, more: int) -> None:
        """Raise LimitReached when a topic may not have so many partitions more."""
        limit = self._settings.partitions_max
        if more > 0 and self.partitions + more > limit:
            what = f"{more} more partitions for {topic}"
            raise LimitReached(what, setting="engine.partitions_max", limit=limit)

    def check_group(self, topic: str, group: str, there: int) -> None:
        """Raise LimitReached when a topic with so many groups may not have another one."""
        limit = self._settings.topic_groups_max
        if there >= limit:
            what = f"the group {group} of {topic}"
            raise LimitReached(what, setting="engine.topic_groups_max", limit=limit)
        limit = self._settings.groups_max
        if self.groups >= limit:
            raise LimitReached(f"the group {group} of {topic}", setting="engine.groups_max", limit=limit)

    def count_topic(self, partitions: int, groups: int) -> None:
        """A topic was found or made; with negative numbers it is gone."""
        self.topics += 1 if partitions > 0 else -1
        self.partitions += partitions
        self.groups += groups
