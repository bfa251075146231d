"""How much memory a process takes in which a million delayed messages wait."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import Usage, limited_by
from benchmarks.memory_reader import STATUS
from benchmarks.row import Goal, Row, Skipped
from benchmarks.workload import Bench, fresh_directory, short_number

_ROOT = Path(__file__).parents[1]
_GOAL = Goal("below", 300e6)


def delayed(bench: Bench) -> Iterable[Row | Skipped]:
    """The most that a process ever had, interpreter and all: one that put, and one that opened them."""
    number = bench.scale.delayed
    name = f"{short_number(number)} delayed"
    if not STATUS.exists():
        return [Skipped(name, f"there is no {STATUS} on this system")]
    with fresh_directory(bench.place) as path:
        plain = _held(path, "list", number)
        limits = {"a list of the messages": float(plain["resident"])}
        rows = []
        for task, word in (("put", "put and held"), ("open", "opened again")):
            seen = _held(path, task, number)
            held_up = limited_by(Usage(**seen["usage"]))
            rows.append(Row(f"{name}, {word}: memory", "bytes", seen["resident"], limits, _GOAL, held_up))
        return rows


def _held(path: Path, task: str, number: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.delayed_holder", str(path), task, str(number)]
    ended = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE)
    seen: dict[str, Any] = json.loads(ended.stdout)
    return seen
