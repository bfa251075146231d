"""Syncs that only order, and syncs that acknowledge: what a disk may offer besides `Disk`.

A sync says two things: that what comes later may rely on what came before, and that it survives. On a local
disk both cost the same. On a shared one the first is free, because everything is in one order, and the
second is a journey to the store, which many can make together, holding no lock meanwhile.

`SystemDisk` could have these three as well: `barrier` would sync what it is given, `ticket` would remember
it, and `commit` would sync what its tickets remember.
"""

from pathlib import Path
from typing import Protocol

from quivermq.disk import Disk, File

# Stands for what was done before it was given out. Of a shared disk: how many mutations that were.
Ticket = int


class OrderingDisk(Disk, Protocol):
    """A disk that can tell order from durability."""

    def barrier(self, *what: File | Path) -> None:
        """Return once nothing that is done later can survive without what was done to these before."""
        ...

    def ticket(self, *what: File | Path) -> Ticket:
        """What stands for everything done to these files, and to the names in these directories, so far."""
        ...

    def commit(self, *tickets: Ticket) -> None:
        """Return once everything that the tickets stand for is durable. Raises as `File.sync` does."""
        ...
