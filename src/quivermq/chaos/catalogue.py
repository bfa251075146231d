"""Which cases there are for each fault, and what each needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from quivermq.chaos import small_disk, tracing
from quivermq.chaos.cases import (
    clock,
    damage,
    damage_http,
    deleted,
    eio,
    full,
    hostile,
    interrupted,
    kill,
    lease,
    locked,
    poison,
    power,
    producer,
    refusals,
    soak,
)
from quivermq.chaos.faults import Against
from quivermq.chaos.trial import Trial


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
    soak.over_http(trial, trial.seconds).check()


CASES = [
    Case("kill", "engine", "fsync", partial(kill.engine, durability="fsync"), 10),
    Case("kill", "engine", "os, order by key", partial(kill.engine, durability="os", ordering="key"), 20),
    Case("kill", "broker", "fsync", partial(kill.over_http, durability="fsync"), 5),
    Case("kill", "broker", "os, order by key", partial(kill.over_http, durability="os", ordering="key"), 5),
    Case("power", "engine", "in memory", power.engine, 10),
    Case("names", "engine", "in memory", power.names, 10),
    Case("eio", "engine", "in memory", refusals.failing, 10),
    Case("eio", "broker", "strace", eio.over_http, 2, tracing.why_not),
    Case("full", "engine", "in memory", refusals.engine, 5),
    Case("full", "broker", "small disk", full.disk_full, 1, small_disk.why_not),
    Case("full", "broker", "too many files", full.too_many_files, 2),
    *(
        Case("full", "broker", error, partial(full.refused_writes, error=error), 1, tracing.why_not)
        for error in ("EROFS", "EDQUOT")
    ),
    Case("damage", "engine", "in memory", damage.engine, 10),
    Case("damage", "broker", "every kind", damage_http.over_http, 1),
    Case("damage", "broker", "keys", damage_http.damaged_keys, 1),
    Case("deleted", "engine", "in memory", deleted.engine, 1),
    Case("deleted", "broker", "files", deleted.over_http, 2),
    Case("locked", "engine", "files", locked.engine, 2),
    Case("locked", "broker", "files", locked.over_http, 1),
    Case("clock", "engine", "jumps", clock.engine, 4),
    Case("clock", "broker", "jumps", clock.over_http, 4),
    Case("lease", "engine", "stopped", lease.engine, 1),
    Case("lease", "broker", "stopped", lease.over_http, 1),
    Case("poison", "engine", "crashes", poison.engine, 2),
    Case("poison", "broker", "crashes", poison.over_http, 2),
    Case("interrupted", "engine", "redrive, compact", interrupted.engine, 10),
    Case("interrupted", "engine", "retention", interrupted.retention, 10),
    Case("interrupted", "broker", "redrive, compact", interrupted.over_http, 5),
    Case("producer", "engine", "reopened", producer.engine, 5),
    Case("producer", "broker", "killed", producer.over_http, 4),
    Case("soak", "broker", "soak", _soak, 1, only_if_asked=True),
    Case("hostile", "broker", "requests", hostile.over_http, 20),
    Case("hostile", "broker", "keys", hostile.wrong_keys, 1),
]
