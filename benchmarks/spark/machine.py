"""How busy the whole machine was: Spark works in many processes, of which this one knows nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker.processes import tree_cpu_s
from benchmarks.measure import Prepare, Work, alternate
from benchmarks.race import Entry, Run
from benchmarks.row import Figure

_STAT = Path("/proc/stat")


@dataclass(slots=True)
class _Watched:
    """What was seen of a contender in all rounds."""

    busy_percents: list[float]
    cpu_s: float = 0.0
    messages: int = 0

    def clear(self) -> None:
        self.busy_percents, self.cpu_s, self.messages = [], 0.0, 0

    @property
    def held_up_by(self) -> str:
        return f"CPUs {sum(self.busy_percents) / len(self.busy_percents):.0f} % busy"


def on_machine(rounds: int) -> Run:
    """Turns, with what this process and all that it started used of the CPU."""

    def run(entered: Mapping[Entry, Prepare]) -> dict[Entry, Figure]:
        seen = {entry: _Watched([]) for entry in entered}
        contenders = {entry: _watching(prepare, seen[entry]) for entry, prepare in entered.items()}
        if rounds > 1:
            # The first time, classes are loaded and code is compiled: that is told of no one. A single
            # round only shows that it runs.
            alternate(contenders, 1)
            for each in seen.values():
                each.clear()
        measured = alternate(contenders, rounds)
        return {
            entry: Figure(measured[entry].rate, each.cpu_s / each.messages, each.held_up_by)
            for entry, each in seen.items()
        }

    return run


def _watching(prepare: Prepare, seen: _Watched) -> Prepare:
    @contextmanager
    def watching() -> Iterator[Work]:
        with prepare() as work:

            def run() -> int:
                before, used_s = _ticks(), tree_cpu_s()
                messages = work()
                seen.cpu_s += tree_cpu_s() - used_s
                seen.messages += messages
                busy, total = (now - then for now, then in zip(_ticks(), before, strict=True))
                seen.busy_percents.append(100 * busy / max(total, 1))
                return messages

            yield run

    return watching


def _ticks() -> tuple[int, int]:
    """The busy ticks of all CPUs since the machine started, and all of them."""
    ticks = [int(number) for number in _STAT.read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
