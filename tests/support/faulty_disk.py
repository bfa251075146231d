"""The disk in memory that stops, tears, forgets, fails and fills up: see `quivermq.chaos.faulty_disk`."""

from quivermq.chaos.faulty_disk import (
    SECTOR_BYTES,
    CutMap,
    FaultyDisk,
    FaultyFile,
    FaultyLock,
    Keep,
    PowerCut,
    Step,
    every_crash,
)

__all__ = [
    "SECTOR_BYTES",
    "CutMap",
    "FaultyDisk",
    "FaultyFile",
    "FaultyLock",
    "Keep",
    "PowerCut",
    "Step",
    "every_crash",
]
