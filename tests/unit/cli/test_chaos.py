import json
from pathlib import Path

import pytest
from support.command_inside import quiver

from quivermq.chaos import expect
from quivermq.chaos import run as chaos_run
from quivermq.chaos.cases import Case
from quivermq.chaos.trial import Trial


def held(trial: Trial) -> None:
    (trial.directory / "something").write_text("")
    trial.tried += trial.cycles


def broken(trial: Trial) -> None:
    trial.tried += 1
    expect(False, f"it broke with {trial.seed}")


def interrupted(trial: Trial) -> None:
    trial.tried += 2
    raise KeyboardInterrupt


def missing() -> str:
    return "needs a tool"


CASES = [
    Case("kill", "engine", "quickly", held, 3),
    Case("power", "broker", "badly", broken, 1),
    Case("eio", "broker", "not at all", held, 1, missing),
    Case("soak", "broker", "long", held, 1, only_if_asked=True),
]


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_run, "CASES", CASES)


def test_what_held_is_told_and_leaves_nothing(cases: None, tmp_path: Path) -> None:
    ran = quiver(
        "chaos", "--cycles", "7", "--fault", "kill", "--data", tmp_path / "new", "--seed", "s", "--json"
    )
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["seed"] == "s"
    [case] = told["cases"]
    assert (case["fault"], case["against"], case["how"], case["tried"]) == ("kill", "engine", "quickly", 7)
    assert case["held"] is True
    assert not (tmp_path / "new").exists()


def test_what_did_not_hold_is_kept_and_told_with_its_seed(cases: None, tmp_path: Path) -> None:
    ran = quiver("chaos", "--seconds", "0", "--data", tmp_path / "new", "--seed", "s")
    assert ran.code == 6
    assert "DID NOT HOLD" in ran.text
    assert "power, broker, badly, seed s.0: it broke with s.0" in ran.text
    [kept] = (tmp_path / "new").iterdir()
    assert f"look at {kept}" in ran.text
    assert "it broke with s.0" in (kept / "failure.txt").read_text()
    # The others went on, and what cannot be tried here says why.
    assert "not tried: needs a tool" in ran.text
    assert "soak" not in ran.text


def test_only_a_directory_that_is_empty_is_broken(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    ran = quiver("chaos", "--data", tmp_path)
    assert ran.code == 2
    assert "is not empty" in ran.err
    assert (tmp_path / "mine").read_text() == "precious"


def test_who_ends_it_early_is_told_what_was_tried_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = Case("names", "engine", "never", held, 1)
    monkeypatch.setattr(
        chaos_run, "CASES", [CASES[0], Case("power", "engine", "cut", interrupted, 1), never]
    )
    ran = quiver("chaos", "--data", tmp_path / "new")
    assert ran.code == 130
    first, second, third = (line.split() for line in ran.text.splitlines() if "engine" in line)
    assert (first[-2:], second[-2:]) == (["3", "held"], ["2", "held"])
    assert " ".join(third).endswith("0 not tried: there was no time")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--fault", "boredom"), "there is no fault 'boredom': it is one of kill, power"),
        (("--seconds", "1", "--cycles", "1"), "give one of them"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    ran = quiver("chaos", *arguments, "--data", tmp_path / "new")
    assert ran.code == 2
    assert complaint in ran.err


def test_a_real_case(tmp_path: Path) -> None:
    ran = quiver(
        "chaos", "--cycles", "2", "--fault", "producer", "--fault", "power", "--data", tmp_path / "new"
    )
    assert ran.code == 0, ran.text
    assert ran.text.count("held") == 3
