"""What every test run shares.

The property tests' profile, and the last look at every store: whatever a test wrote below its `tmp_path`
is verified when it ends, unless it is marked as one that damages it. Ctrl-C is told to the tests and to the
processes they start, also where a shell put the run into the background.

A run asks the same as the one before, so that what fails was caused by a change. To look for something new,
give it a `--hypothesis-seed`.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.fault_record import (
    faults_are_counted,
    make_trial,
    pool,
    pytest_addoption,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)
from support.faulty_disk import FaultyDisk
from support.logs import Logs, assert_sound
from support.object_store import S3Server, s3_server

from quivermq.log import verify

# Pytest finds hooks and fixtures by the names that a conftest has.
__all__ = [
    "faults_are_counted",
    "make_trial",
    "pool",
    "pytest_addoption",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
]

# No deadline, because a busy machine is not a bug.
settings.register_profile("quiver", deadline=None, print_blob=True)
settings.load_profile("quiver")

SEED = "1"


# First, because Hypothesis reads the option in its own pytest_configure.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED
    config.addinivalue_line("markers", "damages: the test breaks its store on purpose and leaves it so")
    config.addinivalue_line(
        "markers", "fault(name, against): a row of the fault table, and what it is tried on"
    )
    # A shell lets what it runs in the background ignore this, and whoever is started from there as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.hypothesis_seed}; look elsewhere with --hypothesis-seed=NUMBER"


# Asked for by no test and needed by all; set up first, it looks when everything else is closed.
@pytest.fixture(autouse=True)
def every_store_is_verified(request: pytest.FixtureRequest) -> Iterator[None]:
    # Asked for now, so that it is removed later than this looks.
    path = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if path is not None and request.node.get_closest_marker("damages") is None:
        assert_sound(verify(path))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    """Logs on the file system of this machine."""
    logs = Logs(tmp_path / "data")
    yield logs
    logs.close()


@pytest.fixture
def faulty_disk() -> FaultyDisk:
    """A disk in memory: `faulty_logs` are on it."""
    return FaultyDisk()


@pytest.fixture
def faulty_logs(faulty_disk: FaultyDisk, request: pytest.FixtureRequest) -> Iterator[Logs]:
    """Logs on a disk that can be made to fail, and that counts what is done to it."""
    logs = Logs(Path("/data"), faulty_disk)
    yield logs
    logs.close()
    if request.node.get_closest_marker("damages") is None:
        assert_sound(logs.verify())


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real object store, started by the first test that asks for it. Each takes a URL of its own."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
