"""The last hour, kept in the broker: a point every few seconds, for the whole and for what moves.

A page that was just opened draws from this. It is bounded: rings of numbers, for so many topics and groups
as have moved last; what does not move needs none, because all of its points are the same as now.
"""

import asyncio
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping
from math import isnan, nan
from typing import Any

from quivermq.engine.activity import TopicActivity
from quivermq.engine.statistics import Survey
from quivermq.errors import QuiverError
from quivermq.metrics import Histogram, Metrics, percentile_between
from quivermq.model.turns import in_turns
from quivermq.server.broker import Broker
from quivermq.server.figures import Wanted, look

INTERVAL_S = 5.0
POINTS = 720
# Rings are kept for so many topics and groups together: at most about 14 MB.
SERIES_MAX = 1000
# A look never takes more than this share of the time, however many topics there are.
_SHARE_MAX = 0.02

_COUNTERS = ("published", "delivered", "acked")
_GAUGES = ("backlog", "lag", "in_flight", "dead_letters")
_TIMES = ("fsync_p50", "fsync_p99", "publish_p50", "publish_p99", "age_p50", "age_p99")
WHOLE = (*_COUNTERS, *_GAUGES, *_TIMES)
OF_TOPIC = (*_COUNTERS, *_GAUGES)
OF_GROUP = ("delivered", "acked", "lag", "in_flight", "age_p99")

# Of which tallies are kept beside those of groups.
_KINDS: set[tuple[str, ...]] = {("fsync",), ("publish",)}
_PUBLISH = {"method": "POST", "route": "/v1/topics/{topic}/messages"}

# A topic, or a topic and a group.
_Place = tuple[str, ...]


class _Series:
    """The rings of one thing: a number for each point, and nan where nobody knows it."""

    __slots__ = ("first", "moved", "rings")

    def __init__(self, names: Iterable[str], number: int) -> None:
        self.rings = {name: array("f", [nan]) * POINTS for name in names}
        self.first = number
        self.moved = number

    def put(self, number: int, values: Mapping[str, float | None]) -> None:
        place = number % POINTS
        for name, ring in self.rings.items():
            value = values.get(name)
            ring[place] = nan if value is None else value


