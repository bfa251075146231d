"""Lives of a program that uses Spark, each a process of its own: it ends by itself, or is killed."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.spark_classes import python_path, quick_start
from support.spark_deaths import DEATHS, HELD, LIFE_VARIABLE, Death, kill_driver, marker

_PATIENCE_S = 300
# Python itself imports this when it starts.
_CUSTOMIZE = "from support.spark_deaths import begin_life\n\nbegin_life()\n"

KILLED = -signal.SIGKILL

Work = tuple[str, dict[str, Any]]


class Lives:
    """One program, in as many lives as it takes."""

    def __init__(self, directory: Path, *, master: str | None = "local[2,4]") -> None:
        """Without a master it is left to the work to start Spark, which perhaps does not come to that."""
        self._directory = directory
        self._custom = directory / "custom"
        self._custom.mkdir(parents=True)
        (self._custom / "sitecustomize.py").write_text(_CUSTOMIZE)
        self._master = master
        self._lives: list[Path] = []

    def die(self, *work: Work, at: Death | None = None, master: str | None = "") -> None:
        """Be killed: at a step, or by somebody who calls `kill`."""
        code, errors = self._live(work, [] if at is None else [at], master)
        assert code == KILLED, f"{at}: ended with {code}: {errors}"

    def live(self, *work: Work, deaths: Sequence[Death] = ()) -> None:
        """Come to the end, whoever else dies on the way."""
        code, errors = self._live(work, deaths, "")
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
        self._lives.append(life)
        shared = {"PYTHONPATH": python_path(self._custom), LIFE_VARIABLE: str(life)}
        # Executors of a cluster inherit nothing.
        conf = {f"spark.executorEnv.{name}": value for name, value in shared.items()}
        conf |= {f"spark.{each}.extraJavaOptions": quick_start() for each in ("driver", "executor")}
        given = {"master": self._master if master == "" else master, "conf": conf, "work": work}
        process = subprocess.Popen(
            [sys.executable, "-m", "support.spark_program", json.dumps(given)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, **shared},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            # Its Java has the pipe as well, so both have ended then.
            _, errors = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            kill_driver(life)
            raise
        for number, death in enumerate(deaths):
            assert marker(life, number).exists(), f"nobody came to {death}"
        return process.returncode, errors.decode(errors="replace")[-8000:]
