"""What nobody came back for goes. What somebody may still need stays, whoever that is."""

from pathlib import Path

import pytest

from quivermq.disk import SystemDisk
from quivermq.spark.sink.commit import remove_abandoned

NOW_S = 1_900_000_000
OLD, YOUNG = f"0-{NOW_S - 8 * 24 * 3600}-0a.frames", f"1-{NOW_S - 6 * 24 * 3600}-0b.frames"


def left(path: Path) -> list[str]:
    remove_abandoned(SystemDisk(), path, NOW_S * 1_000_000)
    return sorted(str(found.relative_to(path / "spark")) for found in (path / "spark").rglob("*"))


def stage(path: Path, *names: str, batch: str = "7") -> None:
    directory = path / "spark" / "query" / batch
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).touch()


def test_old_files_go_with_everything_that_was_only_theirs(tmp_path: Path) -> None:
    stage(tmp_path, OLD)
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([OLD, YOUNG], id="one attempt died long ago, another is at work"),
        pytest.param([], id="a task begins just now"),
        pytest.param([OLD, "0-1-0a.other"], id="a file that nobody here has made"),
    ],
)
def test_what_may_be_somebodys_stays(tmp_path: Path, names: list[str]) -> None:
    stage(tmp_path, *names)
    assert left(tmp_path) == sorted(["query", "query/7", *(f"query/7/{name}" for name in names)])


def test_what_is_known_of_the_write_stays(tmp_path: Path) -> None:
    stage(tmp_path, OLD)
    stage(tmp_path, YOUNG, batch="8")
    (tmp_path / "spark" / "query" / "applied").write_text("6")
    assert left(tmp_path) == ["query", "query/8", f"query/8/{YOUNG}", "query/applied"]
