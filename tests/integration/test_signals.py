"""Signals at random moments: whatever a handler does, nothing hangs and nothing promised is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.broker import serving

TESTS = Path(__file__).parents[1]
# With `--chaos-cycles`, as many as that says.
LIVES = 100


@pytest.fixture
def life_count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--chaos-cycles") or LIVES)


def _struck(address: str, life_count: int, seed: int) -> str:
    """Let a worker be struck again and again, and return what it tells."""
    command = [sys.executable, "-m", "support.signalled", address, str(life_count), str(seed)]
    ended = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


@pytest.mark.parametrize("seed", [1])
def test_an_embedded_worker_survives_signals_at_any_moment(
    tmp_path: Path, life_count: int, seed: int
) -> None:
    told = _struck(str(tmp_path / "data"), life_count, seed)
    # Some of the handlers' calls have interrupted another call; without that, this would show nothing.
    assert f"{life_count} lives" in told
    assert ", 0 calls refused" not in told


@pytest.mark.parametrize("seed", [2])
def test_a_worker_of_a_broker_survives_signals_at_any_moment(
    tmp_path: Path, life_count: int, seed: int
) -> None:
    with serving(tmp_path / "data") as served:
        told = _struck(served.url, life_count, seed)
    assert f"{life_count} lives" in told
    assert ", 0 calls refused" not in told
