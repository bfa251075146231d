"""`quiver settings`, and what every command does; in a real process where that is the point."""

import json
import os
import subprocess
import sys
from contextlib import chdir
from importlib.metadata import version
from pathlib import Path

import pytest
from support.command import INHERITED, QUIVER, run_quiver
from support.command_inside import run_inside

from quivermq.model.topic_settings import TopicSettings
from quivermq.settings.load import SETTINGS
from quivermq.settings.setting import settings_of


def run_there(directory: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command in a directory, with these variables."""
    with chdir(directory):
        return run_inside(*arguments, env=environ)


def test_the_version() -> None:
    result = run_quiver("--version")
    assert (result.returncode, result.stdout) == (0, f"quiver {version('quivermq')}\n")


def test_show_prints_every_setting_on_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "quiver.toml").write_text("[storage]\ncodec = 'lz4'\n")
    result = run_there(tmp_path, "settings", "show", QUIVER_STORAGE__LINGER_MS="7")
    assert result.returncode == 0, result.stderr
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert SETTINGS.keys() <= rows.keys()
    assert rows["storage.codec"][1:3] == ["lz4", "quiver.toml"]
    assert rows["storage.linger_ms"][1:4] == ["7", "environment", "QUIVER_STORAGE__LINGER_MS"]
    assert rows["storage.segment_bytes"][1:4] == ["64", "MiB", "default"]


def test_show_prints_json(tmp_path: Path) -> None:
    config = tmp_path / "other.toml"
    config.write_text("[storage]\nsegment_bytes = '1MiB'\n")
    result = run_there(tmp_path, "settings", "show", "--config", str(config), "--json")
    assert result.returncode == 0, result.stderr
    shown = {row["key"]: row for row in json.loads(result.stdout)["settings"]}
    topics = {f"topics.{name}" for name in settings_of(TopicSettings)}
    assert shown.keys() == SETTINGS.keys() | topics
    assert shown["storage.segment_bytes"]["value"] == 1024**2
    assert shown["storage.segment_bytes"]["origin"] == str(config)
    assert shown["storage.retention_ms"]["value"] is None
    assert shown["storage.codec"]["doc"] == SETTINGS["storage.codec"].doc


def test_show_prints_what_is_said_of_topics_and_by_whom(tmp_path: Path) -> None:
    (tmp_path / "quiver.toml").write_text('[server]\ndata = "q"\n[topics."events.*"]\nlease_ms = "1m"\n')
    asked = ("settings", "show", "--json")
    result = run_there(tmp_path, *asked, QUIVER_TOPICS__PARTITIONS="3", QUIVER_SERVER__PORT="7171")
    shown = {row["key"]: row for row in json.loads(result.stdout)["settings"]}
    rule, common = shown['topics."events.*".lease_ms'], shown["topics.partitions"]
    assert (rule["value"], rule["origin"]) == (60_000, "quiver.toml")
    assert (common["value"], common["origin"]) == (3, "environment QUIVER_TOPICS__PARTITIONS")
    assert (shown["server.data"]["value"], shown["server.port"]["value"]) == ("q", 7171)
    result = run_there(tmp_path, *asked, "--topic", "events.eu", QUIVER_CONFIG="quiver.toml")
    shown = {row["key"]: row["value"] for row in json.loads(result.stdout)["settings"]}
    assert shown['topics."events.*".lease_ms'] == 60_000
    assert "topics.lease_ms" not in shown


def test_a_mistake_is_one_line_that_names_it(tmp_path: Path) -> None:
    result = run_there(tmp_path, "settings", "show", QUIVER_STORAGE__SEGMNT_BYTES="1")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "error: storage.segmnt_bytes: there is no such setting; did you mean"
        " storage.segment_bytes? (from environment QUIVER_STORAGE__SEGMNT_BYTES)\n"
    )


def test_a_mistake_is_json_for_a_program(tmp_path: Path) -> None:
    result = run_there(tmp_path, "settings", "show", "--config", "none.toml", "--json")
    assert (result.returncode, result.stdout) == (2, "")
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["retryable"]) == ("invalid_settings", False)
    assert error["message"].startswith("none.toml: cannot be read")


def test_an_unknown_command_is_an_invalid_request(tmp_path: Path) -> None:
    result = run_there(tmp_path, "setings")
    assert result.returncode == 2
    assert "setings" in result.stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path, missing: str) -> None:
    # None in sys.modules makes the import fail exactly as it does for a package that is not there.
    code = f"import sys; sys.modules[{missing!r}] = None; import quivermq.cli as c; sys.exit(c.main())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: install the command line: pip install 'quivermq[cli]'\n"


# Without a buffer the first line fails, with one the last flush does.
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, unbuffered: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        result = subprocess.run(
            [QUIVER, "settings", "show", "--json"],
            cwd=tmp_path,
            env=INHERITED | {"PYTHONUNBUFFERED": unbuffered},
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(write_end)
    assert (result.returncode, result.stderr) == (1, "")
