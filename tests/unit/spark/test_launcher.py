import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quivermq.errors import QuiverError
from quivermq.spark.launcher import cache_directory, cached

SCRIPT = "#!/bin/sh\necho hello\n"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def made_program(script: str) -> Path:
    return cached("greet", script.encode(), is_program=True)


def test_a_program_is_made_once_and_runs() -> None:
    made = made_program(SCRIPT)
    assert subprocess.run([made], capture_output=True, text=True, check=True).stdout == "hello\n"
    before = made.stat()
    assert made_program(SCRIPT) == made
    assert made.stat() == before
    assert made_program(SCRIPT + "echo again\n") != made


def test_many_make_it_at_once_and_leave_nothing_else() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: made_program(SCRIPT), range(32)))
    [program] = made
    assert program.read_text() == SCRIPT
    assert list(program.parent.iterdir()) == [program]


def test_a_directory_that_cannot_be_written_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    with pytest.raises(QuiverError, match="set XDG_CACHE_HOME"):
        made_program(SCRIPT)


def test_without_the_variable_it_is_below_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_directory() == Path("/home/somebody/.cache/quiver")
    assert os.environ.get("XDG_CACHE_HOME") is None
