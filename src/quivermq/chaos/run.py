"""Trying case after case, for as long as somebody likes, and keeping what went wrong to be looked at."""

import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from quivermq.chaos.cases import CASES, FAULTS, Case
from quivermq.chaos.trial import Trial
from quivermq.clock import SystemClock
from quivermq.errors import InvalidRequest


@dataclass
class Outcome:
    """What came of a case so far."""

    case: Case
    tried: int = 0
    seconds: float = 0.0
    why_not: str | None = None
    failure: str | None = None
    """What did not hold."""
    details: str = ""
    seed: str = ""
    """The seed of the failure."""
    kept: Path | None = None
    """Where everything lies that the failure left."""

    @property
    def has_held(self) -> bool:
        return self.failure is None


@dataclass
class Plan:
    """What to try, and for how long."""

    directory: Path
    seed: str
    faults: Sequence[str] = ()
    seconds: float | None = None
    cycles: int | None = None
    on_progress: Callable[[Outcome], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        known = [fault.name for fault in FAULTS]
        for name in self.faults:
            if name not in known:
                raise InvalidRequest(f"there is no fault {name!r}: it is one of {', '.join(known)}")


def prepared(plan: Plan) -> list[Outcome]:
    """Every case that is to be tried, before anything was."""
    return [Outcome(case, why_not=case.why_not()) for case in _chosen(plan.faults)]


def run(plan: Plan, outcomes: list[Outcome]) -> None:
    """Try every case once, and all again while there is time. A case that failed is not repeated.

    Who interrupts it finds in the outcomes what was tried until then.
    """
    clock = SystemClock()
    end = clock.monotonic() + (plan.seconds or 0)
    plan.directory.mkdir(parents=True, exist_ok=True)
    for number in count():
        todo = [outcome for outcome in outcomes if outcome.why_not is None and outcome.has_held]
        if number and clock.monotonic() >= end:
            break
        for outcome in todo:
            _try(plan, outcome, f"{plan.seed}.{number}")
            plan.on_progress(outcome)
            if number and clock.monotonic() >= end:
                break
        if not todo:
            break


def _chosen(faults: Sequence[str]) -> list[Case]:
    return [case for case in CASES if (case.fault in faults if faults else not case.only_if_asked)]


def _try(plan: Plan, outcome: Outcome, seed: str) -> None:
    case, clock = outcome.case, SystemClock()
    name = f"{case.fault}-{case.against}-{CASES.index(case)}-{seed}"
    directory = plan.directory / name
    directory.mkdir()
    start = clock.monotonic()
    trial = Trial(directory, seed, plan.cycles or case.cycles, seconds=plan.seconds or 60.0)
    try:
        case.run(trial)
    except Exception as error:
        outcome.failure = str(error) or type(error).__name__
        outcome.details = traceback.format_exc()
        outcome.seed, outcome.kept = seed, directory
        (directory / "failure.txt").write_text(f"seed {seed}\n\n{outcome.details}")
    finally:
        outcome.tried += trial.tried
        outcome.seconds += clock.monotonic() - start
        if outcome.has_held:
            shutil.rmtree(directory, ignore_errors=True)
