"""`quiver verify` on real files; in a real process and at a terminal where that is the point."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from support.command import INHERITED, QUIVER, everything, run_at_terminal, run_quiver, table_rows
from support.command_inside import run_inside
from support.damage import flip
from support.remote import RemoteLog

from quivermq.log import DataDirectory

LOG = "orders/00000000000000000000.log"
INDEX = "orders/00000000000000000000.idx"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory whose only log has three frames of two messages."""
    with DataDirectory(tmp_path / "data") as directory:
        for number in range(3):
            directory.log("orders").append_many([b"%d" % number] * 2)
    return tmp_path / "data"


def frame_bytes(data: Path) -> int:
    size = (data / LOG).stat().st_size
    assert size % 3 == 0
    return size // 3


def test_a_sound_directory_is_summed_up(data: Path) -> None:
    result = run_quiver("verify", "--data", data)
    size = (data / LOG).stat().st_size
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"1 log, 1 segment, 3 frames, 6 messages, {size} bytes: sound\n"


def test_every_log_counts(data: Path) -> None:
    with DataDirectory(data) as directory:
        directory.log("a/b").append(b"x")
    result = run_inside("verify", "--data", data)
    assert result.stdout.startswith("2 logs, 2 segments, 4 frames, 7 messages, ")


def test_an_empty_directory_is_sound(tmp_path: Path) -> None:
    result = run_inside("verify", "--data", tmp_path)
    assert result.returncode == 0
    assert result.stdout == "0 logs, 0 segments, 0 frames, 0 messages, 0 bytes: sound\n"


def test_a_sound_directory_is_one_json_document(data: Path) -> None:
    result = run_inside("verify", "--data", data, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "logs": 1,
        "segments": 1,
        "frames": 3,
        "messages": 6,
        "bytes": (data / LOG).stat().st_size,
        "findings": [],
        "is_sound": True,
    }


@pytest.mark.damages
def test_damage_is_told_with_its_file_its_bytes_and_its_offsets(data: Path) -> None:
    size = frame_bytes(data)
    flip(data / LOG, 2 * size - 1)
    result = run_inside("verify", "--data", data)
    assert (result.returncode, result.stderr) == (6, "")
    [row] = table_rows(result.stdout)
    assert row[:4] == ["damage", LOG, f"[{size}, {2 * size})", "[2, 4)"]
    assert "1 log, 1 segment, 2 frames, 4 messages" in result.stdout
    assert "DAMAGED: `quiver repair`" in result.stdout


@pytest.mark.damages
def test_damage_is_told_to_a_program(data: Path) -> None:
    size = frame_bytes(data)
    flip(data / LOG, 2 * size - 1)
    result = run_inside("verify", "--data", data, "--json")
    assert (result.returncode, result.stderr) == (6, "")
    report = json.loads(result.stdout)
    assert report["is_sound"] is False
    [finding] = report["findings"]
    assert finding.pop("reason")
    assert finding == {
        "kind": "damage",
        "path": LOG,
        "position": size,
        "end": 2 * size,
        "offsets": [2, 4],
    }


def test_a_torn_tail_is_told_and_loses_nothing(data: Path) -> None:
    end = (data / LOG).stat().st_size
    with (data / LOG).open("ab") as file:
        file.write(b"torn!")
    result = run_inside("verify", "--data", data)
    assert (result.returncode, result.stderr) == (0, "")
    [row] = table_rows(result.stdout)
    assert row[:4] == ["tail", LOG, f"[{end}, {end + 5})", "[6, ?)"]
    assert "6 messages" in result.stdout
    assert result.stdout.endswith(": sound\n")
    [finding] = json.loads(run_inside("verify", "--data", data, "--json").stdout)["findings"]
    assert finding["offsets"] == [6, None]


@pytest.mark.damages
def test_a_missing_index_is_told_and_loses_nothing(data: Path) -> None:
    (data / INDEX).unlink()
    result = run_inside("verify", "--data", data)
    assert (result.returncode, result.stderr) == (0, "")
    [row] = table_rows(result.stdout)
    assert (row[:2], row[3]) == (["index", INDEX], "[0, 6)")
    assert result.stdout.endswith(": sound\n")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path, options: list[str]) -> None:
    result = run_inside("verify", "--data", tmp_path / "none", *options)
    assert (result.returncode, result.stdout) == (3, "")
    assert str(tmp_path / "none") in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_writer_in_another_process_is_no_hindrance(tmp_path: Path) -> None:
    with RemoteLog(tmp_path) as remote:
        remote.append("a", "b")
        result = run_inside("verify", "--data", tmp_path, "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["messages"] == 2
        assert remote.append("c") == [2]


@pytest.mark.damages
def test_looking_changes_nothing(data: Path) -> None:
    flip(data / LOG, 2 * frame_bytes(data) - 1)
    with (data / LOG).open("ab") as file:
        file.write(b"torn!")
    (data / INDEX).unlink()
    (data / "LOCK").unlink()
    before = everything(data)
    assert run_inside("verify", "--data", data).returncode == 6
    assert run_at_terminal("verify", "--data", data).returncode == 6
    assert everything(data) == before


def test_a_bar_is_shown_at_a_terminal_and_spoils_no_pipe(data: Path) -> None:
    at_terminal = run_at_terminal("verify", "--data", data, "--json")
    piped = run_quiver("verify", "--data", data, "--json")
    assert "verifying" in at_terminal.terminal
    assert at_terminal.stdout == piped.stdout
    assert piped.stderr == ""


def test_a_bar_is_not_shown_on_standard_output_even_at_a_terminal(data: Path) -> None:
    terminal, side_of_command = pty.openpty()
    try:
        result = subprocess.run(
            [QUIVER, "verify", "--data", data],
            env=INHERITED,
            stdout=side_of_command,
            stderr=subprocess.PIPE,
        )
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(side_of_command)
        os.close(terminal)
    assert (result.returncode, result.stderr) == (0, b"")
    assert shown.startswith("1 log, 1 segment, ")
    assert "verifying" not in shown
