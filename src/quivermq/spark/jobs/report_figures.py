"""What tasks of a report count, small enough to be sent: arrays by moment, by size and by latency.

Sizes and latencies are counted in steps of a logarithm, so that figures of any two tasks can be added.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from quivermq.reading.reader import GroupRow

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


HOT_KEYS = 20
# How long one step of a time axis may be: what people count in.
_WIDTHS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400),
)
_STEPS_MAX = 120


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The middle, and what only one of twenty and one of a hundred is above; None of nothing."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, counts: Numbers, value_max: float | None = None) -> "Quantiles":
        """Those of counts by step. The middle of a step may lie above the largest value, which is known."""
        found = (quantile(counts, share) for share in (0.5, 0.95, 0.99))
        return cls(*(each if each is None or value_max is None else min(each, value_max) for each in found))


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Numbers by time: `edges` are seconds, and each row has one number less."""

    edges: Numbers
    rows: dict[str, list[float]]

    @property
    def width_s(self) -> int:
        return int(self.edges[1] - self.edges[0]) if len(self.edges) > 1 else 0


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic: what came in within the period, and what there is of it now."""

    topic: str
    messages: int
    bytes: int
    stored_bytes: int
    sizes: Quantiles
    size_max: int


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group in one topic. Latencies are in µs."""

    topic: str
    group: str
    lag: int
    in_flight: int
    retrying: int
    acks: int
    latency: Quantiles


