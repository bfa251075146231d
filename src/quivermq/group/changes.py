"""What became of topics, noted for a group that takes it in when it next does something.

Whoever creates or deletes a topic may hold any lock of the engine, and a group that is busy may wait for
one of those. So nothing of a group is touched there: this lock is held by nobody who waits for another.
"""

import threading


class TopicChanges:
    """Topics that are not any more as a group knows them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, bool] = {}

    def note(self, topic: str, *, is_deleted: bool) -> None:
        """Remember a topic. One that was deleted stays so, although there may be another of its name."""
        with self._lock:
            self._noted[topic] = is_deleted or self._noted.get(topic, False)

    def take(self) -> dict[str, bool]:
        """The topics noted since the last time, and whether each was deleted meanwhile."""
        if not self._noted:
            return {}
        with self._lock:
            noted, self._noted = self._noted, {}
            return noted
