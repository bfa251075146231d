"""Lives of a program that uses Spark, each a process of its own: it ends by itself, or is killed."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from quivermq.spark.session import worker_python
from support.spark_classes import python_path, quick_start
from support.spark_deaths import DEATHS, HELD, LIFE_VARIABLE, Death, kill_driver, marker
from support.spark_doors import Door

_PATIENCE_S = 600
# Python itself imports this when it starts.
_CUSTOMIZE = "from support.spark_deaths import begin_life\n\nbegin_life()\n"

# What to do, and its arguments: `support.spark_program` knows how.
Work = tuple[str, dict[str, Any]]


class Lives:
    """One program, in as many lives as it takes. Nobody of them is left after the `with` statement."""

    def __init__(self, directory: Path, *, master: str = "local[2,4]") -> None:
        self._directory = directory
        self._custom = directory / "custom"
        self._custom.mkdir(parents=True)
        (self._custom / "sitecustomize.py").write_text(_CUSTOMIZE)
        self._master = master
        self._lives: list[Path] = []
        # Who is killed leaves everything there. Short, because sockets are there as well.
        self._left_behind = tempfile.mkdtemp(prefix="lives-")

    def die(
        self,
        *work: Work,
        at: Death | Door,
        before: Sequence[Death] = (),
        server: str | None = None,
        is_spark_needed: bool = True,
    ) -> None:
        """Be killed at a step, or at a call that comes to a door whose act is `kill`.

        Whoever dies `before` is somebody else. Work for a server of Spark Connect dies with its client.
        Work for which Spark is not needed at first dies before it would start it.
        """
        deaths = [*before, at] if isinstance(at, Death) else before
        code, errors = self._live(work, deaths, (server or self._master) if is_spark_needed else None)
        assert isinstance(at, Death) or at.is_reached, f"{at}: nobody came there: {errors}"
        assert code == -signal.SIGKILL, f"{at}: ended with {code}: {errors}"

    def live(self, *work: Work, deaths: Sequence[Death] = ()) -> None:
        """Come to the end, whoever else dies on the way."""
        code, errors = self._live(work, deaths, self._master)
        assert code == 0, f"ended with {code}: {errors}"

    def kill(self) -> None:
        """Kill the driver that lives now and its Java, from whichever thread."""
        kill_driver(self._lives[-1])

    def wait_for_orphans(self) -> None:
        """Return when no Python of any life is left: some come to the end of what they do."""
        for life in self._lives:
            with (life / HELD).open() as held:
                fcntl.flock(held, fcntl.LOCK_EX)

    def _live(self, work: Sequence[Work], deaths: Sequence[Death], master: str | None) -> tuple[int, str]:
        life = self._directory / f"life-{len(self._lives)}"
        life.mkdir()
        (life / DEATHS).write_text(json.dumps(deaths))
        (life / HELD).touch()
        self._lives.append(life)
        shared = {"PYTHONPATH": python_path(self._custom), LIFE_VARIABLE: str(life)}
        process = subprocess.Popen(
            [sys.executable, "-m", "support.spark_program", json.dumps(self._given(work, shared, master))],
            env={**os.environ, **self._places(), **shared},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            # Its Java has the pipe as well, so both have ended then.
            _, errors = process.communicate(timeout=_PATIENCE_S)
        except BaseException:
            # Also when the test is interrupted, or took too long: nobody else would end it.
            kill_driver(life)
            raise
        for number, death in enumerate(deaths):
            assert marker(life, number).exists(), f"nobody came to {death}: {errors.decode()[-4000:]}"
        return process.returncode, errors.decode(errors="replace")[-4000:]

    def _given(self, work: Sequence[Work], shared: dict[str, str], master: str | None) -> dict[str, Any]:
        # Executors of a cluster inherit nothing.
        conf = {f"spark.executorEnv.{name}": value for name, value in shared.items()}
        java = f"{quick_start()} -Djava.io.tmpdir={self._left_behind}"
        conf |= {f"spark.{each}.extraJavaOptions": java for each in ("driver", "executor")}
        return {"master": master, "conf": conf, "work": work}

    def _places(self) -> dict[str, str]:
        return {
            "PYSPARK_PYTHON": worker_python(),
            "SPARK_LOCAL_DIRS": self._left_behind,
            "TMPDIR": self._left_behind,
        }

    def __enter__(self) -> "Lives":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait_for_orphans()
        shutil.rmtree(self._left_behind)
