import os
import subprocess
from pathlib import Path

import pytest

from quivermq.errors import NotFound
from quivermq.spark import launcher


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str, status: int = 0) -> Path:
    return program(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025' >&2; exit {status}")


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('WARNING: Using incubator modules\njava version "21" 2023-09-19 LTS', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no such thing", 0),
    ],
)
def test_the_version_is_read(told: str, version: int) -> None:
    assert launcher.java_version(told) == version


@pytest.mark.parametrize(
    ("version", "status", "usable"), [("17.0.1", 0, True), ("11.0.2", 0, False), ("17.0.1", 1, False)]
)
def test_a_java_is_tried(tmp_path: Path, version: str, status: int, usable: bool) -> None:
    assert launcher.is_usable(str(fake_java(tmp_path, version, status))) is usable
    assert not launcher.is_usable(str(tmp_path / "nothing"))


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_java_home_comes_first(no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # sh is not in the PATH of this test, and the fakes name it in full.
    fake_java(tmp_path / "mine", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    launcher.use_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "mine")


def test_the_path_comes_second_and_a_java_home_that_is_too_old_is_forgotten(
    no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    fake_java(tmp_path / "other", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    launcher.use_java()
    assert "JAVA_HOME" not in os.environ


def test_the_packaged_java_comes_last_and_stands_behind_a_script(
    no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    launcher.use_java()
    home = Path(os.environ["JAVA_HOME"])
    assert home.is_relative_to(tmp_path / "cache" / "quiver")
    assert launcher.is_usable(str(home / "bin" / "java"))
    # A process that inherits the variable is content with it.
    launcher.use_java()
    assert os.environ["JAVA_HOME"] == str(home)


def test_no_java_at_all_is_told(no_java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "find_spec", lambda _: None)
    with pytest.raises(NotFound, match=r"Java 17 or later.*pip install 'quivermq\[spark\]'"):
        launcher.use_java()


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["-Xmx1g", "--add-modules=jdk.incubator.vector", "Main"], ["-Xmx1g", "Main"]),
        (["--add-modules", "jdk.incubator.vector", "Main", "an arg", ""], ["Main", "an arg", ""]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["--add-modules=java.sql", "a'b"], ["--add-modules=java.sql", "a'b"]),
    ],
)
def test_the_script_drops_the_module_and_nothing_else(
    tmp_path: Path, given: list[str], passed: list[str]
) -> None:
    behind = program(tmp_path / "it's here" / "java", 'for a do printf "%s\\n" "$a"; done')
    script = tmp_path / "script"
    script.write_text(launcher.java_script(behind))
    told = subprocess.run(["/bin/sh", script, *given], capture_output=True, text=True, check=True)
    assert told.stdout.split("\n")[:-1] == passed
