"""`quiver repair` on real files; in a real process and at a terminal where that is the point."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from support.command import everything, run_at_terminal, run_quiver, table_rows
from support.command_inside import run_inside
from support.damage import flip
from support.logs import values
from support.remote import RemoteLog

from quivermq.log import DataDirectory, follow

SEGMENT = "log/00000000000000000000"


class Broken(NamedTuple):
    """A data directory whose log has lost the middle one of three frames, and what was there."""

    path: Path
    position: int
    end: int
    bytes: bytes

    @property
    def side_file(self) -> str:
        return f"log/@quarantine/00000000000000000000.{self.position}-{self.end}.bytes"


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    with DataDirectory(tmp_path / "data") as directory:
        for number in range(3):
            directory.log("log").append_many([b"%d" % number] * 2)
    path = tmp_path / "data" / f"{SEGMENT}.log"
    size = path.stat().st_size // 3
    flip(path, 2 * size - 1)
    return Broken(tmp_path / "data", size, 2 * size, path.read_bytes()[size : 2 * size])


@pytest.mark.damages
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_without_a_terminal_and_without_a_yes_nothing_is_changed(
    broken: Broken, options: list[str]
) -> None:
    before = everything(broken.path)
    result = run_inside("repair", "--data", broken.path, *options)
    assert result.returncode == 2
    assert "--yes" in result.stderr
    if options:
        assert result.stdout == ""
        assert json.loads(result.stderr)["error"]["code"] == "invalid_request"
    assert everything(broken.path) == before


def test_with_a_yes_the_damage_is_set_aside(broken: Broken) -> None:
    result = run_quiver("repair", "--data", broken.path, "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    assert (broken.path / broken.side_file).read_bytes() == broken.bytes
    [row] = table_rows(result.stdout)
    bytes_ = f"[{broken.position}, {broken.end})"
    assert row == [f"{SEGMENT}.log", bytes_, "[2, 4)", broken.side_file]
    last = result.stdout.splitlines()[-1]
    assert last == "1 log, 1 segment: 1 range set aside, 1 index made anew; nothing was deleted"


def test_afterwards_the_log_is_sound_and_tells_the_gap(broken: Broken) -> None:
    run_inside("repair", "--data", broken.path, "--yes")
    result = run_inside("verify", "--data", broken.path, "--json")
    assert result.returncode == 0
    report = json.loads(result.stdout)
    [gap] = report["findings"]
    assert (gap["kind"], gap["path"], gap["offsets"]) == ("gap", f"{SEGMENT}.log", [2, 4])
    assert Path(broken.side_file).name in gap["reason"]
    assert report["messages"] == 4
    log = follow(broken.path, "log")
    assert (log.end, values(log)) == (6, [b"0", b"0", b"2", b"2"])


def test_a_repair_is_one_json_document(broken: Broken) -> None:
    result = run_inside("repair", "--data", broken.path, "--yes", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    [finding] = document["found"]["findings"]
    [mended] = document["repair"]["mended"]
    assert (document["found"]["is_sound"], finding["kind"]) == (False, "damage")
    assert mended == {
        "path": f"{SEGMENT}.log",
        "position": broken.position,
        "end": broken.end,
        "offsets": [2, 4],
        "reason": finding["reason"],
        "side_file": broken.side_file,
    }
    assert {key: document["repair"][key] for key in ("logs", "segments", "indexes_rebuilt")} == {
        "logs": 1,
        "segments": 1,
        "indexes_rebuilt": 1,
    }


def test_a_torn_tail_is_set_aside_as_well(broken: Broken) -> None:
    path = broken.path / f"{SEGMENT}.log"
    end = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"torn!")
    assert run_inside("repair", "--data", broken.path, "--yes").returncode == 0
    side_file = broken.path / f"log/@quarantine/00000000000000000000.{end}-{end + 5}.bytes"
    assert side_file.read_bytes() == b"torn!"
    assert (broken.path / broken.side_file).read_bytes() == broken.bytes


@pytest.mark.damages
@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_a_no_at_the_terminal_changes_nothing(broken: Broken, answer: str) -> None:
    before = everything(broken.path)
    session = run_at_terminal("repair", "--data", broken.path, answer=answer)
    assert session.returncode == 1
    assert everything(broken.path) == before
    # Whoever is asked has seen what for.
    assert table_rows(session.stdout)[0][0] == "damage"


def test_a_yes_at_the_terminal_mends(broken: Broken) -> None:
    session = run_at_terminal("repair", "--data", broken.path, answer="y\n")
    assert session.returncode == 0
    assert "repairing" in session.terminal
    assert "repairing" not in session.stdout
    assert (broken.path / broken.side_file).read_bytes() == broken.bytes


def test_what_is_sound_is_left_alone_and_nobody_is_asked(broken: Broken) -> None:
    run_inside("repair", "--data", broken.path, "--yes")
    mended = everything(broken.path)
    lock = str(broken.path / "LOCK")
    for session in (
        run_inside("repair", "--data", broken.path, "--yes"),
        run_inside("repair", "--data", broken.path),
        run_at_terminal("repair", "--data", broken.path),
    ):
        assert session.returncode == 0
        assert session.stdout.splitlines()[-1] == "1 log, 1 segment: nothing to mend"
        after = everything(broken.path)
        # The lock names whoever had it last.
        assert after.keys() == mended.keys()
        assert {k: v for k, v in after.items() if k != lock} == {
            k: v for k, v in mended.items() if k != lock
        }


def test_an_index_that_is_missing_is_made_anew(broken: Broken) -> None:
    run_inside("repair", "--data", broken.path, "--yes")
    index = broken.path / f"{SEGMENT}.idx"
    before = index.read_bytes()
    index.unlink()
    result = run_inside("repair", "--data", broken.path, "--yes")
    last = result.stdout.splitlines()[-1]
    assert last == "1 log, 1 segment: 0 ranges set aside, 1 index made anew; nothing was deleted"
    assert index.read_bytes() == before


@pytest.mark.damages
def test_a_directory_in_use_is_left_to_who_uses_it(broken: Broken) -> None:
    above = broken.path.parent
    (above / "link").symlink_to(broken.path / "log")
    # It opens the log, and leaves the damage before the mark as it is: there is something to mend.
    other = RemoteLog(broken.path)
    try:
        before = everything(broken.path)
        # Whichever way leads to it.
        for way in (broken.path, broken.path / "log", above, above / "link"):
            result = run_inside("repair", "--data", way, "--yes")
            assert (result.returncode, f"process {other.pid}:" in result.stderr) == (4, True), way
        result = run_inside("repair", "--data", broken.path, "--yes", "--json")
        error = json.loads(result.stderr)["error"]
        assert (result.returncode, error["code"]) == (4, "directory_locked")
        assert f"process {other.pid}:" in error["message"]
        assert everything(broken.path) == before
    finally:
        other.kill()


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = run_inside("repair", "--data", tmp_path / "none", "--yes")
    assert (result.returncode, result.stdout) == (3, "")
    assert not list(tmp_path.iterdir())
