"""A queue of one test: on a disk in memory, with time that passes when the test says so."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from support.faulty_disk import FaultyDisk
from support.logs import assert_sound
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

import quivermq
from quivermq.engine import engine_of
from quivermq.log import verify

DATA = Path("/data")


class Store:
    """Holds the engine that is open now, and what it stands on."""

    def __init__(self, disk: FaultyDisk, settings: quivermq.Settings | None = None) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self._settings = settings
        self.scheduler = ManualScheduler(self.clock)
        self.engine = self._open()

    def _open(self) -> quivermq.Connection:
        return quivermq.open(
            DATA, self._settings, disk=self.disk, clock=self.clock, scheduler=self.scheduler
        )

    def queue(self, topic: str = "orders", group: str = "default", **settings: Any) -> quivermq.Queue:
        """A queue, and its topic when it is new and there is something to set."""
        if settings:
            self.engine.create_topic(topic, **settings)
        return self.engine.queue(topic, group)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and what the background thread would have done by then happen."""
        self.clock.advance(seconds)
        self.scheduler.run_due()
        engine_of(self.engine).maintain()

    def reopen(self) -> quivermq.Connection:
        """Close and open again."""
        self.engine.close()
        return self.open_again(self.disk)

    def kill(self) -> quivermq.Connection:
        """Let the process die, and open what it left."""
        self.disk.stop()
        return self.open_again(self.disk.after_kill())

    def open_again(self, disk: FaultyDisk) -> quivermq.Connection:
        self.disk = disk
        self.scheduler = ManualScheduler(self.clock)
        self.engine = self._open()
        return self.engine

    def files(self) -> dict[Path, bytes]:
        """Everything that is on the disk."""
        return self.disk.files()

    def close(self) -> None:
        self.disk.fill_after(None)
        self.engine.close()
        assert_sound(verify(DATA, disk=self.disk))


def refused(store: Store, call: Callable[[], object]) -> quivermq.QuiverError:
    """The error of a call that must fail before anything is written."""
    before, names = store.files(), _directories(store.disk)
    try:
        result = call()
    except quivermq.QuiverError as error:
        assert store.files() == before, "files were written for a call that failed"
        assert _directories(store.disk) == names, "directories were made for a call that failed"
        return error
    raise AssertionError(f"nobody minded; the result is {result!r}")


def _directories(disk: FaultyDisk, path: Path = DATA) -> list[Path]:
    found = []
    for name in disk.names(path):
        if disk.is_directory(path / name):
            found += [path / name, *_directories(disk, path / name)]
    return found


def values(messages: Any) -> list[bytes]:
    """The values of deliveries, records or dead letters."""
    return [message.value for message in messages]


def drain(queue: quivermq.Queue) -> list[bytes]:
    """Take and ack everything that there is now."""
    taken = []
    while batch := queue.get_many(1000):
        queue.ack(batch)
        taken += values(batch)
    return taken


def accepted(
    store: Store,
    calls: Iterable[tuple[object, Callable[[], object]]],
    *kinds: type[quivermq.QuiverError],
) -> list[str]:
    """Those of many bad calls that are not refused as they should be, before anything is written."""
    complaints = []
    for name, call in calls:
        try:
            error = refused(store, call)
        except Exception as problem:
            complaints.append(f"{name}: {type(problem).__name__}: {problem}")
        else:
            if kinds and not isinstance(error, kinds):
                complaints.append(f"{name}: {error!r}")
    return complaints
