"""Where a process of Spark dies: at a step of the disk that a test names, in whichever Python takes it.

A life of a program has a directory, named by a variable that all its processes inherit. There they find
which deaths are wanted, and note that they came. Every Python of a life calls `begin_life` when it starts.
"""

import fcntl
import json
import os
import signal
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

# Without the prefix of settings, of which an unknown one is an error.
LIFE_VARIABLE = "TEST_LIFE"

DEATHS, PROCESSES, HELD = "deaths.json", "processes", "held"


class Death(NamedTuple):
    """Before or after a call of the disk that is about such a path, counted in each process for itself."""

    call: str
    """A method of the disk, or `append` to a file."""
    when: str
    path: str
    """A pattern, as `fnmatch` has them."""
    number: int = 1
    victim: str = "driver"
    """With its Java; or `worker`, a Python that runs tasks; or `executor`, the Java that it belongs to."""


def begin_life() -> None:
    """Let this process and all that it forks be part of the life, and die where it is wanted."""
    text = os.environ.get(LIFE_VARIABLE)
    if text is None:
        return
    life = Path(text)
    # Nobody ever closes it: it is free when the last process has ended, however that came.
    held = os.open(life / HELD, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_SH)
    for number, wanted in enumerate(json.loads((life / DEATHS).read_text())):
        _prepare(life, number, Death(*wanted))


def note_process(pid: int) -> None:
    """Note a leader of a group that is killed when the driver is, if this is a life that ends so."""
    if LIFE_VARIABLE not in os.environ:
        return
    with (Path(os.environ[LIFE_VARIABLE]) / PROCESSES).open("a") as noted:
        noted.write(f"{pid}\n")


def kill_driver(life: Path) -> None:
    """Kill the driver of a life and its Java, and nobody else: what runs its tasks finds out by itself."""
    noted = life / PROCESSES
    groups = [int(pid) for pid in noted.read_text().split()] if noted.exists() else []
    # The driver first, which would tell of it otherwise that its Java is gone; unless it is who calls.
    for group in sorted(groups, key=lambda group: group == os.getpgid(0)):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue  # Somebody else was faster.


def marker(life: Path, number: int) -> Path:
    """The file that says that a wanted death came."""
    return life / f"died-{number}"


def _prepare(life: Path, number: int, death: Death) -> None:
    from quivermq.disk import SystemDisk, SystemFile

    owner: Any = SystemFile if death.call == "append" else SystemDisk
    method: Callable[..., Any] = getattr(owner, death.call)
    count = 0

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        is_meant = fnmatch(str(self.path if owner is SystemFile else args[-1]), death.path)
        count += is_meant
        is_meant = is_meant and count == death.number
        if is_meant and death.when == "before":
            _die(life, number, death)
        result = method(self, *args, **kwargs)
        if is_meant and death.when == "after":
            _die(life, number, death)
        return result

    setattr(owner, death.call, step)


def _die(life: Path, number: int, death: Death) -> None:
    """Die, once in a life: another attempt at the same task lives on."""
    try:
        marker(life, number).touch(exist_ok=False)
    except FileExistsError:
        return
    if death.victim == "driver":
        kill_driver(life)
    elif death.victim == "executor":
        # Tasks run in forks of a Python that an executor started.
        os.kill(_parent(os.getppid()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _parent(pid: int) -> int:
    # Behind the name, which may contain anything, the state and then the parent.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
