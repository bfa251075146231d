"""What is sent to workers that lack the package, and what is said of those that lack more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.bare_python import bare_python

import quivermq
from quivermq.errors import NotFound
from quivermq.spark.launcher import check_python, is_on_this_machine, package_archive


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("master", "is_here"),
    [
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077,127.0.0.1:7078", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://far.example:7077", False),
        ("spark://localhost:7077,far.example:7077", False),
        ("yarn", False),
        ("k8s://https://host:443", False),
    ],
)
def test_workers_are_here_or_elsewhere(master: str, is_here: bool) -> None:
    assert is_on_this_machine(master) is is_here


def test_the_archive_is_the_package(tmp_path: Path) -> None:
    archive = package_archive()
    assert package_archive() == archive
    program = (
        "import quivermq, quivermq.spark, pyspark_quiver; print(quivermq.__file__, quivermq.__version__)"
    )
    told = subprocess.run(
        [bare_python(tmp_path / "python"), "-c", program],
        env={**os.environ, "PYTHONPATH": str(archive)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == [str(archive / "quivermq/__init__.py"), quivermq.__version__]


def test_a_python_without_what_cannot_be_sent_is_told(tmp_path: Path) -> None:
    check_python(sys.executable)
    check_python(bare_python(tmp_path / "without the package"))
    lacking = bare_python(tmp_path / "lacking", without=("crc32c", "pyarrow"))
    with pytest.raises(NotFound, match=r"which has no crc32c, pyarrow: install quivermq\[spark\] there"):
        check_python(lacking)
    with pytest.raises(NotFound, match="which does not start"):
        check_python(str(tmp_path / "nothing"))
