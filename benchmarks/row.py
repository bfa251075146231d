"""One line of the report: a figure, the limits beside it, the goal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.measure import Measured, limited_by

Unit = Literal["messages/s", "bytes/s", "seconds", "bytes"]

_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach: at least a value, less than one, or a share of its first limit."""

    kind: Literal["at least", "below", "share"]
    value: float

    def text(self, unit: Unit) -> str:
        if self.kind == "share":
            return f"ratio ≥ {self.value:g}"
        return f"{'≥' if self.kind == 'at least' else '<'} {formatted(self.value, unit)}"

    def is_met(self, value: float, ratio: float | None) -> bool:
        if self.kind == "share":
            return ratio is not None and ratio >= self.value
        return value >= self.value if self.kind == "at least" else value < self.value


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and what belongs beside it. The first limit is the one that the goal may speak of."""

    name: str
    unit: Unit
    value: float
    limits: Mapping[str, float] = field(default_factory=dict)
    goal: Goal | None = None
    limited_by: str = ""

    def ratio(self, limit: str) -> float | None:
        """The figure as a multiple of a limit; below 1 is normal for a rate, above 1 for a time."""
        return self.value / self.limits[limit] if self.limits[limit] else None

    @property
    def is_met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.goal.is_met(self.value, self.ratio(next(iter(self.limits))) if self.limits else None)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "value": self.value,
            "limits": [
                {"name": name, "value": value, "ratio": self.ratio(name)}
                for name, value in self.limits.items()
            ],
            "goal": None if self.goal is None else {"kind": self.goal.kind, "value": self.goal.value},
            "met": self.is_met,
            "limited_by": self.limited_by,
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that could not be measured here, and why."""

    name: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "skipped": self.reason}


def row_of(
    name: str,
    subject: Measured,
    limits: Mapping[str, Measured],
    *,
    unit: Unit = "messages/s",
    goal: Goal | None = None,
    sync_s: float | None = None,
) -> Row:
    """A row of what was measured in the same rounds."""
    return Row(
        name=name,
        unit=unit,
        value=_value(subject, unit),
        limits={limit: _value(each, unit) for limit, each in limits.items()},
        goal=goal,
        limited_by=limited_by(subject.usage, sync_s=sync_s),
    )


def first_row(name: str, measured: Mapping[str, Measured], **rest: Any) -> Row:
    """A row whose subject is the first contender and whose limits are all others."""
    (_, subject), *limits = measured.items()
    return row_of(name, subject, dict(limits), **rest)


def formatted(value: float, unit: Unit) -> str:
    """Three digits and a unit."""
    if unit == "seconds":
        return f"{_digits(value * 1000)} ms"
    if unit == "bytes":
        return f"{_digits(value / _MIB)} MiB"
    prefix, factor = next((p, f) for p, f in _PREFIXES if value >= f or f == 1.0)
    return f"{_digits(value / factor)} {prefix}{'B/s' if unit == 'bytes/s' else '/s'}"


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


def _value(measured: Measured, unit: Unit) -> float:
    return measured.seconds if unit == "seconds" else measured.rate
