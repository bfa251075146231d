"""What looks at the queue remember of each other, and what a group does, in one word.

Counters alone tell no rate, and figures of one moment tell nothing of before. Little is kept for each
group, and only as long as it is there. Whoever looks adds to it: the broker every few seconds, a program
when it asks.

The state of a group follows from that by rules that are the same for people and for programs:

| state | when |
|---|---|
| paused | somebody has paused it |
| idle | nothing is unfinished |
| stalled | some are pending, the oldest for over a minute; none is in hand, none was taken for a minute |
| catching_up | it takes messages, more than a minute's work is pending, and that becomes less |
| falling_behind | it takes messages, more than a minute's work is pending, and that does not become less |
| consuming | it takes messages, or has some in hand |
| waiting | what is unfinished came less than a minute ago, or is not due yet |

In queue mode to take a message is to be handed it, in stream mode to commit an offset behind it.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from quivermq.engine.activity import GroupActivity, TopicActivity
from quivermq.metrics import percentile_between
from quivermq.model.stats import GroupState

# A topic and a group.
TopicGroup = tuple[str, str]

MINUTE_US = 60_000_000
# A mark of a group is moved on after this long, so it is as old as that, and at most twice as old.
_MARK_US = MINUTE_US // 2
_WINDOW_US = 15 * MINUTE_US
_STEP_US = MINUTE_US // 2
# Prometheus is asked for the last hour of the one, and for the last five minutes of the other.
_FREE_KEPT = 60
_SYNCS_KEPT = 5


@dataclass(frozen=True, slots=True)
class Pace:
    """How a group has moved lately, as far as anybody has watched."""

    moved_us: int | None = None
    """When it was last seen to take or finish a message; None when never since the queue was opened."""
    taken: int = 0
    """How many it took since the mark."""
    mark_us: int = 0
    """When that mark was set: some time of the last minute."""
    mark_pending: int = 0
    """How many messages were pending then."""


class Load(NamedTuple):
    """What a group has before it."""

    pending: int
    in_flight: int
    retrying: int
    waiting_for_key: int
    oldest_us: int
    """When the oldest unfinished message came in; 0 when there is none."""


def state_of(load: Load, pace: Pace, now_us: int, *, is_paused: bool = False) -> GroupState:
    """The state of a group."""
    if is_paused:
        return "paused"
    if not (load.pending or load.in_flight or load.retrying or load.waiting_for_key):
        return "idle"
    has_moved = pace.moved_us is not None and now_us - pace.moved_us < MINUTE_US
    if load.pending and not (has_moved or load.in_flight):
        is_old = bool(load.oldest_us) and now_us - load.oldest_us > MINUTE_US
        return "stalled" if is_old else "waiting"
    if has_moved and _is_behind(load, pace, now_us):
        return "catching_up" if load.pending < pace.mark_pending else "falling_behind"
    return "consuming" if has_moved or load.in_flight else "waiting"


def _is_behind(load: Load, pace: Pace, now_us: int) -> bool:
    """Whether more is pending than it takes in a minute."""
    passed_us = now_us - pace.mark_us
    return passed_us > 0 and pace.taken > 0 and load.pending > pace.taken * MINUTE_US / passed_us


class Rise:
    """By how much a counter rose within the last minutes, to half a minute exactly."""

    __slots__ = ("_last", "_samples")

    def __init__(self, value: int, now_us: int) -> None:
        self._last = value
        self._samples: deque[tuple[int, int]] = deque([(now_us, value)])

    def see(self, value: int, now_us: int) -> None:
        samples = self._samples
        if value < self._last:
            # It began anew.
            samples.clear()
            samples.append((now_us, 0))
        elif now_us - samples[-1][0] >= _STEP_US:
            samples.append((now_us, self._last))
        self._last = value
        while len(samples) > 1 and samples[1][0] <= now_us - _WINDOW_US:
            samples.popleft()

    def within(self, window_us: int, now_us: int) -> int:
        """By how much, since that long ago or since it was first seen."""
        start = self._samples[0][1]
        for time_us, value in self._samples:
            if time_us > now_us - window_us:
                break
            start = value
        return self._last - start


class Done(NamedTuple):
    """What a group has taken and finished by a moment."""

    delivered: int
    acked: int
    time_us: int


@dataclass(slots=True)
class _Group:
    """What was last seen of a group."""

    delivered: int
    acked: int
    moved_us: int | None
    # When, how many were delivered by then, and how many were pending: the mark that counts, and the next.
    marks: list[tuple[int, int, int]]


class ChangeTracker:
    """The memory between looks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[TopicGroup, _Group] = {}
        self._rises: dict[tuple[str, str, str], Rise] = {}
        self._since: dict[tuple[str, ...], int] = {}
        self._first_us: int | None = None

    def see(
        self,
        activity: Mapping[str, TopicActivity],
        pending: Mapping[TopicGroup, int],
        totals: Mapping[str, int],
        now_us: int,
    ) -> None:
        """Take in one look: all topics, what is pending by topic and group, and counters of the whole."""
        with self._lock:
            is_first, known_groups, known_rises = self._first_us is None, self._groups, self._rises
            self._first_us = now_us if self._first_us is None else self._first_us
            self._groups, self._rises = {}, {}

            def count(name: str, value: int, topic: str = "", group: str = "") -> None:
                rise = known_rises.get((name, topic, group))
                if rise is None and value:
                    # What was counted before anybody looked did not rise now.
                    rise = Rise(value if is_first else 0, now_us)
                if rise is not None:
                    rise.see(value, now_us)
                    self._rises[name, topic, group] = rise

            for name, value in totals.items():
                count(name, value)
            for topic, done in activity.items():
                count("refused", done.refused, topic)
                count("dropped", done.dropped, topic)
                for group, had in done.groups.items():
                    key = (topic, group)
                    seen = known_groups.get(key)
                    self._groups[key] = _seen(seen, had, pending.get(key, 0), now_us)
                    count("dead_lettered", had.dead_lettered, topic, group)
                    count("leases_expired", had.leases_expired, topic, group)

    def pace(self, topic: str, group: str, done: Done | None = None) -> Pace:
        """How a group has moved lately. What it has `done` by now may not have been seen by any look."""
        with self._lock:
            found = self._groups.get((topic, group))
        if found is None:
            return Pace(done.time_us) if done is not None and done.delivered else Pace()
        mark_us, mark_delivered, mark_pending = found.marks[0]
        moved_us, delivered = found.moved_us, found.delivered
        if done is not None and (done.delivered, done.acked) != (found.delivered, found.acked):
            moved_us, delivered = done.time_us, max(done.delivered, delivered)
        return Pace(moved_us, delivered - mark_delivered, mark_us, mark_pending)

    def rise(self, name: str, window_us: int, now_us: int, topic: str = "", group: str = "") -> int:
        """By how much a counter rose within a window."""
        with self._lock:
            found = self._rises.get((name, topic, group))
            return 0 if found is None else found.within(window_us, now_us)

    def risen(self, name: str, window_us: int, now_us: int) -> dict[TopicGroup, int]:
        """By how much the counters of that name rose, by topic and group, where they did."""
        with self._lock:
            found = {
                (topic, group): rise.within(window_us, now_us)
                for (each, topic, group), rise in self._rises.items()
                if each == name
            }
        return {key: by for key, by in found.items() if by}

    def since(
        self, found: Iterable[tuple[str, ...]], now_us: int
    ) -> dict[tuple[str, ...], tuple[int, bool]]:
        """For each thing that is found now: since when, and whether that is since the first look."""
        with self._lock:
            self._since = {each: self._since.get(each, now_us) for each in found}
            return {each: (since, since == self._first_us) for each, since in self._since.items()}


