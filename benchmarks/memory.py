"""How much memory a reader takes for a log that is far larger."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Usage, limited_by
from benchmarks.memory_reader import STATUS
from benchmarks.race import Race, Subject, once
from benchmarks.row import Figure, Goal, Skipped
from benchmarks.scale import MIB
from benchmarks.shape import Shape
from benchmarks.workload import Bench, filled_log, free_space_obstacle, stored_bytes

_ROOT = Path(__file__).parents[1]
_FLAT = Goal("below", 64 * MIB)
_READERS = {"frames": ("frames", "pread"), "mapped frames": ("mapped", "mmap")}

_Growth = dict[str, Any]


def memory(bench: Bench) -> Iterable[Race | Skipped]:
    """Growth of a process that reads everything, beside one that does it with system calls alone."""
    size = bench.scale.memory_bytes
    if reason := _obstacle(bench.place, size * len(bench.shapes)):
        yield Skipped(f"memory while reading {size // MIB} MiB", reason)
        return
    with ExitStack() as stack:
        paths = {shape: stack.enter_context(_filled(bench, size, shape)) for shape in bench.shapes}
        for name, readers in _READERS.items():
            subjects = [
                Subject(
                    f"{size // MIB} MiB of {name}: {kind} memory",
                    readers[0],
                    goal,
                    goal,
                    figure=partial(_of, kind),
                )
                for kind, goal in (("anonymous", _FLAT), ("file", None))
            ]
            yield Race(partial(_contenders, paths, readers), subjects, once, unit="bytes")


def _filled(bench: Bench, size: int, shape: Shape) -> AbstractContextManager[Path]:
    return filled_log(bench, messages=size // stored_bytes(shape), batch=1000, shape=shape)


def _contenders(
    paths: Mapping[Shape, Path], readers: tuple[str, str], shape: Shape
) -> dict[str, Callable[[], _Growth]]:
    ours, plain = readers
    path = paths[shape]
    return {ours: partial(_growth, path, ours), f"a loop over {plain}": partial(_growth, path, plain)}


def _of(kind: str, seen: _Growth) -> Figure:
    return Figure(float(seen[kind]), held_up_by=limited_by(Usage(**seen["usage"])))


def _obstacle(place: Path, size: int) -> str | None:
    if not STATUS.exists():
        return f"there is no {STATUS} on this system"
    return free_space_obstacle(place, size)


def _growth(path: Path, reader: str) -> _Growth:
    command = [sys.executable, "-m", "benchmarks.memory_reader", str(path), reader]
    ended = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    growth: _Growth = json.loads(ended.stdout)
    return growth
