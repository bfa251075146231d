"""How much memory a process takes in which a million delayed messages wait."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Usage, limited_by
from benchmarks.memory_reader import STATUS
from benchmarks.race import Race, Subject, itself, once
from benchmarks.row import Figure, Goal, Skipped
from benchmarks.shape import Shape
from benchmarks.workload import Bench, fresh_directory, short_number

_ROOT = Path(__file__).parents[1]
_GOAL = Goal("below", 300e6)
_TASKS = {"put": "put and held", "open": "opened again"}


def delayed(bench: Bench) -> Iterable[Race | Skipped]:
    """The most that a process ever had, interpreter and all: one that put, and one that opened them."""
    number = bench.scale.delayed
    name = f"{short_number(number)} delayed"
    if not STATUS.exists():
        yield Skipped(name, f"there is no {STATUS} on this system")
        return
    subjects = [
        Subject(f"{name}, {word}: memory", task, _GOAL, figure=itself) for task, word in _TASKS.items()
    ]
    with fresh_directory(bench.place) as path:
        yield Race(partial(_contenders, path, number), subjects, once, unit="bytes")


def _contenders(path: Path, number: int, shape: Shape) -> dict[str, Callable[[], Figure]]:
    names = {**{task: task for task in _TASKS}, "a list of the messages": "list"}
    return {name: partial(_held, path / shape, task, number, shape) for name, task in names.items()}


def _held(path: Path, task: str, number: int, shape: Shape) -> Figure:
    command = [sys.executable, "-m", "benchmarks.delayed_holder", str(path), task, str(number), shape]
    ended = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE)
    seen: dict[str, Any] = json.loads(ended.stdout)
    usage = Usage(**seen["usage"])
    cpu_s = (usage.user_s + usage.system_s) / number
    return Figure(float(seen["resident"]), cpu_s, limited_by(usage))