def _seen(before: _Group | None, had: GroupActivity, pending: int, now_us: int) -> _Group:
    mark = (now_us, had.delivered, pending)
    if before is None or had.delivered < before.delivered:
        # When it took what it took before anybody looked, nobody knows: then it counts as now.
        return _Group(had.delivered, had.acked, now_us if had.delivered else None, [mark])
    has_moved = (had.delivered, had.acked) != (before.delivered, before.acked)
    marks = before.marks
    if now_us - marks[-1][0] >= _MARK_US:
        marks = [marks[-1], mark]
    return _Group(had.delivered, had.acked, now_us if has_moved else before.moved_us, marks)


class Trends:
    """Where the disk goes, and how it does lately: a point a minute. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: deque[tuple[int, int]] = deque(maxlen=_FREE_KEPT)
        self._syncs: deque[tuple[int, list[int]]] = deque(maxlen=_SYNCS_KEPT)
        self._latest: list[int] | None = None

    def see(self, free_bytes: int, syncs: list[int], now_us: int) -> None:
        """Take in the room on the disk, and the tally of how long syncs took."""
        with self._lock:
            self._latest = syncs
            if not self._free or now_us - self._free[-1][0] >= MINUTE_US:
                self._free.append((now_us, free_bytes))
                self._syncs.append((now_us, syncs))

    def free_bytes_in(self, seconds: float) -> float | None:
        """The room that there will be so long after the last point: a straight line through all of them."""
        with self._lock:
            points = list(self._free)
        if len(points) < 2:
            return None
        end_us = points[-1][0]
        times = [(time_us - end_us) / 1_000_000 for time_us, _ in points]
        mean_time = sum(times) / len(times)
        mean_free = sum(free for _, free in points) / len(points)
        spread = sum((time - mean_time) ** 2 for time in times)
        rise = sum(
            (time - mean_time) * (free - mean_free) for time, (_, free) in zip(times, points, strict=True)
        )
        return mean_free + rise / spread * (seconds - mean_time)

    def sync_p99_s(self) -> float | None:
        """What one sync in a hundred took longer than, in the last minutes; None when there was none."""
        with self._lock:
            if self._latest is None:
                return None
            return percentile_between(self._syncs[0][1], self._latest, 0.99)