class History:
    """What was seen, newest last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._times = array("q", [0]) * POINTS
        self._whole = _Series(WHOLE, 0)
        self._series: dict[_Place, _Series] = {}
        # The counters and gauges of the last point, by topic and by topic and group.
        self._last: dict[_Place, tuple[float, ...]] = {}
        self._last_us = 0
        self._tallies: dict[_Place, list[int]] = {}
        # Those that had to make room: what their points were, nobody knows.
        self._lost: set[_Place] = set()

    def see(self, survey: Survey, metrics: Metrics) -> bool:
        """Keep a look, unless the last one is too young. Returns whether it was kept."""
        with self._lock:
            passed_s = (survey.time_us - self._last_us) / 1_000_000
            if self._number and 0 <= passed_s < INTERVAL_S * 0.9:
                return False
            # After a pause, or when the clock was set, differences mean nothing.
            seconds = passed_s if self._number and 0 < passed_s <= 3 * INTERVAL_S else None
            self._keep(survey, metrics, seconds)
            return True

    def _keep(self, survey: Survey, metrics: Metrics, seconds: float | None) -> None:
        now = dict(_figures(survey))
        ages = self._ages(metrics)
        totals: dict[str, float | None] = dict.fromkeys((*_COUNTERS, *_GAUGES), 0.0)
        for place, figures in in_turns(now.items()):
            before = self._last.get(place)
            values = {**figures, **_rates(before, figures, seconds)}
            if len(place) == 1:
                totals = {name: (totals[name] or 0) + (values[name] or 0) for name in totals}
            elif place in ages:
                values |= _percentiles("age", [ages[place]])
            self._put(place, values, has_moved=before is not None and before != tuple(figures.values()))
        if seconds is None:
            totals |= dict.fromkeys(_COUNTERS)
        self._whole.put(self._number, {**totals, **self._latencies(metrics, ages)})
        self._times[self._number % POINTS] = survey.time_us
        self._last = {place: tuple(figures.values()) for place, figures in now.items()}
        self._last_us = survey.time_us
        self._number += 1
        self._forget(now)

    def _put(self, place: _Place, values: Mapping[str, float | None], *, has_moved: bool) -> None:
        series = self._series.get(place)
        if series is None:
            is_waiting = bool(values.get("lag") or values.get("in_flight"))
            if not has_moved and not (is_waiting and len(self._series) < SERIES_MAX):
                return
            if len(self._series) >= SERIES_MAX:
                last = min(self._series, key=lambda each: self._series[each].moved)
                del self._series[last]
                self._lost.add(last)
            self._lost.discard(place)
            series = self._series[place] = _Series(_names(place), self._number)
        if has_moved:
            series.moved = self._number
        series.put(self._number, values)

    def _forget(self, now: Mapping[_Place, object]) -> None:
        """What is gone, or has not moved for as long as anything is kept."""
        for place, series in list(self._series.items()):
            if place not in now or self._number - series.moved > POINTS:
                del self._series[place]
        self._lost &= now.keys()
        for place in self._tallies.keys() - now.keys() - _KINDS:
            del self._tallies[place]

    # How long things took.

    def _ages(self, metrics: Metrics) -> dict[_Place, list[int]]:
        """By topic and group: how old messages were that were delivered since the last point."""
        found: dict[_Place, list[int]] = {}
        for metric in metrics.family("quiver_delivery_age_seconds"):
            labels = dict(metric.labels)
            place = (labels["topic"], labels["group"])
            assert isinstance(metric, Histogram)
            if (new := self._new(place, metric)) is not None:
                found[place] = new
        return found

    def _latencies(self, metrics: Metrics, ages: Mapping[_Place, list[int]]) -> dict[str, float | None]:
        publishes = [
            metric
            for metric in metrics.family("quiver_http_request_seconds")
            if dict(metric.labels) == _PUBLISH
        ]
        found: dict[str, float | None] = {}
        for name, histograms in (("fsync", metrics.family("quiver_fsync_seconds")), ("publish", publishes)):
            tallies = [
                new
                for metric in histograms
                if isinstance(metric, Histogram) and (new := self._new((name,), metric)) is not None
            ]
            found |= _percentiles(name, tallies)
        return found | _percentiles("age", list(ages.values()))

    def _new(self, place: _Place, histogram: Histogram) -> list[int] | None:
        """What was observed since the last point, or None for nothing."""
        tally, before = histogram.tally(), self._tallies.get(place)
        self._tallies[place] = tally
        if before is None or tally == before:
            return None
        return [now - then for now, then in zip(tally, before, strict=True)]

    # What is shown.

    def whole(self, wanted: Wanted | None = None, *, since: int = 0) -> dict[str, Any]:
        """All topics together, or those that are wanted: of these, the times are not told.

        Only the points after `since`, in unix microseconds.
        """
        with self._lock:
            if wanted is None:
                return self._points(self._whole, since)
            mine = [s for place, s in self._series.items() if len(place) == 1 and wanted(place[0])]
            rings = {name: [series.rings[name] for series in mine] for name in OF_TOPIC}
            summed = _Series(OF_TOPIC, self._number)
            if mine:
                summed.rings = {
                    name: array("f", map(_sum, zip(*each, strict=True))) for name, each in rings.items()
                }
            return self._points(summed, since)

    def topic(self, topic: str, *, since: int = 0) -> dict[str, Any]:
        """One topic."""
        return self._of((topic,), since)

    def group(self, topic: str, group: str, *, since: int = 0) -> dict[str, Any]:
        """One group in one topic."""
        return self._of((topic, group), since)

    def _of(self, place: _Place, since: int) -> dict[str, Any]:
        with self._lock:
            return self._points(self._series.get(place) or self._still(place), since)

    def _still(self, place: _Place) -> _Series:
        """What has not moved for as long as anything is kept was all along as it is now."""
        series = _Series(_names(place), self._number)
        if place in self._last and place not in self._lost:
            figures = dict(zip(_names(place), self._last[place], strict=False))
            for name, value in figures.items():
                series.rings[name] = array("f", [0 if name in _COUNTERS else value]) * POINTS
        return series

    def _points(self, series: _Series, since: int) -> dict[str, Any]:
        numbers = range(max(0, self._number - POINTS), self._number)
        places = [number % POINTS for number in numbers if self._times[number % POINTS] > since]
        return {
            "interval_ms": int(INTERVAL_S * 1000),
            "times": [self._times[place] for place in places],
            "series": {
                name: [_json(ring[place]) for place in places] for name, ring in series.rings.items()
            },
        }


def _names(place: _Place) -> tuple[str, ...]:
    return OF_TOPIC if len(place) == 1 else OF_GROUP


def _figures(survey: Survey) -> Iterator[tuple[_Place, dict[str, float]]]:
    for name, topic in in_turns(survey.stats.topics.items()):
        done = survey.activity.get(name) or TopicActivity(0)
        had = done.groups
        queues = topic.groups.values()
        yield (
            (name,),
            {
                "published": done.published,
                "delivered": sum(each.delivered for each in had.values()),
                "acked": sum(each.acked for each in had.values()),
                "backlog": sum(each.backlog for each in queues),
                "lag": sum(each.pending for each in queues),
                "in_flight": sum(each.in_flight for each in queues),
                "dead_letters": topic.dead_letters,
            },
        )
        for group, queue in topic.groups.items():
            own = had.get(group)
            yield (
                (name, group),
                {
                    "delivered": own.delivered if own else 0,
                    "acked": own.acked if own else 0,
                    "lag": queue.pending,
                    "in_flight": queue.in_flight,
                },
            )


def _rates(
    before: tuple[float, ...] | None, figures: Mapping[str, float], seconds: float | None
) -> dict[str, float | None]:
    """The counters among the figures, a second."""
    rates: dict[str, float | None] = {}
    for place, (name, value) in enumerate(figures.items()):
        if name in _COUNTERS:
            # What is new began with nothing; what counts less than before began anew.
            then = 0 if before is None else before[place]
            rates[name] = None if seconds is None or value < then else (value - then) / seconds
    return rates


def _percentiles(name: str, tallies: list[list[int]]) -> dict[str, float | None]:
    """In milliseconds, of everything together."""
    together = [sum(counts) for counts in zip(*tallies, strict=True)]
    found: dict[str, float | None] = {}
    for percent in (50, 99):
        seconds = percentile_between(None, together, percent / 100) if together else None
        found[f"{name}_p{percent}"] = None if seconds is None else seconds * 1000
    return found


def _sum(values: Iterable[float]) -> float:
    known = [value for value in values if not isnan(value)]
    return sum(known) if known else nan


def _json(value: float) -> float | None:
    return None if isnan(value) else round(value, 3)


class Recorder:
    """The history of a broker. Belongs to the event loop's thread, but for `see`."""

    def __init__(self, broker: Broker) -> None:
        self.history = History()
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self._recording: asyncio.Future[None] | None = None
        self._seen_at = float("-inf")
        broker.on_drain.append(self.stop)

    def start(self) -> None:
        """Look from now on, until the broker drains."""
        self._plan(0)

    def stop(self) -> None:
        """Look no more. Calling twice is allowed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def see(self, survey: Survey) -> None:
        """Take a look that somebody else had anyway. From any thread."""
        if self.history.see(survey, self._broker.engine.metrics):
            self._seen_at = self._broker.engine.clock.monotonic()

    def _look(self) -> None:
        """In a thread."""
        self.see(look(self._broker))

    def _plan(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        left_s = INTERVAL_S - (self._broker.engine.clock.monotonic() - self._seen_at)
        if left_s > 0:
            self._plan(left_s)
        elif not self._broker.is_draining:
            self._recording = asyncio.ensure_future(self._record())

    async def _record(self) -> None:
        begun = self._broker.engine.clock.monotonic()
        try:
            await self._broker.figure(self._look)
        except QuiverError:
            # The queue cannot tell now: then there is a gap.
            self._seen_at = begun
        finally:
            self._recording = None
        took_s = self._broker.engine.clock.monotonic() - begun
        if not self._broker.is_draining:
            self._plan(max(INTERVAL_S, took_s / _SHARE_MAX))
