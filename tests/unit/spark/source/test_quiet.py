"""Tracebacks of broken pipes, in worker processes alone, are not printed."""

import subprocess
import sys
import traceback
from importlib.machinery import ModuleSpec

import pytest

from quivermq.spark.launcher import ignore_broken_pipes


def printed(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        raise error
    except type(error):
        traceback.print_exc()
    return capsys.readouterr().err


def test_only_workers_are_quiet_and_only_about_broken_pipes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)
    ignore_broken_pipes()
    assert "BrokenPipeError" in printed(BrokenPipeError(), capsys)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    ignore_broken_pipes()
    assert printed(BrokenPipeError(), capsys) == ""
    assert "ValueError: broken" in printed(ValueError("broken"), capsys)


_WORKER = """
import traceback
from importlib.machinery import ModuleSpec
__spec__ = ModuleSpec("pyspark.daemon", None)
import {module}
for error in BrokenPipeError("pipe"), ValueError("other"):
    try:
        raise error
    except Exception:
        traceback.print_exc()
"""


@pytest.mark.parametrize("module", ["quivermq.spark.sink.writers", "quivermq.spark.jobs.archive"])
def test_whatever_a_worker_runs_makes_it_quiet(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WORKER.format(module=module)], capture_output=True, text=True, check=True
    )
    assert "ValueError: other" in ran.stderr
    assert "BrokenPipeError" not in ran.stderr
