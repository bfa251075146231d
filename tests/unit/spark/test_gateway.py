"""The Java process ends with the command that somebody interrupts."""

import shlex
import subprocess
import sys
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark import java_gateway as imported

from quivermq.spark.launcher import end, ended_when_interrupted

java_gateway: Any = imported
STARTED = "import signal; print(flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def test_what_was_started_ends_when_interrupted() -> None:
    usual = java_gateway.Popen
    started = []

    def start() -> None:
        started.append(java_gateway.Popen([sys.executable, "-c", "import signal; signal.pause()"]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ended_when_interrupted():
        start()
    assert started[0].poll() is not None
    assert java_gateway.Popen is usual


def test_whatever_it_has_started_ends_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Java runs, there are scripts that start each other."""
    monkeypatch.setattr(SparkContext, "_gateway", object())
    started = []

    def start() -> None:
        inner = shlex.join([sys.executable, "-c", STARTED])
        started.append(java_gateway.Popen(["sh", "-c", f"{inner} & wait"], stdout=subprocess.PIPE))
        started[0].stdout.readline()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ended_when_interrupted():
        start()
    # Everybody has the pipe, so its end is that of all.
    with started[0].stdout as told:
        assert told.read() == b""
    # Otherwise whoever tries again would ask one that is not there any more.
    assert SparkContext._gateway is None


def test_what_is_not_interrupted_goes_on() -> None:
    with ended_when_interrupted():
        process = java_gateway.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    assert process.poll() is None
    end(process)
    assert process.poll() is not None


def test_what_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quivermq.spark.launcher._SECONDS", 0.01)
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        end(process)
    assert process.returncode == -9


def test_an_interruption_that_fails_is_one() -> None:
    def signal_handler() -> None:
        raise OSError("in the midst of a question")

    with pytest.raises(KeyboardInterrupt), ended_when_interrupted():
        signal_handler()
    with pytest.raises(OSError, match="Java"), ended_when_interrupted():
        raise OSError("no Java")
