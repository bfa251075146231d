"""Scenarios over a shared disk, whose machine is lost at some step of the store: only the store is left.

What the next owner finds there is given on as a disk in memory, all of it durable, so that whatever judges
a crash of a local disk judges this as well.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from quivermq.chaos import faulty_disk
from quivermq.disk import Disk
from quivermq.errors import QuiverError
from quivermq.shared import SharedDisk, open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, Stopped, StoreFault
from support.fault_count import count_faults
from support.shared import LIMITS, at_step

T = TypeVar("T")
MadeDisk = TypeVar("MadeDisk", bound=faulty_disk.FaultyDisk)

# A shared disk in there has its files where these scenarios look for theirs, in /data.
_CACHE = Path("/")
# Small, so that chunks end nearly everywhere: in the middle of frames, between a file and its name.
_SMALL = replace(
    LIMITS, commit_timeout_s=600, chunk_bytes_max=150, checkpoint_chunks=1_000_000, checkpoint_bytes=1 << 40
)
# So many steps of a scenario are looked at.
_STEPS_MAX = 24 * int(os.environ.get("QUIVER_TEST_CRASH_SEEDS", "1"))


def every_loss(
    scenario: Callable[[MadeDisk, list[T]], None], *, start: MadeDisk | None, make: Callable[[], MadeDisk]
) -> Iterator[tuple[MadeDisk, list[T]]]:
    """Yield, for many steps of the store, what it has then, and what was acknowledged: see `every_crash`.

    The scenario gets a shared disk, which has not all that a `FaultyDisk` has.
    """
    objects = _stored(start, make)
    # Opening the disk itself is no step of the scenario, and the last one comes behind its end.
    opening = len(_opened(MemoryStore(dict(objects)), make).steps)
    rehearsal = MemoryStore(dict(objects))
    _run(scenario, rehearsal, make)
    steps = range(opening + 1, len(rehearsal.steps) + 2)
    for number, step in enumerate(steps[:: -(-len(steps) // _STEPS_MAX)]):
        fault = (StoreFault.STOP_BEFORE, StoreFault.STOP_AFTER)[number % 2]
        store = MemoryStore(dict(objects), fault=at_step(step, fault))
        acknowledged = _run(scenario, store, make)
        after = _found(store.objects, make)
        after.description = f"what a store had at step {step} of {steps[-1]}, {fault.name}"
        count_faults()
        yield after, acknowledged


def _stored(start: Disk | None, make: Callable[[], MadeDisk]) -> dict[str, bytes]:
    """A store that has the files of a disk."""
    store = MemoryStore()
    disk = _open(store, make)
    if start is not None:
        _copy(start, disk, disk.root)
    disk.close()
    return store.objects


def _copy(source: Disk, target: Disk, directory: Path) -> None:
    target.make_directory(directory)
    for name in source.names(directory):
        path = directory / name
        if source.is_directory(path):
            _copy(source, target, path)
            continue
        old, new = source.open(path), target.create(path)
        new.append([old.read(0, old.size())])
        old.close()
        new.close()


def _run(
    scenario: Callable[[MadeDisk, list[T]], None], store: MemoryStore, make: Callable[[], MadeDisk]
) -> list[T]:
    """What was acknowledged before the store stopped."""
    acknowledged: list[T] = []
    try:
        disk = _open(store, make)
        try:
            scenario(cast(MadeDisk, disk), acknowledged)
            # What nobody waits for has its steps, too.
            disk.commits.commit(disk.commits.ticket())
        finally:
            disk.abandon()
    except (QuiverError, Stopped):
        # What fails after the machine was lost has never happened.
        if not store.is_stopped:
            raise
    return list(acknowledged)


def _opened(store: MemoryStore, make: Callable[[], MadeDisk]) -> MemoryStore:
    _open(store, make).abandon()
    return store


def _found(objects: dict[str, bytes], make: Callable[[], MadeDisk]) -> MadeDisk:
    """What the next owner finds, as a disk on which all of it is durable."""
    cache = make()
    open_shared(ConditionalChunks(MemoryStore(dict(objects))), _CACHE, disk=cache, limits=_SMALL).abandon()
    return cache.after_power_loss(0, keep="everything")


def _open(store: MemoryStore, make: Callable[[], MadeDisk]) -> SharedDisk:
    return open_shared(ConditionalChunks(store), _CACHE, disk=make(), limits=_SMALL)
