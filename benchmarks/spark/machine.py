"""How busy the whole machine was: Spark works in many processes, of which this one knows nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Measured, Prepare, Work, alternate
from benchmarks.row import Goal, Row

_STAT = Path("/proc/stat")


@dataclass
class Contest:
    """Contenders that take turns, and how busy the machine was with each."""

    rounds: int
    measured: dict[str, Measured] = field(default_factory=dict)
    busy: dict[str, list[float]] = field(default_factory=dict)

    def run(self, contenders: Mapping[str, Prepare]) -> None:
        watched = {name: self._watched(name, prepare) for name, prepare in contenders.items()}
        if self.rounds > 1:
            # The first time, classes are loaded and code is compiled: that is told of no one. A single
            # round only shows that it runs.
            alternate(watched, 1)
            self.busy.clear()
        self.measured |= alternate(watched, self.rounds)

    def row(self, name: str, subject: str, limits: Mapping[str, str], goal: Goal | None) -> Row:
        """A row of a contender, and those that it is compared with by what they are called there."""
        beside = {shown: self.measured[other].rate for shown, other in limits.items()}
        return Row(name, "messages/s", self.measured[subject].rate, beside, goal, self.held_up_by(subject))

    def held_up_by(self, name: str) -> str:
        percents = self.busy[name]
        return f"CPUs {sum(percents) / len(percents):.0f} % busy"

    def _watched(self, name: str, prepare: Prepare) -> Prepare:
        @contextmanager
        def watching() -> Iterator[Work]:
            with prepare() as work:

                def run() -> int:
                    before = _ticks()
                    units = work()
                    busy, total = (now - then for now, then in zip(_ticks(), before, strict=True))
                    self.busy.setdefault(name, []).append(100 * busy / max(total, 1))
                    return units

                yield run

        return watching


def _ticks() -> tuple[int, int]:
    """The busy ticks of all CPUs since the machine started, and all of them."""
    ticks = [int(number) for number in _STAT.read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
