"""Counters, gauges and histograms of what happens inside, for people and for Prometheus.

To count is cheap and never loses anything between threads: whoever counts appends to a deque, which is
one step of the interpreter, and once there is enough, one thread adds it all up in C. Nobody ever waits
for a lock to count, so it may be done while holding others. How samples reach the world is for others.
"""

import re
from bisect import bisect_left
from collections import Counter as Tally
from collections import deque
from functools import partial
from itertools import accumulate, repeat, starmap
from math import inf
from threading import Lock
from typing import Literal, NotRequired, TypedDict, TypeVar

Number = int | float
Labels = tuple[tuple[str, str], ...]

# What label sets beyond the limit are counted as, together.
OTHER = "other"

LABEL_SETS_MAX = 1000

# So many are added up at once: enough to make that cheap, few enough to be small in every metric.
_PENDING_MAX = 256

# From 1 µs to 67 s. Four to a doubling, so that a percentile is off by a tenth or less; only each fourth is
# for Prometheus, whose buckets are cumulative and so need no more.
_STEPS = 4
_BOUNDS = [1e-6 * 2 ** (step / _STEPS) for step in range(26 * _STEPS + 1)]
_bucket_of = partial(bisect_left, _BOUNDS)

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Sample(TypedDict):
    """A metric at one moment, as JSON has it. Counters and gauges have a value, histograms the rest."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: dict[str, str]
    value: NotRequired[Number]
    count: NotRequired[int]
    sum: NotRequired[float]
    p50: NotRequired[float | None]
    p95: NotRequired[float | None]
    p99: NotRequired[float | None]
    buckets: NotRequired[list[tuple[str, int]]]


class Metric:
    """What every metric has. `labels` are sorted by their names."""

    kind: Literal["counter", "gauge", "histogram"]

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = help_text
        self.labels = labels

    def sample(self) -> Sample:
        return Sample(name=self.name, kind=self.kind, help=self.help, labels=dict(self.labels))


class Counter(Metric):
    """A number that only grows."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self._pending: deque[Number] = deque()
        self._lock = Lock()
        self._total: Number = 0

    def add(self, n: Number = 1) -> None:
        pending = self._pending
        pending.append(n)
        if len(pending) >= _PENDING_MAX and self._lock.acquire(blocking=False):
            try:
                self._total += sum(_taken(pending))
            finally:
                self._lock.release()

    @property
    def value(self) -> Number:
        """Everything that was added before this was asked."""
        with self._lock:
            self._total += sum(_taken(self._pending))
            return self._total

    def sample(self) -> Sample:
        return {**super().sample(), "value": self.value}


class Gauge(Metric):
    """A number that goes up and down."""

    kind = "gauge"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self.value: Number = 0

    def set(self, value: Number) -> None:
        self.value = value

    def sample(self) -> Sample:
        return {**super().sample(), "value": self.value}


