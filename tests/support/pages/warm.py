"""Programs that have imported everything already: `quiver`, `python` and `pip` as the pages call them.

Starting Python and importing the package takes longer than nearly every example, and starting Spark takes
much longer. So two servers wait: one forks itself for each call, the other one, for calls that need Spark,
makes them one after the other, in one process with one Java. What is called on a page is a small client
that hands over its arguments, its environment and its open files, and ends with the answer.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from support.pages.blocks import ROOT

_CLIENT = Path(__file__).with_name("warm_client.py")
_SERVER = Path(__file__).with_name("warm_server.py")
# So many seconds may a server take to end.
_PATIENCE_S = 30


class WarmServers:
    """The servers, and the directory with the programs that ask them. For a `with` statement."""

    def __init__(self, directory: Path) -> None:
        self.programs = directory / "bin"
        self.programs.mkdir(parents=True)
        self._sockets = {kind: str(directory / f"{kind}.socket") for kind in ("plain", "spark")}
        self._processes: list[subprocess.Popen[bytes]] = []
        # Isolated and without site-packages: the client needs none of them, and starts four times as fast.
        for name in ("quiver", "python", "python3", "pip"):
            self._add_program(name, f'exec {sys.executable} -IS {_CLIENT} {name} "$@"')
        # Make is asked only whether it knows the target, and must not join the one that runs the tests.
        make = f'unset MAKEFLAGS MAKELEVEL; exec {shutil.which("make")} -C {ROOT} --dry-run "$@"'
        self._add_program("make", make)

    @property
    def environment(self) -> dict[str, str]:
        """What the programs have to know."""
        return {"WARM_PLAIN": self._sockets["plain"], "WARM_SPARK": self._sockets["spark"]}

    def start(self, kind: str, directory: Path | None = None) -> None:
        """Start the server for `plain` calls, or for those of `spark`; returns when it listens.

        The pages that use the latter have to be run in its `directory`, because its Java stays there.
        """
        process = subprocess.Popen(
            [sys.executable, _SERVER, kind, self._sockets[kind]],
            # A page is over before Java's better compiler has earned its time.
            env=os.environ | {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", f"the warm server for {kind} does not start"

    def __enter__(self) -> "WarmServers":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(_PATIENCE_S)
            with contextlib.suppress(ProcessLookupError):
                # What an example has left running.
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdout is not None:
                process.stdout.close()

    def _add_program(self, name: str, command: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)
