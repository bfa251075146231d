"""Tracebacks of broken pipes, in worker processes alone, are not printed."""

import pickle
import sys
import traceback
from importlib.machinery import ModuleSpec

import pytest

from quivermq.spark.source.quiet import Quiet, ignore_broken_pipes


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
    arriving = Quiet()
    arriving.__dict__["options"] = 1
    assert pickle.loads(pickle.dumps(arriving)).__dict__ == {"options": 1}
    assert printed(BrokenPipeError(), capsys) == ""
    assert "ValueError: broken" in printed(ValueError("broken"), capsys)
