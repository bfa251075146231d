from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import inf
from random import Random
from statistics import quantiles

import pytest

from quivermq.metrics import Counter, Gauge, Histogram

THREADS = 8


@pytest.mark.parametrize("times", [0, 1, 255, 256, 257, 10_000])
def test_a_counter_adds_up(times: int) -> None:
    counter = Counter("c_total", "")
    for _ in range(times):
        counter.add()
        counter.add(2)
        next(counter.ones)
    assert counter.value == 4 * times
    assert counter.value == 4 * times, "asking changes nothing"


def test_a_counter_loses_nothing_between_threads(hectic: None) -> None:
    counter = Counter("c_total", "")
    seen: list[float] = []

    def count(thread: int) -> None:
        for step in range(10_000):
            counter.add(thread)
            next(counter.ones)
            if step % 500 == 0:
                seen.append(counter.value)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(count, range(THREADS)))
    assert counter.value == 10_000 * sum(range(1, THREADS + 1))
    assert max(seen) <= counter.value


def test_a_histogram_loses_nothing_between_threads(hectic: None) -> None:
    histogram = Histogram("h_seconds", "")

    def observe(thread: int) -> None:
        for step in range(10_000):
            # Sums of these are exact, so that nothing can hide in a rounding error.
            histogram.observe((thread + 1) / 1024)
            if step % 500 == 0:
                assert histogram.buckets()[-1][1] <= histogram.count

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(observe, range(THREADS)))
    assert histogram.count == 10_000 * THREADS
    assert histogram.sum == 10_000 * sum(range(THREADS + 1)) / 1024


def test_what_is_pending_stays_small() -> None:
    counter, histogram = Counter("c_total", ""), Histogram("h_seconds", "")
    for _ in range(10_000):
        counter.add()
        histogram.observe(0.1)
    assert len(counter._pending) < 256
    assert len(histogram._pending) < 256


def test_counting_does_not_wait_for_one_who_adds_up() -> None:
    counter, histogram = Counter("c_total", ""), Histogram("h_seconds", "")
    with counter._lock, histogram._lock:
        for _ in range(1000):
            counter.add()
            histogram.observe(0.5)
    assert (counter.value, histogram.count) == (1000, 1000)


def test_a_gauge_has_the_last_value() -> None:
    gauge = Gauge("g", "")
    assert gauge.value == 0
    gauge.set(7)
    gauge.set(-2.5)
    assert gauge.value == -2.5


def test_an_empty_histogram_has_no_percentiles() -> None:
    histogram = Histogram("h_seconds", "")
    assert (histogram.count, histogram.sum) == (0, 0)
    assert histogram.p50 is histogram.p95 is histogram.p99 is None
    assert {count for _, count in histogram.buckets()} == {0}


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 0.00123, 1.0, 59.0, 67.2, 3600.0])
def test_percentiles_of_a_single_time_are_that_time(seconds: float) -> None:
    histogram = Histogram("h_seconds", "")
    histogram.observe(seconds)
    assert histogram.p50 == histogram.p95 == histogram.p99 == seconds


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_percentiles_are_off_by_a_tenth_at_most(scale: float, spread: float) -> None:
    random, histogram = Random(f"{scale} {spread}"), Histogram("h_seconds", "")
    times = [scale * random.lognormvariate(0, spread) for _ in range(5000)]
    for seconds in times:
        histogram.observe(seconds)
    exact = quantiles(times, n=100)
    assert histogram.p50 == pytest.approx(exact[49], rel=0.1)
    assert histogram.p95 == pytest.approx(exact[94], rel=0.1)
    assert histogram.p99 == pytest.approx(exact[98], rel=0.1)


def test_percentiles_keep_two_groups_apart() -> None:
    histogram = Histogram("h_seconds", "")
    for seconds in [0.001] * 98 + [30.0] * 2:
        histogram.observe(seconds)
    assert histogram.p50 == histogram.percentile(0.01) == pytest.approx(0.001, rel=0.2)
    assert histogram.p95 == pytest.approx(0.001, rel=0.2)
    assert histogram.p99 == pytest.approx(30, rel=0.2)


def test_buckets_are_cumulative_and_reach_from_a_microsecond_to_a_minute() -> None:
    histogram = Histogram("h_seconds", "")
    # A bound belongs to its bucket, as Prometheus has it: le means less or equal.
    for seconds in [0.0, 1e-6, 1.5e-6, 2e-6, 2.1e-6, 50.0, 1000.0]:
        histogram.observe(seconds)
    buckets = histogram.buckets()
    bounds = [bound for bound, _ in buckets]
    assert bounds[:3] == [1e-6, 2e-6, 4e-6]
    assert bounds[-2] > 60
    assert bounds[-1] == inf
    assert all(low < high for low, high in pairwise(bounds))
    counts = dict(buckets)
    assert [counts[1e-6], counts[2e-6], counts[4e-6]] == [2, 4, 5]
    assert counts[bounds[-2]] == 6
    assert counts[inf] == histogram.count == 7
    assert all(low <= high for low, high in pairwise(count for _, count in buckets))
