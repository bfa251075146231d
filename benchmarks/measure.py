"""Timing contenders in turns, and telling what held them up.

The machine is shared and its speed drifts, so a figure means something only beside a limit that was
measured in the same minute: every round runs each contender once, and the best round of each counts.
"""

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Literal, TypeVar

# One round of work; it returns how many units it did: messages, bytes, openings.
Work = Callable[[], int]
# Sets a round up, hands out its work to be timed, and clears up behind it.
Prepare = Callable[[], AbstractContextManager[Work]]
Pick = Literal["best", "median"]
Name = TypeVar("Name")

# From here on a wait is what holds a contender up, and others' work is worth a word.
_WAITING_PERCENT = 30
_BUSY_PERCENT = 20

_SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True)
class Usage:
    """Where the seconds of some rounds went."""

    wall_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    queued_s: float = 0.0
    """Ready to run, but another process had the CPU. Only the measuring thread's."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.wall_s + other.wall_s,
            self.user_s + other.user_s,
            self.system_s + other.system_s,
            self.queued_s + other.queued_s,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.wall_s - other.wall_s,
            self.user_s - other.user_s,
            self.system_s - other.system_s,
            self.queued_s - other.queued_s,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """The round that counts, and what all rounds took together."""

    rate: float
    """Units a second."""
    usage: Usage
    units: int
    sync_s: float | None = None
    """How long the disk made somebody wait, where that was watched."""

    @property
    def cpu_s(self) -> float:
        """What one unit took of the CPU, in all threads here: it holds on a busy machine, too."""
        return (self.usage.user_s + self.usage.system_s) / self.units


def now() -> Usage:
    """What this process has used so far."""
    used = getrusage(RUSAGE_SELF)
    return Usage(time.perf_counter(), used.ru_utime, used.ru_stime, _queued_s())


def ready(work: Work) -> Prepare:
    """Work that needs no setting up."""
    return lambda: nullcontext(work)


def counted(work: Callable[[], object], units: int) -> Prepare:
    """Work that needs no setting up and does the same number of units every time."""

    def run() -> int:
        work()
        return units

    return ready(run)


def alternate(contenders: Mapping[Name, Prepare], rounds: int, pick: Pick = "best") -> dict[Name, Measured]:
    """Run every contender once a round, in turns."""
    samples: dict[Name, list[Measured]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, prepare in contenders.items():
            with prepare() as work:
                samples[name].append(_measured(work))
    return {name: _picked(each, pick) for name, each in samples.items()}


def limited_by(usage: Usage, *, sync_s: float | None = None) -> str:
    """What the time went to, in a few words.

    `sync_s` is how long somebody was seen waiting for the disk. Where nobody looked, whatever is
    neither computing nor queueing is taken for the disk: there is nothing else that one thread waits for.
    """
    if sync_s is not None:
        return _shared_with_disk(usage, sync_s)
    # Time in the queue belongs to other processes: it slows a round down, but it is no limit of ours.
    own_s = usage.wall_s - usage.queued_s
    user, system = _percent(usage.user_s, own_s), _percent(usage.system_s, own_s)
    busy = ", busy" if _percent(usage.queued_s, usage.wall_s) >= _BUSY_PERCENT else ""
    if user + system <= 100 - _WAITING_PERCENT:
        return f"disk: {100 - user - system} % waiting{busy}"
    word = "CPU" if user >= system else "syscalls"
    return f"{word}: {user} % user, {system} % sys{busy}"


def _shared_with_disk(usage: Usage, sync_s: float) -> str:
    """The two may add up to more than all: a sync uses the CPU, too, and others run meanwhile."""
    synced, computing = (_percent(each, usage.wall_s) for each in (sync_s, usage.user_s + usage.system_s))
    return f"{'disk' if synced > computing else 'CPU'}: {synced} % sync, {computing} % CPU"


def _measured(work: Work) -> Measured:
    gc.collect()
    # Messages that were made before are the benchmark's: no collection walks over them while the time runs.
    gc.freeze()
    before = now()
    units = work()
    usage = now() - before
    gc.unfreeze()
    return Measured(units / usage.wall_s, usage, units)


def _picked(samples: list[Measured], pick: Pick) -> Measured:
    ordered = sorted(samples, key=attrgetter("rate"))
    chosen = ordered[-1] if pick == "best" else ordered[len(ordered) // 2]
    # All rounds together, because the kernel tells user from system time by sampling.
    total = sum((sample.usage for sample in samples), Usage())
    return Measured(chosen.rate, total, sum(sample.units for sample in samples))


def _queued_s() -> float:
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


def _percent(seconds: float, of_s: float) -> int:
    return round(100 * seconds / of_s) if of_s > 0 else 0
