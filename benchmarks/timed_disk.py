"""A disk that keeps the time spent in syncs: the only wait of a log that is truly the disk's."""

import os
import time
from pathlib import Path

from quivermq.disk import SystemDisk, SystemFile


class TimedDisk(SystemDisk):
    """The machine's own, and how long it made others wait."""

    def __init__(self) -> None:
        self.sync_s = 0.0

    def create(
        self,
        path: Path,
        *,
        is_private: bool = False,  # noqa: ARG002 - No keys here.
        is_program: bool = False,  # noqa: ARG002 - Nor anything to run.
    ) -> SystemFile:
        return _TimedFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, self)

    def open(self, path: Path, *, writable: bool = False) -> SystemFile:
        return _TimedFile(path, os.O_RDWR if writable else os.O_RDONLY, self)


class _TimedFile(SystemFile):
    def __init__(self, path: Path, flags: int, disk: TimedDisk) -> None:
        super().__init__(path, flags)
        self._disk = disk

    def sync(self) -> None:
        start = time.perf_counter()
        try:
            super().sync()
        finally:
            self._disk.sync_s += time.perf_counter() - start
