"""How many topics, partitions and groups there may be: refused by name when one more is asked for.

A queue that has more than it may have, because somebody lowered a limit, opens and works: only more are
refused.
"""

from quivermq.errors import LimitReached
from quivermq.settings.tree import EngineSettings


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
