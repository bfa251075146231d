"""What a generator of load is told on its stdin, and what it tells on its stdout, both pickled."""

from dataclasses import dataclass

from benchmarks.broker.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """As fast as answers come: for so many seconds, or until so many requests were sent."""

    port: int
    request: Request
    connections: int
    seconds: float | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it."""

    answers: int
    seconds: float
    cpu_s: float
    last: bytes
    """The end of the last answer: it says what is wrong when something is."""


@dataclass(frozen=True, slots=True)
class PacedPlan:
    """At a steady rate, whatever the answers do."""

    port: int
    request: Request
    connections: int
    per_second: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PacedDone:
    """How long after their due time requests were answered, and sent: of each thousand, by place."""

    answers: int
    answered_s: tuple[float, ...]
    sent_s: tuple[float, ...]
    last: bytes


def per_mille(seconds: list[float]) -> tuple[float, ...]:
    """A thousand values in order, the last of them the largest."""
    seconds.sort()
    return tuple(seconds[-(-len(seconds) * place // 1000) - 1] for place in range(1, 1001))
