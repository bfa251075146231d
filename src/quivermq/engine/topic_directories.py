"""The topics of a queue as they lie on the disk: `topic.json`, their files, and those of their groups."""

import logging
import re
import threading
from pathlib import Path

from quivermq.clock import Clock
from quivermq.errors import DiskRefused, InvalidSettings, StorageFailed, TopicNotFound
from quivermq.log import DataDirectory
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic.stored import StoredTopic, load_topic, mark_deleted, store_topic

logger = logging.getLogger(__name__)

_PARTITION = re.compile(r"p[0-9]{1,4}")


class TopicDirectories:
    """Reads and writes what says that a topic is there. Thread-safe."""

    def __init__(self, directory: DataDirectory, clock: Clock) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._root = directory.path / "topics"
        self._groups_root = directory.path / "groups"
        self._clock = clock
        # One after the other: writing settings.
        self._storing = threading.Lock()
        # By topic, the groups that have been here before.
        self._groups: dict[str, list[str]] = {}
        for group in self._disk.names(self._groups_root):
            for topic in self._disk.names(self._groups_root / group):
                self._groups.setdefault(topic, []).append(group)

    def path(self, name: str) -> Path:
        return self._root / name

    def names(self) -> list[str]:
        """The directories, each of which may be a topic."""
        return [name for name in self._disk.names(self._root) if self._disk.is_directory(self._root / name)]

    def groups_of(self, name: str) -> list[str]:
        """The groups of a topic that were there when the queue was opened."""
        return self._groups.get(name, [])

    def partition_count(self, name: str) -> int:
        """How many partitions a directory has room for; 0 when it has none."""
        parts = [part for part in self._disk.names(self.path(name)) if _PARTITION.fullmatch(part)]
        return max((int(part[1:]) + 1 for part in parts), default=0)

    def load(self, name: str) -> StoredTopic | None:
        """What a directory says of its topic, be it deleted. Raises StorageFailed, InvalidSettings."""
        return load_topic(self._disk, self.path(name))

    def load_synced(self, name: str) -> StoredTopic | None:
        """The same, durable: whoever changed it last may have died before the file's name was."""
        self._disk.sync_directory(self.path(name))
        return self.load(name)

    def load_if_there(self, name: str) -> StoredTopic | None:
        """The same; None also for one that is deleted, or cannot be read."""
        try:
            stored = self.load(name)
        except (StorageFailed, InvalidSettings):
            return None
        return None if stored is None or stored.deleted else stored

    def created_us(self, name: str) -> int:
        """When a topic was made, which tells it from an earlier one of its name. Raises TopicNotFound."""
        stored = self.load(name)
        if stored is None:
            raise TopicNotFound(f"there is no topic {name}")
        return stored.created_us

    def store(
        self, name: str, settings: TopicSettings, *, origin: str | None, deleted: bool = False
    ) -> None:
        """Write the settings of a topic, which may be new. Raises DiskRefused, FsyncFailed."""
        with self._storing:
            before = self.load(name)
            if before is not None and before.deleted and not deleted:
                # Its removal was interrupted: nothing of it may come back under the same name.
                self.remove(name)
                before = None
            created_us = self._clock.now_us() if before is None else before.created_us
            stored = StoredTopic(
                settings=settings, created_us=created_us, deleted=deleted, dead_letters_of=origin
            )
            store_topic(self._disk, self.path(name), stored)

    def store_deleted(self, name: str, settings: TopicSettings, *, origin: str | None) -> None:
        """Write that a topic is deleted, before any file of it goes."""
        try:
            self.store(name, settings, origin=origin, deleted=True)
        except DiskRefused:
            # On a full disk, deleting is what makes room.
            mark_deleted(self._disk, self.path(name))

    def remove(self, name: str) -> None:
        """Take away what a deleted topic left; `topic.json`, which says so, goes last."""
        self._groups.pop(name, None)
        for group in self._disk.names(self._groups_root):
            if self._disk.is_directory(self._groups_root / group / name):
                self._directory.remove(f"groups/{group}/{name}")
        for part in self._disk.names(self.path(name)):
            if self._disk.is_directory(self.path(name) / part):
                self._directory.remove(f"topics/{name}/{part}")
        self._directory.remove(f"topics/{name}")