@dataclass(frozen=True, slots=True)
class ReasonLine:
    """Why messages of a topic were given up."""

    topic: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key, how many messages have it, and which share of those with any key that is."""

    topic: str
    key: bytes
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class ReportContents:
    """Everything on the page."""

    where: str
    made_at: datetime
    since: datetime | None
    until: datetime | None
    topics: list[TopicLine]
    groups: list[GroupLine]
    reasons: list[ReasonLine]
    keys: list[KeyLine]
    sizes: Numbers
    throughput: TimeSeries
    latency: TimeSeries
    failures: TimeSeries
    has_journals: bool
    """Whether there were journals to look at; a broker hands none out."""
    are_keys_estimated: bool = False
    unread: int = 0
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(line.messages for line in self.topics)

    @property
    def bytes(self) -> int:
        return sum(line.bytes for line in self.topics)


def edges_of(moments: Iterable[Moments]) -> Numbers:
    """The edges of a time axis on which everything lies, a step being what people count in."""
    ranges = [(each.seconds[0], each.seconds[-1]) for each in moments if len(each.seconds)]
    if not ranges:
        return np.zeros(0, np.int64)
    first, last = int(min(low for low, _ in ranges)), int(max(high for _, high in ranges))
    width = next((each for each in _WIDTHS_S if (last - first) / each < _STEPS_MAX - 1), _WIDTHS_S[-1])
    return np.arange(first // width * width, last // width * width + 2 * width, width)


def contents_of(
    figures: Iterable[Figures],
    *,
    where: str,
    made_at: datetime,
    since: datetime | None,
    until: datetime | None,
    stored_bytes: dict[str, int],
    has_journals: bool,
) -> ReportContents:
    """Put a report together."""
    all_of = list(figures)
    messages = [each for each in all_of if isinstance(each, MessageFigures)]
    groups = [each for each in all_of if isinstance(each, DeliveryFigures)]
    letters = [each for each in all_of if isinstance(each, DeadLetterFigures)]
    by_topic = {topic: [each for each in messages if each.topic == topic] for topic in sorted(stored_bytes)}
    return ReportContents(
        where=where,
        made_at=made_at,
        since=since,
        until=until,
        topics=[_topic_line(topic, parts, stored_bytes[topic]) for topic, parts in by_topic.items()],
        groups=[_group_line(each) for each in sorted(groups, key=lambda each: (each.topic, each.group))],
        reasons=_reasons(letters),
        keys=_hot_keys(by_topic),
        sizes=sum((each.sizes for each in messages), np.zeros(STEPS, np.int64)),
        throughput=_throughput(by_topic),
        latency=_latency(groups),
        failures=_failures(groups, letters),
        has_journals=has_journals,
        are_keys_estimated=any(each.are_keys_estimated for each in messages),
        unread=sum(each.unread for each in messages),
        troubles=[each for each in all_of if isinstance(each, Trouble)],
    )


def _topic_line(topic: str, parts: list[MessageFigures], stored_bytes: int) -> TopicLine:
    sums = [each.moments.counts.sum(axis=1) for each in parts]
    messages, size = (int(sum(each[kind] for each in sums)) for kind in (0, 1))
    sizes = sum((each.sizes for each in parts), np.zeros(STEPS, np.int64))
    size_max = max((each.size_max for each in parts), default=0)
    return TopicLine(topic, messages, size, stored_bytes, Quantiles.of(sizes, size_max), size_max)


def _group_line(figures: DeliveryFigures) -> GroupLine:
    steps = np.zeros(STEPS, np.int64)
    if figures.latencies is not None:
        np.add.at(steps, figures.latencies.seconds % STEPS, figures.latencies.counts[0])
    rows = figures.rows
    return GroupLine(
        figures.topic,
        figures.group,
        lag=sum(row.lag for row in rows),
        in_flight=sum(row.in_flight for row in rows),
        retrying=sum(row.retrying for row in rows),
        acks=int(steps.sum()),
        latency=Quantiles.of(steps),
    )


def _reasons(letters: list[DeadLetterFigures]) -> list[ReasonLine]:
    counts: Counter[tuple[str, str]] = Counter()
    for each in letters:
        counts.update({about: int(moments.counts.sum()) for about, moments in each.reasons.items()})
    return [ReasonLine(topic, reason, count) for (topic, reason), count in counts.most_common()]


def _hot_keys(by_topic: dict[str, list[MessageFigures]]) -> list[KeyLine]:
    lines = []
    for topic, parts in by_topic.items():
        counts: Counter[bytes] = Counter()
        for each in parts:
            counts.update(each.keys)
        keyed = sum(each.keyed for each in parts)
        lines += [KeyLine(topic, key, count, count / keyed) for key, count in counts.most_common(HOT_KEYS)]
    return sorted(lines, key=lambda line: (-line.count, line.topic, line.key))[:HOT_KEYS]


def _throughput(by_topic: dict[str, list[MessageFigures]]) -> TimeSeries:
    moments = {
        topic: Moments.together([each.moments for each in parts], 2) for topic, parts in by_topic.items()
    }
    edges = edges_of(moments.values())
    counted = [found for found in moments.values() if len(found.seconds)]
    if not counted:
        return TimeSeries(edges, {})
    # Of the first and the last step only a part is told of: over all of it, the rate would seem to drop.
    first = min(int(found.seconds[0]) for found in counted)
    end = max(int(found.seconds[-1]) + found.width_s for found in counted)
    widths_s = np.diff(np.clip(edges, first, end))
    rows = {topic: found.by(edges)[0] / widths_s for topic, found in moments.items() if len(found.seconds)}
    return TimeSeries(edges, {topic: rates.tolist() for topic, rates in rows.items()})


def _latency(groups: list[DeliveryFigures]) -> TimeSeries:
    """Quantiles of all acks by when they came, in µs; not a number where none came."""
    packed = Moments.together([each.latencies for each in groups if each.latencies is not None], 1)
    acks = Moments(packed.seconds // STEPS, packed.counts)
    edges = edges_of([acks])
    rows: dict[str, list[float]] = {"p50": [], "p95": [], "p99": []}
    places = np.searchsorted(edges, acks.seconds, side="right") - 1
    for place in range(len(edges) - 1):
        inside = places == place
        steps = np.zeros(STEPS, np.int64)
        np.add.at(steps, packed.seconds[inside] % STEPS, packed.counts[0][inside])
        found = Quantiles.of(steps)
        for name in rows:
            value = getattr(found, name)
            rows[name].append(float("nan") if value is None else value)
    return TimeSeries(edges, rows)


def _failures(groups: list[DeliveryFigures], letters: list[DeadLetterFigures]) -> TimeSeries:
    """Failed deliveries, and dead letters, by when that was."""
    retries = Moments.together([each.retries for each in groups if each.retries is not None], 1)
    dead = Moments.together([moments for each in letters for moments in each.reasons.values()], 1)
    edges = edges_of([retries, dead])
    rows = {"failed deliveries": retries, "dead letters": dead}
    return TimeSeries(
        edges, {name: found.by(edges)[0].tolist() for name, found in rows.items() if len(edges)}
    )
