"""One line of the report: a figure, the limits beside it, the goal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.shape import Shape

Unit = Literal["messages/s", "bytes/s", "seconds", "bytes"]

_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach: at least a value, less than one, a share of its first limit, or, beyond
    that limit, no more than so much."""

    kind: Literal["at least", "below", "share", "beyond"]
    value: float

    def text(self, unit: Unit) -> str:
        if self.kind == "share":
            return f"ratio ≥ {self.value:g}"
        if self.kind == "beyond":
            return f"≤ limit + {formatted(self.value, unit)}"
        return f"{'≥' if self.kind == 'at least' else '<'} {formatted(self.value, unit)}"

    def is_met(self, value: float, ratio: float | None) -> bool:
        if self.kind == "share":
            return ratio is not None and ratio >= self.value
        if self.kind == "beyond":
            return ratio is not None and ratio > 0 and value - value / ratio <= self.value
        return value >= self.value if self.kind == "at least" else value < self.value


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured of a contender, what one unit of it took of the CPU, and what held it up."""

    value: float
    cpu_s: float | None = None
    """None where nobody looked, or where it is no cost of a unit."""
    held_up_by: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and what belongs beside it. The first limit is the one that the goal may speak of."""

    name: str
    unit: Unit
    figure: Figure
    limits: Mapping[str, Figure] = field(default_factory=dict)
    goal: Goal | None = None
    shape: Shape = "plain"

    def ratio(self, limit: str) -> float | None:
        """The figure as a multiple of a limit; below 1 is normal for a rate, above 1 for a time."""
        value = self.limits[limit].value
        return self.figure.value / value if value else None

    @property
    def is_met(self) -> bool | None:
        if self.goal is None:
            return None
        ratio = self.ratio(next(iter(self.limits))) if self.limits else None
        return self.goal.is_met(self.figure.value, ratio)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "messages": self.shape,
            "unit": self.unit,
            "value": self.figure.value,
            "cpu_s": self.figure.cpu_s,
            "limits": [
                {"name": name, "value": limit.value, "cpu_s": limit.cpu_s, "ratio": self.ratio(name)}
                for name, limit in self.limits.items()
            ],
            "goal": None if self.goal is None else {"kind": self.goal.kind, "value": self.goal.value},
            "met": self.is_met,
            "limited_by": self.figure.held_up_by,
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that could not be measured here, and why."""

    name: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "skipped": self.reason}


def formatted(value: float, unit: Unit) -> str:
    """Three digits and a unit."""
    if unit == "seconds":
        return f"{_digits(value * 1000)} ms"
    if unit == "bytes":
        return f"{_digits(value / _MIB)} MiB"
    return f"{short(value)}{'' if value >= 1e3 else ' '}{'B/s' if unit == 'bytes/s' else '/s'}"


def short(value: float) -> str:
    """Three digits and a prefix."""
    prefix, factor = next((p, f) for p, f in _PREFIXES if value >= f or f == 1.0)
    return f"{_digits(value / factor)} {prefix}".rstrip()


def formatted_cpu(cpu_s: float | None, unit: Unit) -> str:
    """What a message, a megabyte or an opening took of the CPU; nothing where nobody looked."""
    if cpu_s is None:
        return ""
    if unit == "bytes/s":
        cpu_s *= 1e6
    return f"{_digits(cpu_s * 1e6)} µs" if cpu_s < 1e-3 else f"{_digits(cpu_s * 1e3)} ms"


def formatted_ratio(ratio: float | None) -> str:
    """Two digits that count; nothing where the limit is zero."""
    if ratio is None:
        return ""
    return f"{ratio:.2g}" if ratio < 1 else _digits(ratio)


def _digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    # Two digits behind the point are enough for what is small, and `2` reads better than `2.00`.
    return f"{value:.3g}" if value >= 1 else f"{value:.2f}"
