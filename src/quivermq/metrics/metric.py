"""Counters, gauges and histograms of what happens inside, for people and for Prometheus.

To count is cheap and never loses anything between threads: whoever counts appends to a list, which is
one step of the interpreter, and once there is enough, one thread adds it all up in C; or, for what is
counted with every message, takes the next number, which is a single step as well. Nobody ever waits
for a lock to count, so it may be done while holding others. How samples reach the world is for others.

Every group of every topic has a dozen of these, most of which never count anything: so they are small.
"""

from bisect import bisect_left
from collections import Counter as Tally
from functools import partial
from itertools import accumulate, count
from math import inf
from operator import add
from threading import Lock
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

Number = int | float
Labels = tuple[tuple[str, str], ...]

T = TypeVar("T")

# So many are added up at once: enough to make that cheap, few enough to be small in every metric.
_PENDING_MAX = 256

# From 1 µs to 67 s. Four to a doubling, so that a percentile is off by a tenth or less; only each fourth is
# for Prometheus, whose buckets are cumulative and so need no more.
_STEPS = 4
_BOUNDS = [1e-6 * 2 ** (step / _STEPS) for step in range(26 * _STEPS + 1)]
_bucket_of = partial(bisect_left, _BOUNDS)
# What a histogram has that never observed anything. Nobody changes it.
_NO_COUNTS = [0] * (len(_BOUNDS) + 1)
# As Prometheus reads the bounds that it is told of.
_BOUND_TEXTS = [*map(repr, _BOUNDS[::_STEPS]), "+Inf"]


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

    __slots__ = ("help", "labels", "name")

    kind: Literal["counter", "gauge", "histogram"]

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = help_text
        self.labels = labels

    def absorb(self, other: Any) -> None:
        """Add what another metric of the same kind has."""
        raise NotImplementedError

    def sample(self) -> Sample:
        return Sample(name=self.name, kind=self.kind, help=self.help, labels=dict(self.labels))


class Counter(Metric):
    """A number that only grows."""

    __slots__ = ("_lock", "_looks", "_pending", "_total", "ones")

    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self._pending: list[Number] = []
        self._lock = Lock()
        self._total: Number = 0
        self.ones = count()
        """Whoever takes the next of these has counted one: for what happens with every message."""
        self._looks = 0

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
            # To look takes one of the ones as well.
            ones = next(self.ones) - self._looks
            self._looks += 1
            return self._total + ones

    def absorb(self, other: "Counter") -> None:
        self.add(other.value)

    def sample(self) -> Sample:
        return {**super().sample(), "value": self.value}


class Gauge(Metric):
    """A number that goes up and down."""

    __slots__ = ("value",)

    kind = "gauge"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self.value: Number = 0

    def set(self, value: Number) -> None:
        self.value = value

    def absorb(self, other: "Gauge") -> None:
        self.value += other.value

    def sample(self) -> Sample:
        return {**super().sample(), "value": self.value}


class Histogram(Metric):
    """How long something took, in seconds: how often, in all, and how the times are distributed."""

    __slots__ = ("_counts", "_least", "_lock", "_most", "_pending", "_sum")

    kind = "histogram"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self._pending: list[float] = []
        self._lock = Lock()
        self._counts = _NO_COUNTS
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
        """How many observations fell into each step of time so far. Nobody may change it."""
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
            "buckets": list(zip(_BOUND_TEXTS, (n for _, n in _cumulative(counts)), strict=True)),
        }

    def _snapshot(self) -> tuple[list[int], float, float, float]:
        with self._lock:
            self._fold()
            return self._counts, self._sum, self._least, self._most

    def absorb(self, other: "Histogram") -> None:
        counts, total, least, most = other._snapshot()
        if counts is _NO_COUNTS:
            return
        with self._lock:
            self._counts = list(map(add, self._counts, counts))
            self._sum += total
            self._least, self._most = min(self._least, least), max(self._most, most)

    def _fold(self) -> None:
        """Add up what is pending; the caller holds the lock."""
        taken = _taken(self._pending)
        if not taken:
            return
        # Those who have looked keep what they saw.
        counts = self._counts = self._counts.copy()
        for bucket, n in Tally(map(_bucket_of, taken)).items():
            counts[bucket] += n
        self._sum += sum(taken)
        self._least = min(self._least, *taken)
        self._most = max(self._most, *taken)


def percentile_between(before: list[int] | None, after: list[int], share: float) -> float | None:
    """The time that this share of what was observed between two tallies did not exceed, if any."""
    counts = after if before is None else [now - then for now, then in zip(after, before, strict=True)]
    return _percentile(counts, share, 0.0, _BOUNDS[-1])


def _taken(pending: list[T]) -> list[T]:
    """What is pending now, taken out while others go on appending.

    Only one thread at a time may take, or there would be less than was counted.
    """
    count = len(pending)
    taken = pending[:count]
    del pending[:count]
    return taken


def _cumulative(counts: list[int]) -> list[tuple[float, int]]:
    totals = list(accumulate(counts))
    return [*zip(_BOUNDS[::_STEPS], totals[::_STEPS], strict=False), (inf, totals[-1])]


def _percentile(counts: list[int], share: float, least: float, most: float) -> float | None:
    if counts is _NO_COUNTS:
        return None
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
