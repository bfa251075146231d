"""The faults, and what must hold in spite of each: the rows of the table in docs/concepts/guarantees.md."""

from typing import Literal, NamedTuple

Against = Literal["engine", "broker"]


class Fault(NamedTuple):
    """One row."""

    name: str
    happening: str
    promise: str


FAULTS = [
    Fault(
        "kill",
        "kill -9 at random moments, under a load that uses every feature",
        "every acknowledged message is in the log once, in order; others are absent or whole",
    ),
    Fault(
        "power",
        "power loss: unsynced writes dropped, reordered or torn at any I/O step, in a recovery as well",
        "the same, and recovering twice is recovering once",
    ),
    Fault(
        "names",
        "power loss that forgets the names of files that were made, renamed or removed",
        "no segment is lost, and none comes back",
    ),
    Fault(
        "eio",
        "an input/output error at the n-th write or sync",
        "the publish fails, the partition is fenced, no later success is claimed; other partitions serve",
    ),
    Fault(
        "full",
        "disk full, quota, too many open files, read-only file system",
        "a clean error that may pass; acks go on, and reads; it recovers by itself",
    ),
    Fault(
        "damage",
        "a bit flipped, or a file cut, in every kind of file, at every class of byte",
        "detected, told with its offsets, never skipped in silence; the rest serves; repair loses no more",
    ),
    Fault(
        "deleted",
        "an index, the memory of what was seen before, or the lock file deleted",
        "rebuilt, and equal to before; a lock that is held stays held",
    ),
    Fault(
        "locked",
        "two processes open one directory; the one that has it dies",
        "the second is refused with the first one's process id; then it opens",
    ),
    Fault(
        "clock",
        "the clock set by an hour or a year, forward or back",
        "nothing is delivered early, no lease is lost, what is due still comes",
    ),
    Fault(
        "lease",
        "a consumer stopped for longer than its lease, which then acknowledges",
        "the ack is refused; the message was delivered elsewhere",
    ),
    Fault(
        "poison",
        "a message that kills its worker, or makes it raise, every time",
        "a dead letter exactly at the limit, once, with its cause",
    ),
    Fault(
        "interrupted",
        "kill -9 in the middle of retention, compaction, redrive or archiving",
        "nothing unfinished is lost, nothing is doubled, no file is left over",
    ),
    Fault(
        "producer",
        "a producer repeats a sequence across a restart",
        "no duplicate",
    ),
    Fault(
        "soak",
        "a million messages delayed and a hundred thousand in flight, for long",
        "memory stays bounded; 99 % of deliveries are less than a second late, and none is early",
    ),
    Fault(
        "hostile",
        "malformed HTTP, frames and JSON; oversized and slow bodies; wrong keys; path tricks in names",
        "a clear 4xx, nothing stored, the broker lives",
    ),
]
