"""One partition of a topic: a log for each priority lane, opened when it is first used."""

import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from quivermq.frame import Frame
from quivermq.log import DataDirectory, Log
from quivermq.model.lanes import PRIORITIES, PartitionLane
from quivermq.settings import StorageSettings
from quivermq.topic.removals import Removals

# The logs of all lanes in use.
LaneLogs = dict[PartitionLane, Log]


class Readable(Protocol):
    """What a group reads a lane from: its log, or that with the archive of what lay before it."""

    @property
    def end(self) -> int: ...

    def first_from(self, offset: int) -> int:
        """The first offset from there on that can be read."""

    def frames(self, start: int, /) -> Iterator[Frame]:
        """The frames from there on."""


class WithArchive(Readable, Protocol):
    """The log of a lane and the archive of what lay before it."""

    @property
    def known_start(self) -> int:
        """The first offset that can be read, by what was last seen of the archive."""

    def known_append_time(self, offset: int) -> int | None:
        """When an archived message came in, at the latest, by what was last seen; None of any other."""


class Partition:
    """The lanes of one partition. Thread-safe."""

    def __init__(
        self,
        directory: DataDirectory,
        topic: str,
        number: int,
        settings: StorageSettings,
        with_archive: "Callable[[Partition, int], WithArchive] | None" = None,
    ) -> None:
        self.topic = topic
        self.number = number
        self.name = f"topics/{topic}/p{number}"
        self._directory = directory
        self._settings = settings
        self._with_archive = with_archive
        self._opening = threading.Lock()
        found = directory.disk.names(directory.path / self.name)
        # By number; None where nobody has used the lane yet. An opened one never changes.
        self.logs: list[Log | None] = [
            self._open(lane) if priority in found else None for lane, priority in enumerate(PRIORITIES)
        ]
        self.removals = Removals(directory, f"{self.name}/removed")
        self.removals.cut([log.end if log else 0 for log in self.logs])

    def log(self, lane: int) -> Log:
        """The log of a lane, created when it is new."""
        log = self.logs[lane]
        if log is None:
            with self._opening:
                log = self.logs[lane] = self.logs[lane] or self._open(lane)
        return log

    def readable(self, lane: int) -> Readable:
        """Where messages of a lane in use are read: retention may move some while somebody reads."""
        return self.log(lane) if self._with_archive is None else self._with_archive(self, lane)

    def first_known(self, lane: int, offset: int) -> int:
        """The first offset from there on that is there, by what was last seen of the archive."""
        log = self.logs[lane]
        start = 0 if log is None else log.start
        if offset >= start or self._with_archive is None:
            return max(offset, start)
        return max(offset, self._with_archive(self, lane).known_start)

    def known_append_time(self, lane: int, offset: int) -> int | None:
        """When a message that only the archive has came in, at the latest; None of any other."""
        if self._with_archive is None:
            return None
        return self._with_archive(self, lane).known_append_time(offset)

    def configure(self, settings: StorageSettings) -> None:
        """Go on with other settings."""
        with self._opening:
            self._settings = settings
            for log in self.logs:
                if log is not None:
                    log.configure(settings)

    def close(self) -> None:
        """Let go of the files; `Topic` may open the partition again."""
        for priority, log in zip(PRIORITIES, self.logs, strict=True):
            if log is not None:
                self._directory.release(f"{self.name}/{priority}")

    def _open(self, lane: int) -> Log:
        return self._directory.log(f"{self.name}/{PRIORITIES[lane]}", self._settings)
