"""A million delayed messages and a hundred thousand in flight, while others come and go for long."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from quivermq.chaos import CheckedThread, expect
from quivermq.chaos.http_clients import HttpClient
from quivermq.chaos.processes import BrokerProcess
from quivermq.chaos.trial import DAY_S, Trial
from quivermq.clock import SystemClock
from quivermq.model.messages import Message
from quivermq.opening import open_directory

DELAYED, IN_FLIGHT = 1_000_000, 100_000
ERROR_P99_S = 1.0
# What a broker may take with all that on its hands, and how much of it may come while it works.
RSS_BYTES_MAX = 80 * 1024 * 1024
GROWTH_BYTES_MAX = 32 * 1024 * 1024
# How many messages may be left out because the machine itself stood still when they were due: with more
# of them, what is left says little.
PAUSED_SHARE_MAX = 0.25

_TOPIC, _GROUP = "soak", "default"
_BATCH, _BATCHES_PER_S = 20, 5
_DELAYS_S = (0.2, 5.0)
_STOCK_BATCH = 5000
_SOON_S, _SPREAD_S = 3600, 4 * 3600
_TICK_S = 0.05
_PAUSE_S = 0.25


@dataclass
class SoakResult:
    """What came of it."""

    seconds: float = 0.0
    delayed: int = 0
    in_flight: int = 0
    delivered: int = 0
    early: int = 0
    missing: int = 0
    error_p50_s: float = 0.0
    error_p99_s: float = 0.0
    error_p99_raw_s: float = 0.0
    """The same with those that were due while the machine itself stood still."""
    paused: int = 0
    """How many those were."""
    rss_bytes: list[int] = field(default_factory=list)

    def check(self) -> None:
        """Raise Violation unless everything held."""
        expect(self.delivered > 0, "nothing was delivered")
        expect(not self.early, f"{self.early} messages came early")
        expect(not self.missing, f"{self.missing} messages never came")
        expect(
            self.error_p99_s < ERROR_P99_S,
            f"delivered late: {self.error_p99_s:.3f} s at the 99th percentile",
        )
        expect(self.paused <= self.delivered * PAUSED_SHARE_MAX, f"the machine stood still: {self.paused}")
        most = max(self.rss_bytes)
        expect(most < RSS_BYTES_MAX, f"the broker took {most} bytes")
        half = len(self.rss_bytes) // 2
        grown = max(self.rss_bytes[half:]) - max(self.rss_bytes[:half])
        expect(grown < GROWTH_BYTES_MAX, f"in the second half the broker grew by {grown} bytes")


def soak(trial: Trial, seconds: float, delayed: int = DELAYED, in_flight: int = IN_FLIGHT) -> SoakResult:
    """Stock a directory, serve it, and let a client come and go for so many seconds."""
    _stock(trial.data, delayed, in_flight, seconds + _SOON_S)
    with trial.broker(storage__durability="os") as process:
        work = _Work(process, seconds)
        work.run()
        measured = work.measured()
        stats = process.client().call("GET", "/v1/stats").document["topics"]
        measured.delayed = stats[_TOPIC]["delayed"]
        measured.in_flight = stats["flight"]["groups"][_GROUP]["in_flight"]
        process.stop()
    expect(measured.delayed == delayed, f"{measured.delayed} of {delayed} are still delayed")
    expect(measured.in_flight == in_flight, f"{measured.in_flight} of {in_flight} are still in flight")
    trial.tried += measured.delivered
    return measured


def _stock(path: Path, delayed: int, in_flight: int, first_s: float) -> None:
    with open_directory(path) as engine:
        for topic in ("flight", _TOPIC):
            engine.create_topic(topic, durability="os")
        later, flight = engine.queue(_TOPIC), engine.queue("flight")
        for start in range(0, delayed, _STOCK_BATCH):
            numbers = range(start, min(delayed, start + _STOCK_BATCH))
            # None before the end, and all of them soon enough that a broker would have them in memory, were
            # there no limit.
            later.put_many([Message(b"%d" % n, delay=first_s + n * _SPREAD_S / delayed) for n in numbers])
        for start in range(0, in_flight, _STOCK_BATCH):
            flight.put_many([b"%d" % n for n in range(start, min(in_flight, start + _STOCK_BATCH))])
        while flight.get_many(_STOCK_BATCH, lease=2 * DAY_S):
            continue


class _Work:
    """One who publishes delayed messages, one who takes them, and one who looks at the clock."""

    def __init__(self, process: BrokerProcess, seconds: float) -> None:
        self._process = process
        self._seconds = seconds
        self._clock = SystemClock()
        self._start = self._clock.monotonic()
        self._is_over = threading.Event()
        self._due: dict[str, float] = {}
        self._came: dict[str, float] = {}
        self._pauses: list[tuple[float, float]] = []
        self._rss: list[int] = []

    def run(self) -> None:
        acts = (self._publish, self._consume, self._watch)
        threads = [CheckedThread(partial(self._until_over, act)) for act in acts]
        try:
            self._is_over.wait(self._seconds)
        finally:
            self._is_over.set()
        for thread in threads:
            thread.end("a client does not end")

    def _until_over(self, act: Callable[[], None]) -> None:
        try:
            act()
        finally:
            # Whoever fails ends it for all.
            self._is_over.set()

    def _publish(self) -> None:
        client, rng, number = self._process.client(), Random(1), 0
        while not self._is_over.wait(1 / _BATCHES_PER_S):
            now = self._now()
            messages = []
            for _ in range(_BATCH):
                number += 1
                due = now + rng.uniform(*_DELAYS_S)
                self._due[str(number)] = due
                messages.append({"value": str(number), "deliver_at": round(due * 1_000_000)})
            answer = client.call("POST", f"/v1/topics/{_TOPIC}/messages", {"messages": messages})
            expect(answer.is_done, f"a publish failed: {answer}")

    def _consume(self) -> None:
        client = self._process.client()
        while not self._is_over.is_set() or len(self._came) < len(self._due):
            if self._now() > max(self._due.values(), default=self._now()) + 30 and self._is_over.is_set():
                return
            self._take(client)

    def _take(self, client: HttpClient) -> None:
        # Longer than any error that is allowed: who asks again soon does not notice that nobody woke it.
        messages = client.receive(_TOPIC, _GROUP, 100, wait_ms=10_000)
        now = self._now()
        self._came.update((message["value"], now) for message in messages)
        if messages:
            client.settle("ack", _TOPIC, _GROUP, [message["receipt"] for message in messages])

    def _watch(self) -> None:
        """Note when the machine stood still, and once a second what the broker takes."""
        before, looked = self._clock.monotonic(), 0.0
        while not self._is_over.wait(_TICK_S):
            now = self._clock.monotonic()
            if now - before > _TICK_S + _PAUSE_S:
                wall = self._now()
                self._pauses.append((wall - (now - before), wall))
            before = now
            if now - looked >= 1:
                looked = now
                self._rss.append(_rss_bytes(self._process.pid))

    def _now(self) -> float:
        return self._clock.now_us() / 1_000_000

    def measured(self) -> SoakResult:
        errors = {name: came - self._due[name] for name, came in self._came.items()}
        paused = {name for name, came in self._came.items() if self._has_paused(self._due[name], came)}
        counted = sorted(error for name, error in errors.items() if name not in paused)
        raw = sorted(errors.values())
        return SoakResult(
            seconds=self._clock.monotonic() - self._start,
            delivered=len(self._came),
            early=sum(error < 0 for error in raw),
            missing=len(self._due.keys() - self._came.keys()),
            error_p50_s=_quantile(counted, 0.5),
            error_p99_s=_quantile(counted, 0.99),
            error_p99_raw_s=_quantile(raw, 0.99),
            paused=len(paused),
            rss_bytes=self._rss,
        )

    def _has_paused(self, due: float, came: float) -> bool:
        return any(start < came and end > due for start, end in self._pauses)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
