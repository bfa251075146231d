"""The asynchronous surface is what `make asynchronous` makes out of the other one."""

import sys
from pathlib import Path

import asynchronous
import pytest


@pytest.fixture(autouse=True)
def _check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["asynchronous.py", "--check"])


def test_what_is_made_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert asynchronous.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize("source", asynchronous.MODULES)
def test_what_is_not_is_named_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    target = tmp_path / "made.py"
    right = (asynchronous.SOURCE / asynchronous.MODULES[source]).read_text()
    monkeypatch.setattr(asynchronous, "MODULES", {source: str(target)})
    assert asynchronous.main() == 1
    assert not target.exists()
    target.write_text(right)
    assert asynchronous.main() == 0
    target.write_text(stale := right + "# Written by hand.\n")
    assert asynchronous.main() == 1
    assert target.read_text() == stale
    assert f"{target} is not what its source says" in capsys.readouterr().out
