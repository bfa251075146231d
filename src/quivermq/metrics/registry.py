"""All metrics of an engine, by name and labels.

Whoever counts has a metric of its own, however many there are: rates and states are told by it. Only what
Prometheus is shown is bounded: of a name so many label sets, and all others together as one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from threading import Lock
from typing import TypeVar

from quivermq.metrics.metric import Counter, Gauge, Histogram, Labels, Metric, Number, Sample

# What label sets beyond the limit are shown as, together.
OTHER = "other"

LABEL_SETS_MAX = 1000

_NAME = re.compile(r"[a-z][a-z0-9_]*")

M = TypeVar("M", Counter, Gauge, Histogram)


def labels_of(**labels: str) -> Labels:
    """Labels as a metric has them: sorted by their names."""
    return tuple(sorted(labels.items()))


class _Family:
    """The metrics of one name."""

    __slots__ = ("gone", "others", "shown")

    def __init__(self) -> None:
        self.shown: dict[Labels, Metric] = {}
        self.others: dict[Labels, Metric] = {}
        # What was counted by others that are no more: a counter never goes back.
        self.gone: Metric | None = None

    def any(self) -> Metric | None:
        return next(iter(self.shown.values()), None)

    def parts(self) -> tuple[list[Metric], list[Metric]]:
        """Those that are shown each by itself, and those that are shown together."""
        gone = [] if self.gone is None else [self.gone]
        return list(self.shown.values()), [*gone, *self.others.values()]

    def forget(self, labels: set[tuple[str, str]]) -> None:
        for found in [found for found in self.shown if labels.issubset(found)]:
            del self.shown[found]
        gone = [self.others.pop(found) for found in list(self.others) if labels.issubset(found)]
        if gone and not isinstance(gone[0], Gauge):
            self.gone = _together(gone if self.gone is None else [self.gone, *gone])


class Metrics:
    """All metrics of an engine. Asking twice for a metric gives the same one.

    Any thread may call anything, but what is needed often should be asked for once.
    """

    def __init__(self, *, label_sets_max: int = LABEL_SETS_MAX) -> None:
        self._label_sets_max = label_sets_max
        self._lock = Lock()
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, help_text: str, /, **labels: str) -> Counter:
        assert name.endswith("_total"), f"{name}: the name of a counter ends in _total"
        return self._metric(Counter, name, help_text, labels)

    def gauge(self, name: str, help_text: str, /, **labels: str) -> Gauge:
        return self._metric(Gauge, name, help_text, labels)

    def gauges(
        self,
        name: str,
        help_text: str,
        values: Mapping[Labels, Number],
        *,
        together: Callable[[Iterable[Number]], Number] = sum,
    ) -> None:
        """Tell all gauges of a name anew: those without a value are gone.

        What the ones beyond the limit are `together` is shown as one.
        """
        with self._lock:
            family = self._families.setdefault(name, _Family())
            stays = [labels for labels in family.shown if labels in values]
            room = self._label_sets_max - len(stays)
            # One by one, because there may be many more than there is room for.
            comes = (labels for labels in values if labels not in family.shown and not _is_other(labels))
            chosen = dict.fromkeys([*stays, *islice(comes, room)])
            rest = [value for labels, value in values.items() if labels not in chosen]
            family.shown = {labels: _gauge(name, help_text, labels, values[labels]) for labels in chosen}
            family.others.clear()
            if rest:
                labels = _other(next(iter(values)))
                family.others[labels] = _gauge(name, help_text, labels, together(rest))

    def histogram(self, name: str, help_text: str, /, **labels: str) -> Histogram:
        assert name.endswith("_seconds"), f"{name}: the name of a histogram ends in its unit, _seconds"
        assert "le" not in labels, "le is the label of a bucket"
        return self._metric(Histogram, name, help_text, labels)

    def forget(self, **labels: str) -> None:
        """Drop every metric that has these labels, among others: what it measured is gone."""
        gone = set(labels.items())
        with self._lock:
            for family in self._families.values():
                family.forget(gone)

    def collect(self) -> list[Sample]:
        """Every metric as it is now, those of a name together, in the order in which they came up."""
        with self._lock:
            families = [family.parts() for family in self._families.values()]
        # Without the lock, so that nobody who has something new to count waits for this.
        return [
            metric.sample()
            for shown, others in families
            for metric in ([*shown, _together(others)] if others else shown)
        ]

    def family(self, name: str) -> list[Metric]:
        """All metrics of a name, each by itself."""
        with self._lock:
            found = self._families.get(name)
            return [] if found is None else [*found.shown.values(), *found.others.values()]

    def _metric(self, kind: type[M], name: str, help_text: str, given: dict[str, str]) -> M:
        labels = labels_of(**given)
        with self._lock:
            family = self._families.setdefault(name, _Family())
            found = family.shown.get(labels) or family.others.get(labels)
            if found is None:
                _check_new(kind, name, given, family.any())
                is_other = labels and (len(family.shown) >= self._label_sets_max or _is_other(labels))
                place = family.others if is_other else family.shown
                found = place[labels] = kind(name, help_text, labels)
        assert isinstance(found, kind), f"{name} is a {found.kind}"
        return found


def _gauge(name: str, help_text: str, labels: Labels, value: Number) -> Gauge:
    gauge = Gauge(name, help_text, labels)
    gauge.set(value)
    return gauge


def _together(metrics: list[Metric]) -> Metric:
    """One metric that has what all of these have."""
    first = metrics[0]
    one = type(first)(first.name, first.help, _other(first.labels))
    for metric in metrics:
        one.absorb(metric)
    return one


def _other(labels: Labels) -> Labels:
    return tuple((label, OTHER) for label, _ in labels)


def _is_other(labels: Labels) -> bool:
    """Whether labels are those under which all others are shown: a topic may have that very name."""
    return all(value == OTHER for _, value in labels)


def _check_new(kind: type[Metric], name: str, labels: dict[str, str], sibling: Metric | None) -> None:
    """Names and labels are chosen by our own code, so a wrong one is our own bug."""
    if sibling is not None:
        assert sibling.kind == kind.kind, f"{name} is a {sibling.kind}"
        assert {label for label, _ in sibling.labels} == set(labels), f"{name} has other labels"
        return
    for word in (name, *labels):
        assert _NAME.fullmatch(word), f"{word!r} is no name of a metric or label"
