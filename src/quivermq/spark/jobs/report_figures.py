"""What tasks of a report count, small enough to be sent: arrays by moment, by size and by latency.

Sizes and latencies are counted in steps of a logarithm, so that figures of any two tasks can be added.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quivermq.spark.tables.rows import GroupRow

Numbers = npt.NDArray[np.int64]

# Eight steps to each doubling: nobody sees the difference of less than a tenth.
STEPS_PER_DOUBLING = 8
STEPS = 64 * STEPS_PER_DOUBLING
# A task tells of no more moments than this, each of them a second, a minute or an hour.
_MOMENTS_MAX = 4096
_COARSER_S = (60, 3600, 86_400)


def steps_of(values: Numbers) -> Numbers:
    """The step of each value; those below 1 have the first one."""
    logarithms = np.log2(np.maximum(values, 1)) * STEPS_PER_DOUBLING
    return np.minimum(logarithms.astype(np.int64), STEPS - 1)


def value_of_step(step: float) -> float:
    """The smallest value of a step."""
    return float(2 ** (step / STEPS_PER_DOUBLING))


def quantile(counts: Numbers, share: float) -> float | None:
    """The value that a share of all is not above; None of nothing."""
    total = int(counts.sum())
    if not total:
        return None
    step = int(np.searchsorted(np.cumsum(counts), share * total))
    return value_of_step(min(step, STEPS - 1) + 0.5)


class Period(NamedTuple):
    """From a moment up to before another, in unix microseconds."""

    since_us: int
    until_us: int

    def __contains__(self, moment_us: object) -> bool:
        assert isinstance(moment_us, int)
        return self.since_us <= moment_us < self.until_us

    def holds(self, moments_us: Numbers) -> npt.NDArray[np.bool_]:
        """The same of each of many."""
        return (moments_us >= self.since_us) & (moments_us < self.until_us)


@dataclass(slots=True)
class Moments:
    """Numbers by the second in which something happened: each row of `counts` is one kind of number."""

    seconds: Numbers
    counts: Numbers
    width_s: int = 1
    """How long each moment is."""

    @classmethod
    def of(cls, seconds: Numbers, *counts: Numbers) -> "Moments":
        """Sums by second; by minute, hour or day when there are too many."""
        columns = np.array(counts, np.int64).reshape(len(counts), len(seconds))
        found = _summed(seconds, columns)
        for coarser in _COARSER_S:
            if len(found.seconds) <= _MOMENTS_MAX:
                break
            found = _summed(found.seconds // coarser * coarser, found.counts, coarser)
        return found

    @classmethod
    def together(cls, parts: "list[Moments]", kinds: int) -> "Moments":
        if not parts:
            return cls(np.zeros(0, np.int64), np.zeros((kinds, 0), np.int64))
        return _summed(
            np.concatenate([part.seconds for part in parts]),
            np.concatenate([part.counts for part in parts], axis=1),
            max(part.width_s for part in parts),
        )

    def by(self, edges: Numbers) -> Numbers:
        """Sums between edges, which are seconds in order; what lies outside is left out."""
        places = np.searchsorted(edges, self.seconds, side="right") - 1
        inside = (places >= 0) & (places < len(edges) - 1)
        sums = np.zeros((len(self.counts), len(edges) - 1), np.int64)
        for kind, row in enumerate(self.counts):
            np.add.at(sums[kind], places[inside], row[inside])
        return sums


def _summed(seconds: Numbers, counts: Numbers, width_s: int = 1) -> Moments:
    unique, places = np.unique(seconds, return_inverse=True)
    sums = np.zeros((len(counts), len(unique)), np.int64)
    for kind, row in enumerate(counts):
        np.add.at(sums[kind], places, row)
    return Moments(unique, sums, width_s)


@dataclass(slots=True)
class MessageFigures:
    """Messages of a part of one lane."""

    topic: str
    moments: Moments
    """By when they came in: messages, and bytes as they are stored."""
    sizes: Numbers
    """Messages by the step of the size of their values."""
    size_max: int = 0
    keys: dict[bytes, int] = field(default_factory=dict)
    """The most frequent ones."""
    keyed: int = 0
    """About how many messages have a key."""
    are_keys_estimated: bool = False
    """Whether most keys were told from a part of the frames."""
    unread: int = 0
    """Messages whose inside this release cannot look at."""


@dataclass(slots=True)
class DeliveryFigures:
    """A group in one topic."""

    topic: str
    group: str
    rows: list[GroupRow]
    latencies: Moments | None = None
    """Acks by when they came and by the step of their latency in µs: each moment is a second and a step.

    None where there is no journal to look at.
    """
    retries: Moments | None = None
    """Failed deliveries by when they failed."""


@dataclass(slots=True)
class DeadLetterFigures:
    """Dead letters of a part of one lane, by topic, reason and when they died."""

    reasons: dict[tuple[str, str], Moments]


@dataclass(slots=True)
class Trouble:
    """A part that could not be read, in words. The report says so and goes on with the rest."""

    where: str
    reason: str


Figures = MessageFigures | DeliveryFigures | DeadLetterFigures | Trouble