class Histogram(Metric):
    """How long something took, in seconds: how often, in all, and how the times are distributed."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self._pending: deque[float] = deque()
        self._lock = Lock()
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0
        self._least = inf
        self._most = -inf

    def observe(self, seconds: float) -> None:
        pending = self._pending
        pending.append(seconds)
        if len(pending) >= _PENDING_MAX and self._lock.acquire(blocking=False):
            try:
                self._fold()
            finally:
                self._lock.release()

    @property
    def count(self) -> int:
        return sum(self._snapshot()[0])

    @property
    def sum(self) -> float:
        return self._snapshot()[1]

    @property
    def p50(self) -> float | None:
        return self.percentile(0.50)

    @property
    def p95(self) -> float | None:
        return self.percentile(0.95)

    @property
    def p99(self) -> float | None:
        return self.percentile(0.99)

    def percentile(self, share: float) -> float | None:
        """The time that this share of all observations did not exceed; None when there are none."""
        counts, _, least, most = self._snapshot()
        return _percentile(counts, share, least, most)

    def tally(self) -> list[int]:
        """How many observations fell into each step of time so far: for `percentile_between`."""
        return self._snapshot()[0]

    def buckets(self) -> list[tuple[float, int]]:
        """How many observations were at most so long, for each bound; the last bound is infinite."""
        return _cumulative(self._snapshot()[0])

    def sample(self) -> Sample:
        # One snapshot for all, or the parts would not go together.
        counts, total, least, most = self._snapshot()
        return {
            **super().sample(),
            "count": sum(counts),
            "sum": total,
            "p50": _percentile(counts, 0.50, least, most),
            "p95": _percentile(counts, 0.95, least, most),
            "p99": _percentile(counts, 0.99, least, most),
            "buckets": [("+Inf" if b == inf else repr(b), n) for b, n in _cumulative(counts)],
        }

    def _snapshot(self) -> tuple[list[int], float, float, float]:
        with self._lock:
            self._fold()
            return self._counts.copy(), self._sum, self._least, self._most

    def _fold(self) -> None:
        """Add up what is pending; the caller holds the lock."""
        taken = list(_taken(self._pending))
        if not taken:
            return
        counts = self._counts
        for bucket, n in Tally(map(_bucket_of, taken)).items():
            counts[bucket] += n
        self._sum += sum(taken)
        self._least = min(self._least, *taken)
        self._most = max(self._most, *taken)


M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """All metrics of an engine. Asking twice for a metric gives the same one.

    A name can have only so many label sets; those that come later share one, whose labels all say
    `other`. Any thread may call anything, but what is needed often should be asked for once.
    """

    def __init__(self, *, label_sets_max: int = LABEL_SETS_MAX) -> None:
        self._label_sets_max = label_sets_max
        self._lock = Lock()
        self._families: dict[str, dict[Labels, Metric]] = {}

    def counter(self, name: str, help_text: str, /, **labels: str) -> Counter:
        assert name.endswith("_total"), f"{name}: the name of a counter ends in _total"
        return self._metric(Counter, name, help_text, labels)

    def gauge(self, name: str, help_text: str, /, **labels: str) -> Gauge:
        return self._metric(Gauge, name, help_text, labels)

    def histogram(self, name: str, help_text: str, /, **labels: str) -> Histogram:
        assert name.endswith("_seconds"), f"{name}: the name of a histogram ends in its unit, _seconds"
        assert "le" not in labels, "le is the label of a bucket"
        return self._metric(Histogram, name, help_text, labels)

    def forget(self, **labels: str) -> None:
        """Drop every metric that has these labels, among others: what it measured is gone."""
        gone = set(labels.items())
        with self._lock:
            for family in self._families.values():
                for found in [found for found in family if gone.issubset(found)]:
                    del family[found]

    def collect(self) -> list[Sample]:
        """Every metric as it is now, those of a name together, in the order in which they came up."""
        with self._lock:
            metrics = [metric for family in self._families.values() for metric in family.values()]
        return [metric.sample() for metric in metrics]

    def family(self, name: str) -> list[Metric]:
        """All metrics of a name."""
        with self._lock:
            return list(self._families.get(name, {}).values())

    def _metric(self, kind: type[M], name: str, help_text: str, given: dict[str, str]) -> M:
        labels = tuple(sorted(given.items()))
        with self._lock:
            family = self._families.setdefault(name, {})
            found = family.get(labels)
            if found is None and labels and len(family) >= self._label_sets_max:
                labels = tuple((label, OTHER) for label, _ in labels)
                found = family.get(labels)
            if found is None:
                _check_new(kind, name, given, next(iter(family.values()), None))
                found = family[labels] = kind(name, help_text, labels)
        assert isinstance(found, kind), f"{name} is a {found.kind}"
        return found


def percentile_between(before: list[int] | None, after: list[int], share: float) -> float | None:
    """The time that this share of what was observed between two tallies did not exceed, if any."""
    counts = after if before is None else [now - then for now, then in zip(after, before, strict=True)]
    return _percentile(counts, share, 0.0, _BOUNDS[-1])


def _check_new(kind: type[Metric], name: str, labels: dict[str, str], sibling: Metric | None) -> None:
    """Names and labels are chosen by our own code, so a wrong one is our own bug."""
    for word in (name, *labels):
        assert _NAME.fullmatch(word), f"{word!r} is no name of a metric or label"
    if sibling is not None:
        assert sibling.kind == kind.kind, f"{name} is a {sibling.kind}"
        assert {label for label, _ in sibling.labels} == set(labels), f"{name} has other labels"


def _taken(pending: deque[Number]) -> "starmap[Number]":
    """What is pending now, taken out one by one while others go on appending.

    Only one thread at a time may take, or there would be less than was counted.
    """
    return starmap(pending.popleft, repeat((), len(pending)))


def _cumulative(counts: list[int]) -> list[tuple[float, int]]:
    totals = list(accumulate(counts))
    return [*zip(_BOUNDS[::_STEPS], totals[::_STEPS], strict=False), (inf, totals[-1])]


def _percentile(counts: list[int], share: float, least: float, most: float) -> float | None:
    totals = list(accumulate(counts))
    if not totals[-1]:
        return None
    rank = share * totals[-1]
    bucket = bisect_left(totals, max(rank, 1))
    low = _BOUNDS[bucket - 1] if bucket else 0.0
    high = _BOUNDS[bucket] if bucket < len(_BOUNDS) else most
    # As if the observations were spread evenly over the bucket; but never beyond what there was.
    within = (rank - totals[bucket] + counts[bucket]) / counts[bucket]
    return min(max(low + (high - low) * within, least), most)
