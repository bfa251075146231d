import os
import subprocess
from pathlib import Path

import pytest
from support.command import INHERITED, QUIVER
from support.command_inside import quiver

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        for name in ("orders", "others", "events"):
            mq.create_topic(name)
    return tmp_path / "data"


def asking(line: str) -> dict[str, str]:
    """How a bash asks what to offer for the last word of a line."""
    return {
        "_QUIVER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


def complete(line: str, **env: str) -> list[str]:
    ran = quiver(env=asking(line) | env)
    assert ran.err == ""
    return ran.text.split()


def test_commands_are_offered_to_a_real_shell() -> None:
    done = subprocess.run([QUIVER], env=INHERITED | asking("quiver topi"), capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["topic"], "")


def test_topics_are_offered_from_the_directory(data: Path) -> None:
    assert complete(f"quiver get --data {data} or") == ["orders"]
    assert complete("quiver get o", QUIVER_DATA=str(data)) == ["orders", "others"]


def test_a_directory_that_is_open_elsewhere_is_no_hindrance(data: Path) -> None:
    with quivermq.open(data):
        assert complete("quiver topic show ev", QUIVER_DATA=str(data)) == ["events"]


def test_where_nothing_is_known_nothing_is_offered(tmp_path: Path) -> None:
    assert complete("quiver get or") == []
    assert complete("quiver get or", QUIVER_DATA=str(tmp_path / "none")) == []
    assert complete("quiver get or", QUIVER_SERVER="http://127.0.0.1:1") == []
    assert os.listdir(tmp_path) == []


def test_completion_installs_itself(tmp_path: Path) -> None:
    # Typer asks which shell called it, so one has to; the `:` keeps bash from stepping aside.
    line = f"{QUIVER} --install-completion && :"
    done = subprocess.run(
        ["bash", "-c", line], env=INHERITED | {"HOME": str(tmp_path)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert "quiver" in (tmp_path / ".bash_completions" / "quiver.sh").read_text()
