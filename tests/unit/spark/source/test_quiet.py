"""Tracebacks of broken pipes, in worker processes alone, are not printed."""

import pickle
import traceback

import pytest
from pyspark import TaskContext

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
    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext())
    assert pickle.loads(pickle.dumps(Quiet())).__dict__ == {}
    assert printed(BrokenPipeError(), capsys) == ""
    assert "ValueError: broken" in printed(ValueError("broken"), capsys)
