"""Shared disks over a store in memory, whose caches are in memory as well."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import quivermq
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.disk import Disk
from quivermq.engine import open_engine
from quivermq.shared import SharedDisk, SharedLimits, open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep

CACHE = Path("/cache")
# A store in memory answers at once, or never.
LIMITS = SharedLimits(commit_timeout_s=5, backoff_s=0.001, backoff_s_max=0.002, garbage_delay_s=0)
# Whatever is stored as it stays leaves the cache at the next checkpoint.
TINY = replace(LIMITS, part_bytes_min=100, quiet_bytes_min=1, cache_bytes_max=0)
IMPATIENT = replace(LIMITS, commit_timeout_s=0.05)
# Where a test does not want to know how long it takes.
PATIENT = replace(LIMITS, commit_timeout_s=600)


def open_disk(store: MemoryStore, limits: SharedLimits = LIMITS, *, disk: Disk | None = None) -> SharedDisk:
    """A shared disk with a cache that was never used before."""
    return open_shared(ConditionalChunks(store), CACHE, disk=disk or FaultyDisk(), limits=limits)


@contextmanager
def opened(store: MemoryStore, limits: SharedLimits = LIMITS) -> Iterator[SharedDisk]:
    """The same until the end of the block, however that is reached."""
    disk = open_disk(store, limits)
    try:
        yield disk
    finally:
        disk.abandon()


def as_others_see_it(store: MemoryStore, limits: SharedLimits = LIMITS) -> dict[str, bytes]:
    """What the next owner finds. The one before is fenced by looking."""
    with opened(store.beside(), limits) as disk:
        return files_of(disk)


@contextmanager
def queue_on(disk: SharedDisk) -> Iterator[quivermq.Connection]:
    """The unmodified engine over a shared disk, closed in order."""
    with quivermq.Connection(open_engine(disk.root, disk=disk)) as mq:
        yield mq


class RootedDisk(Disk, Protocol):
    """A disk that says where its files are."""

    @property
    def root(self) -> Path: ...


def files_of(disk: RootedDisk) -> dict[str, bytes]:
    """Every file of a disk as its owner, or a reader, sees it, but for locks, which are the machine's."""
    found = {}

    def look(directory: Path) -> None:
        for name in disk.names(directory):
            path = directory / name
            if disk.is_directory(path):
                found[f"{path.relative_to(disk.root)}/"] = b""
                look(path)
            elif name != "LOCK":
                file = disk.open(path)
                found[str(path.relative_to(disk.root))] = file.read(0, file.size())
                file.close()

    look(disk.root)
    return found


def write(disk: SharedDisk, name: str, data: bytes) -> None:
    """A new file, not synced."""
    file = disk.create(disk.root / name)
    file.append([data])
    file.close()


def settle(disk: SharedDisk) -> None:
    """Let what does not change be stored as it stays: it looks the same to two checkpoints."""
    for turn in range(2):
        write(disk, f"turn {turn}", b"")
        disk.checkpoint()


def at_step(number: int, fault: StoreFault) -> Callable[[StoreStep], StoreFault | None]:
    """Let one step go wrong."""
    return lambda step: fault if step.number == number else None


def at_each(
    operation: str, fault: StoreFault, *, times: int = 1
) -> Callable[[StoreStep], StoreFault | None]:
    """Let each object's first attempts at an operation go wrong."""
    seen: dict[str, int] = {}

    def decide(step: StoreStep) -> StoreFault | None:
        if step.operation != operation or seen.get(step.name, 0) >= times:
            return None
        seen[step.name] = seen.get(step.name, 0) + 1
        return fault

    return decide


def fail(disk: SharedDisk, store: MemoryStore) -> None:
    """Let a store not answer any more, and nobody wait long for it. Until then a busy machine has time."""
    store.fault = lambda _: StoreFault.FAIL
    disk._committer._limits = replace(disk._committer._limits, commit_timeout_s=0.05)


def heal(disk: SharedDisk, store: MemoryStore) -> None:
    """Let it answer again, and everybody wait for that."""
    store.fault = lambda _: None
    disk._committer._limits = replace(disk._committer._limits, commit_timeout_s=PATIENT.commit_timeout_s)
