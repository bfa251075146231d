"""The faults, what must hold in spite of each, and the cases in which each is tried.

A case is a function that breaks something in a trial, against the engine, a real broker, a queue in an
object store, or a cluster of real brokers. The modules beside this one have them: `kills`,
`simulated_disk`, `simulated_store`, `cluster`, `broken_disk`, `damage`, `files`, `clients`, `soak` and
`hostile`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from quivermq.chaos.cases import (
    broken_disk,
    clients,
    cluster,
    damage,
    files,
    hostile,
    kills,
    simulated_disk,
    simulated_store,
    soak,
)
from quivermq.chaos.cluster_servers import why_no_etcd, why_no_store
from quivermq.chaos.system_faults import why_no_small_disk, why_no_tracing
from quivermq.chaos.trial import Trial

Against = Literal["engine", "broker", "bucket", "cluster"]


class Fault(NamedTuple):
    """One row of a table in docs/concepts/guarantees.md."""

    name: str
    happening: str
    promise: str


# Of a queue that is in files of one machine.
FILE_FAULTS = [
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
        "detected, reported with offsets, never skipped in silence; the rest serves; repair loses no more",
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
# Of a queue whose truth is an object store, and of a cluster.
STORE_FAULTS = [
    Fault(
        "takeover",
        "the owner's machine is lost at any step of the store, in a takeover as well; another takes over",
        "every acknowledged message is there once, in order; acks and dead letters hold",
    ),
    Fault(
        "zombie",
        "an owner sleeps while others take over and clear away, wakes up, and what it sent arrives late",
        "it stores nothing and acknowledges nothing any more; the same holds for what others did",
    ),
    Fault(
        "store",
        "the store fails, loses answers, and does things late or twice",
        "calls wait or are refused; nothing is lost, nothing is there twice, and all goes on",
    ),
    Fault(
        "etcd",
        "etcd, or its leader, is killed and comes back; etcd stands still for longer than every lease",
        "nobody answers whose lease may be over; nothing is lost, and all goes on",
    ),
    Fault(
        "partition",
        "a broker is cut off from etcd, from the store, or from the other brokers",
        "others take over from one whose lease ends, which answers nothing old; nothing is lost",
    ),
    Fault(
        "rolling",
        "all brokers are restarted, one after the other, under load",
        "whoever asks again gets an answer; nothing is lost, nothing is there twice",
    ),
    Fault(
        "skew",
        "the clocks of brokers are hours apart and set while they run, and owners die",
        "every acknowledged message is there once, in order; acks and dead letters hold",
    ),
    Fault(
        "unsafe",
        "a store that lets several writers create the same object",
        "it is found out before a queue is kept there",
    ),
]
FAULTS = [*FILE_FAULTS, *STORE_FAULTS]


def _always() -> str | None:
    return None


@dataclass(frozen=True)
class Case:
    """One way to try a fault."""

    fault: str
    against: Against
    name: str
    run: Callable[[Trial], object]
    cycles: int
    """How much a round tries: about a second's worth."""
    why_not: Callable[[], str | None] = _always
    """Why it cannot be tried here; None when it can."""
    only_if_asked: bool = False


def _soak(trial: Trial) -> None:
    soak.soak(trial, trial.seconds).check()


CASES = [
    Case("kill", "engine", "fsync", partial(kills.kill_engine, durability="fsync"), 10),
    Case(
        "kill",
        "engine",
        "os, order by key",
        partial(kills.kill_engine, durability="os", ordering="key"),
        20,
    ),
    Case("kill", "broker", "fsync", partial(kills.kill_broker, durability="fsync"), 5),
    Case(
        "kill", "broker", "os, order by key", partial(kills.kill_broker, durability="os", ordering="key"), 5
    ),
    Case("power", "engine", "in memory", simulated_disk.lose_power, 10),
    Case("names", "engine", "in memory", simulated_disk.lose_names, 10),
    Case("eio", "engine", "in memory", simulated_disk.fail_once, 10),
    Case("eio", "broker", "strace", broken_disk.input_output_errors, 2, why_no_tracing),
    Case("full", "engine", "in memory", simulated_disk.refuse, 5),
    Case("full", "broker", "small disk", broken_disk.disk_full, 1, why_no_small_disk),
    Case("full", "broker", "too many files", broken_disk.too_many_files, 2),
    *(
        Case("full", "broker", error, partial(broken_disk.refused_writes, error=error), 1, why_no_tracing)
        for error in ("EROFS", "EDQUOT")
    ),
    Case("damage", "engine", "in memory", damage.damage_engine, 10),
    Case("damage", "broker", "every kind", files.damage_broker, 1),
    Case("damage", "broker", "keys", files.damaged_keys, 1),
    Case("deleted", "engine", "in memory", files.delete_engine, 1),
    Case("deleted", "broker", "files", files.delete_broker, 2),
    Case("locked", "engine", "files", files.lock_engine, 2),
    Case("locked", "broker", "files", files.lock_broker, 1),
    Case("clock", "engine", "jumps", clients.clock_of_engine, 4),
    Case("clock", "broker", "jumps", clients.clock_of_broker, 4),
    Case("lease", "engine", "stopped", clients.late_in_engine, 1),
    Case("lease", "broker", "stopped", clients.late_at_broker, 1),
    Case("poison", "engine", "crashes", clients.poison_engine, 2),
    Case("poison", "broker", "crashes", clients.poison_broker, 2),
    Case("interrupted", "engine", "redrive, compact", kills.tidy_engine, 10),
    Case("interrupted", "engine", "retention", kills.retention, 10),
    Case("interrupted", "broker", "redrive, compact", kills.tidy_broker, 5),
    Case("producer", "engine", "reopened", clients.repeat_to_engine, 5),
    Case("producer", "broker", "killed", clients.repeat_to_broker, 4),
    Case("soak", "broker", "soak", _soak, 1, only_if_asked=True),
    Case("hostile", "broker", "requests", hostile.wrong_requests, 20),
    Case("hostile", "broker", "keys", hostile.wrong_keys, 1),
    *(
        Case(fault, "bucket", name, partial(run, with_etcd=with_etcd), cycles)
        for name, with_etcd in (("in memory", False), ("in memory, with etcd", True))
        for fault, run, cycles in (
            ("takeover", simulated_store.take_over, 16),
            ("zombie", simulated_store.fall_asleep, 4),
            ("store", simulated_store.trouble, 8),
        )
    ),
    Case("unsafe", "bucket", "in memory", simulated_store.unsafe, 4),
    Case("takeover", "cluster", "kill -9", cluster.kill_owner, 3, why_no_etcd),
    Case("zombie", "cluster", "stopped", cluster.stop_owner, 1, why_no_etcd),
    Case("store", "cluster", "trouble", cluster.trouble_store, 2, why_no_store),
    Case("store", "cluster", "stopped", cluster.stop_store, 1, why_no_store),
    Case("etcd", "cluster", "killed", partial(cluster.kill_etcd, members=1), 2, why_no_etcd),
    Case("etcd", "cluster", "leader killed", partial(cluster.kill_etcd, members=3), 2, why_no_etcd),
    Case("etcd", "cluster", "stopped", cluster.stop_etcd, 1, why_no_etcd),
    Case("partition", "cluster", "cut", cluster.part, 3, why_no_store),
    Case("rolling", "cluster", "SIGTERM", cluster.restart_all, 1, why_no_etcd),
    Case("skew", "cluster", "jumps", cluster.set_clocks, 2, why_no_etcd),
]
