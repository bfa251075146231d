"""The disk in memory that stops, tears, forgets, fails and fills up: see `quivermq.chaos.faulty_disk`."""

from quivermq.chaos.durable_state import SECTOR_BYTES, Keep
from quivermq.chaos.faulty_device import CutMap, DiskStep, FaultyFile, FaultyLock, PowerCut
from quivermq.chaos.faulty_disk import FaultyDisk, every_crash

__all__ = [
    "SECTOR_BYTES",
    "CutMap",
    "DiskStep",
    "FaultyDisk",
    "FaultyFile",
    "FaultyLock",
    "Keep",
    "PowerCut",
    "every_crash",
]
