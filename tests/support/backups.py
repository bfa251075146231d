"""Queues and backups of them in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quivermq.backup import BackupSet, make_backup, restore_from
from quivermq.backup.copying import BackupLimits
from quivermq.engine import Engine, open_engine
from quivermq.model.backups import Backup, Restored
from quivermq.queue.connection import Connection
from quivermq.shared.memory import MemoryStore
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

DATA = Path("/data")

# So small that every file has parts, some of them inline.
SMALL_PARTS = BackupLimits(part_bytes_min=300, part_bytes_max=1000, inline_bytes_max=2000)


class BackedUp:
    """A queue in memory, and a store for its backups."""

    def __init__(self, disk: FaultyDisk, engine: Engine, clock: ManualClock) -> None:
        self.disk = disk
        self.engine = engine
        self.clock = clock
        self.store = MemoryStore()
        self.mq = Connection(engine)

    def put(self, *sizes: int, topic: str = "orders") -> None:
        for size in sizes:
            self.mq.queue(topic).put(bytes(size), durability="os")

    def backups(self, store: MemoryStore | None = None) -> BackupSet:
        """The backups as another process sees them."""
        return BackupSet((store or self.store).beside(), "memory")

    def back_up(self, store: MemoryStore | None = None) -> Backup:
        self.clock.advance(10)
        target = BackupSet(store or self.store, "memory")
        return make_backup(self.engine.backup_source(), target, limits=SMALL_PARTS)

    def restored(self, store: MemoryStore | None = None, at: int | None = None) -> Restored:
        """What is restored on a disk of its own."""
        return restore_from(self.backups(store), Path("/restored"), at=at, disk=FaultyDisk())

    def garbage(self, store: MemoryStore | None = None) -> set[str]:
        """The objects that no backup names."""
        target, needed = self.backups(store), set[str]()
        for _, manifest in target.entries():
            assert not isinstance(manifest, Exception), manifest
            for part in manifest.shards.values():
                needed |= {part.name, *target.files(part).part_names()}
        return set(target.store.names("part/")) - needed


@contextmanager
def backed_up() -> Iterator[BackedUp]:
    disk, clock = FaultyDisk(), ManualClock()
    with open_engine(DATA, disk=disk, clock=clock, scheduler=ManualScheduler(clock)) as engine:
        yield BackedUp(disk, engine, clock)
