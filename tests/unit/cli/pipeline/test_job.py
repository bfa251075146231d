import sys
from pathlib import Path

import pytest
from support.command_inside import quiver

from quivermq.cli.connecting import find_location
from quivermq.cli.pipeline.job import summary_table
from quivermq.cli.progress import progress_display
from quivermq.errors import NotFound


@pytest.mark.parametrize("words", [("sql", "SELECT 1"), ("replay", "a", "--to", "b"), ("redrive",)])
def test_a_missing_extra_is_told(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import quivermq.spark

    assert quivermq.spark is not None
    monkeypatch.setattr(sys.modules["quivermq.spark.session"], "find_spec", lambda _: None)
    ran = quiver("pipeline", *words, "--data", tmp_path)
    assert (ran.code, ran.err) == (3, "error: Spark is not installed: pip install 'quivermq[spark]'\n")


def test_where_a_job_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "topics").mkdir()
    monkeypatch.chdir(tmp_path.parent)
    assert find_location(Path(tmp_path.name), None).arguments() == {"path": str(tmp_path)}
    monkeypatch.setenv("QUIVER_KEY", "secret")
    assert find_location(None, "http://host:1").arguments() == {"server": "http://host:1", "key": "secret"}
    with pytest.raises(NotFound, match="there is no directory"):
        find_location(tmp_path / "none", None).arguments()


def test_a_directory_that_is_no_queue_starts_no_spark(tmp_path: Path) -> None:
    ran = quiver("pipeline", "sql", "SELECT 1", "--data", tmp_path)
    assert (ran.code, "is not the directory of a queue" in ran.err) == (3, True)


def test_a_summary_has_a_line_for_each_fact(capsys: pytest.CaptureFixture[str]) -> None:
    summary_table({"messages": 1234567, "to": "orders", "done": True}).print()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[-3:] == [["messages", "1,234,567"], ["to", "orders"], ["done", "True"]]


def test_nobody_looks_at_a_pipe() -> None:
    with progress_display() as progress:
        assert progress is None


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_display() as progress:
        assert progress is not None
        progress("reading", 0)
        progress("reading", 3, 10)
        progress("writing", 1, 1)
    assert "reading" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("replay", "a", "--to", "b", "--to-server", "http://127.0.0.1:1"), 5, "127.0.0.1:1"),
        (("report", "--to", "/nonexistent/r.html"), 3, "there is no directory /nonexistent"),
        (("sql", "SELECT 1", "--to", "/nonexistent/r.csv"), 3, "there is no directory /nonexistent"),
        (("sql", "DROP TABLE a"), 2, "DROP is no query"),
    ],
)
def test_options_are_checked_before_spark_starts(
    words: tuple[str, ...], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import quivermq.spark

    def start(*_: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(quivermq.spark, "session", start)
    (tmp_path / "topics").mkdir()
    ran = quiver("pipeline", *words, "--data", tmp_path)
    assert (ran.code, told in ran.err) == (code, True), ran.err


def test_a_broker_is_asked_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIVER_DATA", raising=False)
    ran = quiver("pipeline", "audit", "--server", "http://127.0.0.1:1")
    assert ran.code == 5, ran.err
