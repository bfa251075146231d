from pathlib import Path

import pytest

from quivermq.chaos import run as chaos_run
from quivermq.chaos.cases import Case
from quivermq.chaos.run import Plan, prepared, run
from quivermq.chaos.trial import Trial


class Tries:
    """Cases that note with which seed they were tried."""

    def __init__(self) -> None:
        self.seeds: list[str] = []

    def good(self, trial: Trial) -> None:
        self.seeds.append(trial.seed)
        trial.tried += 1

    def bad(self, trial: Trial) -> None:
        self.good(trial)
        raise ZeroDivisionError("oops")


class Ticking:
    """A second passes whenever somebody looks."""

    now = 0.0

    def monotonic(self) -> float:
        Ticking.now += 1
        return Ticking.now

    def now_us(self) -> int:
        return 0


def test_rounds_go_on_while_there_is_time_and_a_failure_ends_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = Tries(), Tries()
    cases = [Case("kill", "engine", "good", good.good, 1), Case("kill", "engine", "bad", bad.bad, 1)]
    monkeypatch.setattr(chaos_run, "CASES", cases)
    monkeypatch.setattr(chaos_run, "SystemClock", Ticking)
    plan = Plan(tmp_path, "s", seconds=20)
    first, second = outcomes = prepared(plan)
    run(plan, outcomes)
    assert good.seeds == [f"s.{n}" for n in range(len(good.seeds))]
    assert len(good.seeds) > 2
    assert (first.tried, first.has_held) == (len(good.seeds), True)
    assert bad.seeds == ["s.0"]
    assert (second.failure, second.seed) == ("oops", "s.0")
    assert "ZeroDivisionError" in second.details


def test_without_a_time_each_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Tries()
    monkeypatch.setattr(chaos_run, "CASES", [Case("kill", "engine", "good", good.good, 1)])
    plan = Plan(tmp_path, "s", cycles=3)
    run(plan, prepared(plan))
    assert good.seeds == ["s.0"]
