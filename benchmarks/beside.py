"""Two versions of the package beside each other: `python -m benchmarks --beside SRC`.

Each version runs in a process of its own, and the two take turns, race by race: while one measures, the
other waits. Every round starts both anew, and the other one begins. The benchmarks are those of this tree,
so another version must have what they call; where it does not have it, the row is said to be missing there.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import quivermq
from benchmarks.groups import loaded
from benchmarks.race import Race
from benchmarks.row import Row, Skipped, Unit, formatted, formatted_cpu, formatted_ratio
from benchmarks.workload import Bench

# Even, so that each version begins as often as the other.
ROUNDS = 4
THIS, OTHER = "this", "the other"

_ROOT = Path(__file__).parents[1]
_NUMBERS = [THIS, OTHER, "ratio", "CPU each", "of other", "CPU ratio"]
# Of the sentences that an error may have.
_REASON_CHARACTERS = 100

# What a process tells of a race: its rows as JSON.
_Rows = list[dict[str, Any]]


@dataclass(slots=True)
class Pair:
    """A row as both versions had it, in every round."""

    name: str
    shape: str
    unit: Unit = "messages/s"
    figures: dict[str, list[float]] = field(default_factory=lambda: {THIS: [], OTHER: []})
    cpu_s: dict[str, list[float]] = field(default_factory=lambda: {THIS: [], OTHER: []})
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name}, real" if self.shape == "real" else self.name

    def add(self, version: str, row: dict[str, Any]) -> None:
        if "skipped" in row:
            self.missing[version] = row["skipped"]
            return
        self.unit = row["unit"]
        self.figures[version].append(row["value"])
        if row["cpu_s"] is not None:
            self.cpu_s[version].append(row["cpu_s"])

    def figure(self, version: str) -> float | None:
        """The best round: the highest rate, the shortest time, the least memory."""
        best: Callable[[list[float]], float] = max if self.unit.endswith("/s") else min
        return best(self.figures[version]) if self.figures[version] else None

    def least_cpu_s(self, version: str) -> float | None:
        return min(self.cpu_s[version], default=None)

    def as_json(self) -> dict[str, Any]:
        both = (THIS, OTHER)
        return {
            "name": self.name,
            "messages": self.shape,
            "unit": self.unit,
            "values": {version: self.figure(version) for version in both},
            "cpu_s": {version: self.least_cpu_s(version) for version in both},
            "ratio": _ratio(self.figure(THIS), self.figure(OTHER)),
            "cpu_ratio": _ratio(self.least_cpu_s(THIS), self.least_cpu_s(OTHER)),
            "missing": self.missing,
        }


def compared(group: str, arguments: Sequence[str], other: Path, rounds: int) -> list[Pair]:
    """Run a group in both versions, so many rounds each."""
    pairs: dict[tuple[str, str], Pair] = {}
    for number in range(rounds):
        with ExitStack() as stack:
            sources = [(THIS, _own_source()), (OTHER, other)]
            turns = [
                (version, stack.enter_context(_told(group, arguments, source)))
                # Whoever comes second may find the machine warmer.
                for version, source in (sources if number % 2 == 0 else sources[::-1])
            ]
            for version, row in _in_turns(group, turns):
                shape = row.get("messages", "plain")
                pairs.setdefault((row["name"], shape), Pair(row["name"], shape)).add(version, row)
    return list(pairs.values())


def print_pairs(console: Console, title: str, pairs: Iterable[Pair]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("figure of", width=42)
    for name in _NUMBERS:
        table.add_column(name, width=11, justify="right")
    pairs = list(pairs)
    for pair in pairs:
        mine, other = pair.figure(THIS), pair.figure(OTHER)
        cpu, other_cpu = pair.least_cpu_s(THIS), pair.least_cpu_s(OTHER)
        if mine is None and other is None:
            continue
        table.add_row(
            pair.label,
            *("" if each is None else formatted(each, pair.unit) for each in (mine, other)),
            formatted_ratio(_ratio(mine, other)),
            *(formatted_cpu(each, pair.unit) for each in (cpu, other_cpu)),
            formatted_ratio(_ratio(cpu, other_cpu)),
        )
    console.print(table)
    for pair in pairs:
        for version, reason in pair.missing.items():
            console.print(f"{pair.label} cannot run in {version} version: {reason}", highlight=False)
    console.print()


def serve(name: str, bench: Bench) -> None:
    """Measure a group here, a race whenever a line comes in, and tell the rows of each in a line."""
    for answer in chain(_answers(name, bench), [_end]):
        if not sys.stdin.readline():
            return
        print(json.dumps(answer()), flush=True)


def _end() -> None:
    """What is told when there is no more."""


def _answers(name: str, bench: Bench) -> Iterator[Callable[[], _Rows]]:
    """What is to be done when it is asked for. What fails is a missing row, and the next may still run."""
    try:
        for each in loaded(name)(bench):
            yield partial(_measured, each, bench)
    except Exception as error:
        skipped = Skipped(name, _reason(error)).as_json()
        yield lambda: [skipped]


def _measured(each: Race | Row | Skipped, bench: Bench) -> _Rows:
    if not isinstance(each, Race):
        return [each.as_json()]
    try:
        return [row.as_json() for row in each.rows(bench)]
    except Exception as error:
        if len(bench.shapes) > 1:
            # Perhaps it can run with one of them.
            alone = [replace(bench, shapes=(shape,)) for shape in bench.shapes]
            return [row for one in alone for row in _measured(each, one)]
        missing = [Skipped(subject.name, _reason(error)).as_json() for subject in each.subjects]
        return [{**row, "messages": bench.shapes[0]} for row in missing]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]


Process = subprocess.Popen[str]


@contextmanager
def _told(group: str, arguments: Sequence[str], source: Path) -> Iterator[Process]:
    """A process that measures a group of the package in that directory when it is told to."""
    command = [sys.executable, "-m", "benchmarks", "--serve", "--only", group, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    with subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            # At the end of what it is told it clears up behind itself.
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()


def _in_turns(group: str, turns: Sequence[tuple[str, Process]]) -> Iterator[tuple[str, dict[str, Any]]]:
    running = dict(turns)
    while running:
        for version, process in list(running.items()):
            try:
                rows = _next_rows(process)
            except (EOFError, BrokenPipeError):
                del running[version]
                yield version, Skipped(group, "its process ended; what it said is above").as_json()
                continue
            if rows is None:
                del running[version]
            else:
                yield from ((version, row) for row in rows)


def _next_rows(process: Process) -> _Rows | None:
    """None when it has no more."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise EOFError
    rows: _Rows | None = json.loads(line)
    return rows


def _own_source() -> Path:
    return Path(quivermq.__file__).parents[1]


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def as_groups(groups: Mapping[str, Iterable[Pair]]) -> dict[str, _Rows]:
    return {name: [pair.as_json() for pair in pairs] for name, pairs in groups.items()}
