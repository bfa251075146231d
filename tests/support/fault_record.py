"""What the fault suite needs of pytest: options, and a record of what ran for which fault, and how often.

A test says what it is about: `@pytest.mark.fault("kill", "broker")`, a name of `quivermq.chaos.cases`.
With `--fault-record FILE` a run leaves what tools/fault_table.py makes the table of the guarantees from.
"""

import json
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import get_args

import pytest

from quivermq.chaos.cases import FAULTS, Against
from quivermq.chaos.processes import ProcessPool, process_pool
from quivermq.chaos.trial import Trial
from support.fault_count import FaultCount

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
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marker = item.get_closest_marker("fault")
    if marker is not None and report.when == "call":
        fault, against = marker.args
        count = item.stash[_TALLY].count + sum(trial.tried for trial in item.stash.get(_TRIALS, []))
        _ran.append(Ran(item.nodeid, fault, against, max(1, count), report.outcome))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--fault-record")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(ran) for ran in _ran], indent=1))


_TALLY: pytest.StashKey[FaultCount] = pytest.StashKey()
_TRIALS: pytest.StashKey[list[Trial]] = pytest.StashKey()


@pytest.fixture(autouse=True)
def faults_are_counted(request: pytest.FixtureRequest) -> None:
    """Count what a test of the fault suite breaks, and check that it says what it is about."""
    marker = request.node.get_closest_marker("fault")
    if marker is not None:
        fault, against = marker.args
        assert fault in _NAMES, f"there is no fault {fault}"
        assert against in get_args(Against)
        request.node.stash[_TALLY] = FaultCount()


@pytest.fixture(scope="session")
def pool() -> Iterator[ProcessPool]:
    """One process pool for all tests: it has imported everything."""
    with process_pool() as shared:
        yield shared


MakeTrial = Callable[..., Trial]


@pytest.fixture
def make_trial(tmp_path: Path, pool: ProcessPool, request: pytest.FixtureRequest) -> Iterator[MakeTrial]:
    """Makes trials with so many cycles, or as many as `--chaos-cycles` says."""
    wanted = request.config.getoption("--chaos-cycles")
    seed = f"{request.config.option.hypothesis_seed}/{request.node.name}"
    trials = request.node.stash.setdefault(_TRIALS, [])
    made: list[Path] = []

    def make(cycles: int = 1, *, in_memory: bool = False) -> Trial:
        directory = tmp_path / f"trial{len(trials)}"
        if in_memory and _MEMORY.is_dir():
            directory = Path(mkdtemp(prefix="quiver-", dir=_MEMORY))
            made.append(directory)
        else:
            directory.mkdir()
        trial = Trial(directory, seed, wanted or cycles, pool)
        trials.append(trial)
        return trial

    print(f"seed: {seed}")
    yield make
    pool.reset()
    for directory in made:
        shutil.rmtree(directory, ignore_errors=True)
