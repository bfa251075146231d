"""The logs of one test: opened with small settings, closed at its end, and then looked at byte by byte."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from quivermq.disk import Disk, SystemDisk
from quivermq.frame import Frame
from quivermq.log import Log, LogFinding, LogFollower, ReadableLog, Report, verify
from quivermq.settings import StorageSettings
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

# `os`, because most tests are not about syncing: those that are say so.
DEFAULTS: dict[str, Any] = {"durability": "os"}


class Logs:
    """Opens logs below one directory. Time passes, and what is due happens, when the test says so."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self.disk = disk or SystemDisk()
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self._opened: list[Log] = []

    def open(self, name: str = "log", **settings: Any) -> Log:
        """The log of that name. An earlier one of that name must have been closed."""
        log = Log(
            self.path / name,
            StorageSettings(**DEFAULTS | settings),
            disk=self.disk,
            clock=self.clock,
            scheduler=self.scheduler,
        )
        self._opened.append(log)
        return log

    def follow(self, name: str = "log", **settings: Any) -> LogFollower:
        return LogFollower(self.path / name, StorageSettings(**DEFAULTS | settings), disk=self.disk)

    def verify(self, **settings: Any) -> Report:
        return verify(self.path, StorageSettings(**DEFAULTS | settings), disk=self.disk)

    def after_kill(self, path: Path) -> "Logs":
        """What another process finds when this one is killed now: a copy, in which nothing is open."""
        shutil.copytree(self.path, path)
        return Logs(path)

    def close(self) -> None:
        for log in self._opened:
            log.close()


def assert_sound(report: Report) -> None:
    """Neither damage nor an index that lies. A torn tail is what a crash leaves, and no fault."""
    faults = [finding for finding in report.findings if finding.kind in ("damage", "index")]
    assert not faults, "\n".join(map(str, faults))


def kinds(findings: Iterable[LogFinding]) -> list[str]:
    return [finding.kind for finding in findings]


def values(log: ReadableLog, start: int | None = None) -> list[bytes]:
    """The values of all messages from `start` on."""
    return [record.value for record in log.records(start)]


def offsets(frames: Iterable[Frame]) -> list[tuple[int, int]]:
    """The half-open range of each frame."""
    return [(frame.header.base_offset, frame.header.end_offset) for frame in frames]


def tree(directory: Path) -> Iterator[tuple[str, int, bytes]]:
    """Every file below a directory: its name, when it was last written to, and what it holds."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield path.relative_to(directory).as_posix(), path.stat().st_mtime_ns, path.read_bytes()


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory and what it holds."""
    return {name: data for name, _, data in tree(directory)}
