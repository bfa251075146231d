"""A disk in memory that stops, tears, forgets, fails and fills up, the same way for the same seed.

What it models, from the bottom up:

- `inode`: the bytes of a file, in the page cache and on the platter, and the changes in between.
- `names`: the names in directories, likewise.
- `device`: the process that uses the disk, counted step by step until it dies at one of them.
- `file` and `disk`: the protocols of `quivermq.disk`, the faults a test orders, and the restart.
- `crashes`: one scenario, run once for every step it could die at.

It is harsher than any one file system, but not harsher than what `quivermq.disk` promises.
"""

from quivermq.chaos.faulty_disk.crashes import every_crash
from quivermq.chaos.faulty_disk.device import CutMap, PowerCut, Step
from quivermq.chaos.faulty_disk.disk import FaultyDisk
from quivermq.chaos.faulty_disk.file import FaultyFile, FaultyLock
from quivermq.chaos.faulty_disk.inode import SECTOR_BYTES, Keep

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
