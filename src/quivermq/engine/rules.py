"""What a rule is, what it is asked of, and how what it finds becomes an alert."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from quivermq.engine.activity import Problem, TopicActivity
from quivermq.engine.watch import ChangeTracker
from quivermq.model.stats import Alert, TopicStats
from quivermq.shared.figures import SharedFigures

Severity = Literal["page", "ticket"]

SECOND_US = 1_000_000


class Looked(Protocol):
    """One look at whatever rules ask of."""

    @property
    def now_us(self) -> int: ...


E = TypeVar("E", bound=Looked)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One look at everything that the rules ask of."""

    stats: Mapping[str, TopicStats]
    activity: Mapping[str, TopicActivity]
    problems: list[Problem]
    free_bytes: int
    free_bytes_later: float | None
    """The room that there will be in four hours at the pace of the last hour; None when nobody knows it."""
    fsync_p99_s: float | None
    """What one fsync in a hundred took longer than in the last five minutes."""
    now_us: int
    store: SharedFigures | None = None
    """The figures of the object store that the queue is in; None where it is on a disk."""
    commit_p99_s: float | None = None
    """What one commit in a hundred took longer than in the last five minutes."""


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """Something that a rule found: what about, and how much. `value` is what its words are about."""

    summary: str
    value: float
    topic: str | None = None
    group: str | None = None
    partition: int | None = None
    priority: str | None = None
    held_us: int = 0
    """For how long it must have been so, as the figures themselves prove."""


Finder = Callable[[E, ChangeTracker], Iterator[RuleMatch]]


@dataclass(frozen=True, slots=True)
class Rule(Generic[E]):
    """One rule: `expr` is how Prometheus asks, `find` how it is asked here."""

    alert: str
    severity: Severity
    for_s: int
    expr: str
    find: Finder[E] | None
    is_moment: bool = False
    """Whether one look is enough; others have to be watched before they mean anything."""


def judged(rules: Sequence[Rule[E]], evidence: E, watch: ChangeTracker) -> list[Alert]:
    """Everything that some rules find, the worst first."""
    found = [(rule, each) for rule in rules if rule.find is not None for each in rule.find(evidence, watch)]
    since = watch.since([_mark(rule, each) for rule, each in found], evidence.now_us)
    alerts = []
    for rule, each in found:
        since_us, is_all_along = since[_mark(rule, each)]
        since_us = min(since_us, evidence.now_us - each.held_us)
        if evidence.now_us - since_us >= rule.for_s * SECOND_US or (is_all_along and rule.is_moment):
            alerts.append((rule, each, since_us))
    order = {rule.alert: number for number, rule in enumerate(rules)}
    alerts.sort(key=lambda one: (one[0].severity != "page", order[one[0].alert], -one[1].value))
    return [_alert(*each) for each in alerts]


def _mark(rule: Rule[E], found: RuleMatch) -> tuple[str, ...]:
    where = (found.topic, found.group, found.partition, found.priority)
    return (rule.alert, *("" if part is None else str(part) for part in where))


def _alert(rule: Rule[E], found: RuleMatch, since_us: int) -> Alert:
    return Alert(
        alert=rule.alert,
        severity=rule.severity,
        summary=found.summary,
        topic=found.topic,
        group=found.group,
        partition=found.partition,
        priority=found.priority,
        value=found.value,
        since=since_us,
    )


def many(count: int, singular: str) -> str:
    return f"{count:,} {singular}{'' if count == 1 else 's'}"


def size(size_bytes: int) -> str:
    return f"{size_bytes / 1024**3:.1f} GiB" if size_bytes >= 1024**3 else f"{size_bytes // 1024**2:,} MiB"
