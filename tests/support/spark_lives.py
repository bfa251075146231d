"""Lives of a driver of Spark, each in its own process, which ends by itself or is killed at some step."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import spark_driver
from support.spark_driver import GROUP_VARIABLE

_PATIENCE_S = 180

# Found by every Python that Spark starts: it lets the driver, and then itself, die at a step of the disk.
_CUSTOMIZE = f"""
import os, signal
wanted = os.environ.get("QUIVER_TEST_DIES_AT")
if wanted:
    from quivermq.disk import SystemDisk, SystemFile
    call, when, ending = wanted.split(" ")

    def die():
        os.killpg(int(os.environ["{GROUP_VARIABLE}"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def dying(method, path_of):
        def step(self, *args):
            is_meant = str(path_of(self, *args)).endswith(ending)
            if is_meant and when == "before":
                die()
            result = method(self, *args)
            if is_meant and when == "after":
                die()
            return result
        return step

    if call == "append":
        SystemFile.append = dying(SystemFile.append, lambda file, *_: file.path)
    else:
        setattr(SystemDisk, call, dying(getattr(SystemDisk, call), lambda disk, *paths: paths[-1]))
"""


class Driver:
    """One query over the files of a directory, in as many lives as it takes."""

    def __init__(self, directory: Path, *, files: int, **sink: str) -> None:
        self.input = directory / "in"
        self.input.mkdir(parents=True)
        self._custom = directory / "custom"
        self._custom.mkdir()
        (self._custom / "sitecustomize.py").write_text(_CUSTOMIZE)
        self._given: dict[str, Any] = {
            "input": str(self.input),
            "checkpoint": str(directory / "checkpoint"),
            "files": files,
            "sink": sink,
            "master": "local[2,4]",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def add_file(self, name: str, lines: list[str]) -> None:
        (self.input / name).write_text("\n".join(lines))

    def live(self, dies_at: str = "", **given: Any) -> int:
        """Run until it ends, and return how: 0, or minus the signal that killed it.

        `dies_at` is a call of the disk, `before` or `after`, and how the path ends that it is about.
        """
        self.start(dies_at, **given)
        assert self._process is not None
        try:
            _, errors = self._process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        if self._process.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(errors.decode(errors="replace")[-4000:])
        return self._process.returncode

    def start(self, dies_at: str = "", **given: Any) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._custom),
            "PYSPARK_PYTHON": sys.executable,
            "QUIVER_TEST_DIES_AT": dies_at,
        }
        command = [sys.executable, spark_driver.__file__, json.dumps({**self._given, **given})]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # A group of its own, with the Java that it starts.
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the driver and its Java, from whichever thread, if it lives."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
