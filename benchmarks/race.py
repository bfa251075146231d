"""Contenders take turns, with plain and real messages in the same rounds, and rows come of it.

A group of benchmarks declares what runs for messages of one shape; here this becomes a row and its twin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.measure import Measured, Pick, alternate, limited_by
from benchmarks.row import Figure, Goal, Row, Unit
from benchmarks.shape import Shape
from benchmarks.workload import Bench

PLAIN_MESSAGES = "plain messages"

Entry = tuple[Shape, str]
# Lets all that entered run, in turns, and returns what was seen of each.
Run = Callable[[Mapping[Entry, Any]], Mapping[Entry, Any]]


def rate(seen: Measured) -> Figure:
    """Units a second."""
    return Figure(seen.rate, seen.cpu_s, limited_by(seen.usage, sync_s=seen.sync_s))


def seconds(seen: Measured) -> Figure:
    """How long one unit took."""
    return Figure(1 / seen.rate, seen.cpu_s, limited_by(seen.usage, sync_s=seen.sync_s))


def itself(seen: Figure) -> Figure:
    return seen


def turns(rounds: int, pick: Pick = "best") -> Run:
    """So many rounds in this process."""
    return partial(alternate, rounds=rounds, pick=pick)


def once(entered: Mapping[Entry, Callable[[], Any]]) -> dict[Entry, Any]:
    """Each by itself, one after the other, for what does not drift."""
    return {entry: call() for entry, call in entered.items()}


@dataclass(frozen=True, slots=True)
class Subject:
    """A contender that has a row."""

    name: str
    contender: str
    goal: Goal | None = None
    real_goal: Goal | None = None
    """Of its twin; a share is one of the plain figure."""
    limits: Sequence[str] | None = None
    """Those it is shown beside, as far as they run; without this, all that are no subjects."""
    figure: Callable[[Any], Figure] = rate


@dataclass(frozen=True, slots=True)
class Race:
    """What is to be measured together. Nothing happens before `rows` is called."""

    contenders: Callable[[Shape], Mapping[str, Any]]
    """Those that can run with messages of that shape, by name."""
    subjects: Sequence[Subject]
    run: Run
    unit: Unit = "messages/s"

    def rows(self, bench: Bench) -> list[Row]:
        """A row of every subject and, behind it, its twin with real messages."""
        own = {subject.contender for subject in self.subjects}
        entered = {
            (shape, name): contender
            for shape in bench.shapes
            for name, contender in self.contenders(shape).items()
            if name in own or not bench.is_alone
        }
        seen = self.run(entered)
        return [self._row(subject, shape, seen) for subject in self.subjects for shape in bench.shapes]

    def _row(self, subject: Subject, shape: Shape, seen: Mapping[Entry, Any]) -> Row:
        limits = {
            name: subject.figure(seen[shape, name])
            for name in self._limits(subject, [name for of, name in seen if of == shape])
        }
        goal = subject.goal
        if shape == "real":
            goal = subject.real_goal
            if plain := seen.get(("plain", subject.contender)):
                limits = {PLAIN_MESSAGES: subject.figure(plain), **limits}
        figure = subject.figure(seen[shape, subject.contender])
        return Row(subject.name, self.unit, figure, limits, goal, shape)

    def _limits(self, subject: Subject, there: Iterable[str]) -> list[str]:
        if subject.limits is not None:
            return [name for name in subject.limits if name in there]
        own = {subject.contender for subject in self.subjects}
        return [name for name in there if name not in own]
