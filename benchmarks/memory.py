"""How much memory a reader takes for a log that is far larger."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import Usage, limited_by
from benchmarks.memory_reader import STATUS
from benchmarks.row import Goal, Row, Skipped
from benchmarks.scale import MIB
from benchmarks.workload import MESSAGE_BYTES, Bench, filled_log, free_space_obstacle

_ROOT = Path(__file__).parents[1]
_FLAT = Goal("below", 64 * MIB)


def memory(bench: Bench) -> Iterable[Row | Skipped]:
    """Growth of a process that reads everything, beside one that does it with system calls alone."""
    size = bench.scale.memory_bytes
    if reason := _obstacle(bench.place, size):
        return [Skipped(f"memory while reading {size // MIB} MiB", reason)]
    with filled_log(bench, messages=size // MESSAGE_BYTES, batch=1000) as path:
        return [*_rows(path, size, "frames", "pread"), *_rows(path, size, "mapped", "mmap")]


def _obstacle(place: Path, size: int) -> str | None:
    if not STATUS.exists():
        return f"there is no {STATUS} on this system"
    return free_space_obstacle(place, size)


def _rows(path: Path, size: int, reader: str, plain_reader: str) -> Iterable[Row]:
    seen, plain = _growth(path, reader), _growth(path, plain_reader)
    word = limited_by(Usage(**seen["usage"]))
    name = f"{size // MIB} MiB of {'frames' if reader == 'frames' else 'mapped frames'}"
    for kind, goal in (("anonymous", _FLAT), ("file", None)):
        limits = {f"a loop over {plain_reader}": float(plain[kind])}
        yield Row(f"{name}: {kind} memory", "bytes", seen[kind], limits, goal, word)


def _growth(path: Path, reader: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory_reader", str(path), reader]
    ended = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    growth: dict[str, Any] = json.loads(ended.stdout)
    return growth
