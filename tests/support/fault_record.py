"""What the fault suite needs of pytest: its options, and a record of what ran for which fault, and how often.

A test says what it is about: `@pytest.mark.fault("kill", "broker")`, with a name of `quivermq.chaos.faults`.
With `--fault-record FILE` a run leaves what tools/fault_table.py makes the table of the guarantees from.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from quivermq.chaos.broker import LIVES
from quivermq.chaos.faults import FAULTS
from quivermq.chaos.nursery import Nursery, nursery
from quivermq.chaos.tally import Tally, tried
from quivermq.chaos.trial import Trial

_NAMES = {fault.name for fault in FAULTS}
_MEMORY = Path("/dev/shm")


@dataclass
class Ran:
    """A test that ended."""

    test: str
    fault: str
    against: str
    tried: int
    outcome: str


_ran: list[Ran] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption(
        "--chaos-cycles",
        type=int,
        default=None,
        help="how many kills and faults each test of the fault suite tries, in place of its own number",
    )
    group.addoption("--soak-seconds", type=float, default=120.0, help="how long the soak takes")
    group.addoption("--fault-record", type=Path, default=None, help="where to leave what was tried")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # pragma: no cover - Only seen by runs that leave a record.
    report = yield
    marker = item.get_closest_marker("fault")
    if marker is not None and report.when == "call":  # type: ignore[attr-defined]
        tally = item.stash.get(_TALLY, None)
        count = max(1, tally.count if tally is not None else 0)
        fault, against = marker.args
        _ran.append(Ran(item.nodeid, fault, against, count, report.outcome))  # type: ignore[attr-defined]
    return report  # noqa: B901 - A wrapper of pytest returns what it was sent.


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--fault-record")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(ran) for ran in _ran], indent=1))


_TALLY: pytest.StashKey[Tally] = pytest.StashKey()


@pytest.fixture(autouse=True)
def faults_are_counted(request: pytest.FixtureRequest) -> None:
    """Count what a test of the fault suite breaks, and check that it says what it is about."""
    marker = request.node.get_closest_marker("fault")
    if marker is not None:
        fault, against = marker.args
        assert fault in _NAMES, f"there is no fault {fault}"
        assert against in ("engine", "broker")
        request.node.stash[_TALLY] = Tally()


@pytest.fixture(scope="session")
def lives() -> Iterator[Nursery]:
    """One nursery for all tests: it has imported everything."""
    with nursery(LIVES) as shared:
        yield shared


MakeTrial = Callable[..., Trial]


@pytest.fixture
def make_trial(
    tmp_path: Path, lives: Nursery, request: pytest.FixtureRequest
) -> Iterator[MakeTrial]:
    """Trials with so many cycles, or as many as `--chaos-cycles` says; `in_memory` where there is no disk."""
    wanted = request.config.getoption("--chaos-cycles")
    seed = f"{request.config.option.hypothesis_seed}/{request.node.name}"
    trials: list[Trial] = []
    made: list[Path] = []

    def make(cycles: int, *, in_memory: bool = False) -> Trial:
        directory = tmp_path / f"trial{len(trials)}"
        if in_memory and _MEMORY.is_dir():
            directory = Path(mkdtemp(prefix="quiver-", dir=_MEMORY))
            made.append(directory)
        else:
            directory.mkdir()
        trial = Trial(directory, seed, wanted or cycles, lives)
        trials.append(trial)
        return trial

    print(f"seed: {seed}")
    yield make
    tried(sum(trial.tried for trial in trials))
    for directory in made:
        shutil.rmtree(directory, ignore_errors=True)
