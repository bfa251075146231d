"""Damage to one file of a disk in memory: a bit flipped, or the end cut off, at many places."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from support.fault_count import count_faults
from support.faulty_disk import FaultyDisk


def blows(disk: FaultyDisk, path: Path, places: int) -> Iterator[tuple[FaultyDisk, str]]:
    """Disks on which the file is damaged: a bit flipped at so many places, the file cut at some."""
    size, rng = len(disk.files()[path]), Random(str(path))
    for position in sorted(rng.sample(range(size), min(places, size))):
        struck, bit = disk.after_kill(), rng.randrange(8)
        struck.flip(path, position, 1 << bit)
        yield struck, f"{path}: bit {bit} of byte {position}"
        count_faults()
    for position in (0, 1, size // 2, size - 1):
        struck = disk.after_kill()
        struck.chop(path, position)
        yield struck, f"{path}: cut at byte {position}"
        count_faults()
