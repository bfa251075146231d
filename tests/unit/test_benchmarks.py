"""The benchmarks run and tell what they measured. How fast anything was is never asserted."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GROUPS = [
    "append_many",
    "append_sustained",
    "append_one",
    "fsync_one",
    "fsync_many",
    "read",
    "open",
    "arrow",
    "memory",
    "codec",
]


def benchmarks(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_every_row_has_a_figure_and_its_limits(tmp_path: Path) -> None:
    data, report = tmp_path / "data", tmp_path / "report.json"
    result = benchmarks("--tiny", "--json", report, "--data", data)
    assert result.returncode == 0, result.stderr
    content = json.loads(report.read_text())
    assert content["source"]["digest"] in result.stdout
    groups = content["groups"]
    assert list(groups) == GROUPS
    for row in [row for rows in groups.values() for row in rows if "skipped" not in row]:
        assert row["value"] >= 0
        assert row["limits"]
        assert row["limited_by"]
        assert (row["met"] is None) == (row["goal"] is None)
    assert list(data.iterdir()) == [], "the logs were not removed"


def test_the_table_has_the_rows_and_fits_the_screen(tmp_path: Path) -> None:
    result = benchmarks("--tiny", "--only", "append_many", "--data", tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("append_many(")] == [
        "append_many(100)",
        "append_many(1000)",
    ]
    assert all("os.write" in line for line in lines if line.startswith("append_many("))
    assert "read values" not in result.stdout
    assert max(map(len, lines)) <= 140


def test_an_unknown_group_is_refused_with_those_there_are() -> None:
    result = benchmarks("--only", "nonsense")
    assert result.returncode == 2
    assert all(name in result.stderr for name in GROUPS)
