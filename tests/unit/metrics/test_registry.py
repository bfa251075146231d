import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quivermq.metrics import Metrics, labels_of

THREADS = 8


def test_asking_twice_gives_the_same_metric() -> None:
    metrics = Metrics()
    first = metrics.counter("quiver_puts_total", "Puts.", topic="a", group="b")
    assert metrics.counter("quiver_puts_total", "Puts.", group="b", topic="a") is first
    assert metrics.counter("quiver_puts_total", "Puts.", topic="a", group="c") is not first
    assert first.labels == (("group", "b"), ("topic", "a"))


def test_threads_that_ask_at_once_get_the_same_metric(hectic: None) -> None:
    metrics = Metrics()

    def count(_: int) -> None:
        for number in range(200):
            metrics.counter("quiver_puts_total", "Puts.", topic=str(number)).add()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(count, range(THREADS)))
    assert [sample["value"] for sample in metrics.collect()] == [THREADS] * 200


def test_samples_are_plain_data() -> None:
    metrics = Metrics()
    metrics.counter("quiver_puts_total", "Puts.", topic="b").add(2)
    metrics.gauge("quiver_backlog", "Backlog.").set(5)
    metrics.histogram("quiver_put_seconds", "Time.", topic="a").observe(0.5)
    metrics.counter("quiver_puts_total", "Puts.", topic="a").add(1)
    samples = metrics.collect()
    put, other, backlog, time = samples
    assert put == {
        "name": "quiver_puts_total",
        "kind": "counter",
        "help": "Puts.",
        "labels": {"topic": "b"},
        "value": 2,
    }
    assert (other["name"], other["labels"], other["value"]) == ("quiver_puts_total", {"topic": "a"}, 1)
    assert (backlog["kind"], backlog["labels"], backlog["value"]) == ("gauge", {}, 5)
    assert (time["kind"], time["count"], time["sum"]) == ("histogram", 1, 0.5)
    assert time["p50"] == time["p95"] == time["p99"] == 0.5
    assert time["buckets"][0] == ("1e-06", 0)
    assert time["buckets"][-1] == ("+Inf", 1)
    again = json.loads(json.dumps(samples, allow_nan=False))
    assert again[:3] == samples[:3]
    assert again[3]["buckets"] == [list(each) for each in time["buckets"]]


def test_label_sets_beyond_the_limit_are_counted_as_others() -> None:
    metrics = Metrics(label_sets_max=2)
    for number in range(5):
        metrics.counter("quiver_puts_total", "Puts.", topic=f"t{number}", group="g").add()
        metrics.counter("quiver_gets_total", "Gets.").add()
    assert [(s["name"], s["labels"].get("topic"), s["value"]) for s in metrics.collect()] == [
        ("quiver_puts_total", "t0", 1),
        ("quiver_puts_total", "t1", 1),
        ("quiver_puts_total", "other", 3),
        ("quiver_gets_total", None, 5),
    ]
    assert metrics.collect()[2]["labels"] == {"topic": "other", "group": "other"}
    assert metrics.counter("quiver_puts_total", "Puts.", topic="t1", group="g").value == 1


def test_a_wrong_name_is_our_own_bug() -> None:
    metrics = Metrics()
    metrics.counter("quiver_puts_total", "Puts.", topic="a")
    metrics.gauge("quiver_x_total", "X.")
    with pytest.raises(AssertionError, match="ends in _total"):
        metrics.counter("quiver_puts", "Puts.")
    with pytest.raises(AssertionError, match="ends in its unit"):
        metrics.histogram("quiver_put_ms", "Time.")
    with pytest.raises(AssertionError, match="label of a bucket"):
        metrics.histogram("quiver_put_seconds", "Time.", le="1")
    with pytest.raises(AssertionError, match="no name of a metric"):
        metrics.gauge("quiver-backlog", "Backlog.")
    with pytest.raises(AssertionError, match="no name of a metric"):
        metrics.gauge("quiver_backlog", "Backlog.", __topic="a")
    with pytest.raises(AssertionError, match="has other labels"):
        metrics.counter("quiver_puts_total", "Puts.", group="a")
    with pytest.raises(AssertionError, match="is a gauge"):
        metrics.counter("quiver_x_total", "X.")


def shown(metrics: Metrics) -> list[Any]:
    return [
        (sample["labels"]["topic"], sample.get("value", sample.get("count")))
        for sample in metrics.collect()
    ]


def test_each_beyond_the_limit_still_counts_by_itself() -> None:
    metrics = Metrics(label_sets_max=2)
    counters = [metrics.counter("quiver_puts_total", "Puts.", topic=f"t{number}") for number in range(4)]
    for number, counter in enumerate(counters):
        counter.add(number + 1)
    assert [counter.value for counter in counters] == [1, 2, 3, 4]
    assert metrics.counter("quiver_puts_total", "Puts.", topic="t3") is counters[3]
    assert metrics.family("quiver_puts_total") == counters
    assert shown(metrics) == [("t0", 1), ("t1", 2), ("other", 7)]


def test_histograms_beyond_the_limit_are_shown_as_if_they_were_one() -> None:
    metrics, alone = Metrics(label_sets_max=1), Metrics()
    for number, seconds in enumerate([9.0, 0.001, 0.5, 0.5, 20.0]):
        metrics.histogram("quiver_put_seconds", "Time.", topic=f"t{number}").observe(seconds)
        if number:
            alone.histogram("quiver_put_seconds", "Time.", topic="other").observe(seconds)
    metrics.histogram("quiver_put_seconds", "Time.", topic="t9")
    assert metrics.collect()[1:] == alone.collect()


def test_what_others_counted_stays_when_they_are_gone() -> None:
    metrics = Metrics(label_sets_max=1)
    for number in range(4):
        metrics.counter("quiver_puts_total", "Puts.", topic=f"t{number}").add(10**number)
    for number in (2, 1):
        metrics.forget(topic=f"t{number}")
    assert shown(metrics) == [("t0", 1), ("other", 1110)]
    metrics.forget(topic="t0")
    metrics.counter("quiver_puts_total", "Puts.", topic="t4").add(5)
    assert shown(metrics) == [("t4", 5), ("other", 1110)]


def test_a_topic_may_have_the_name_of_all_others() -> None:
    metrics = Metrics(label_sets_max=2)
    for topic in ("other", "a", "b", "c"):
        metrics.counter("quiver_puts_total", "Puts.", topic=topic).add(1)
    assert metrics.counter("quiver_puts_total", "Puts.", topic="other").value == 1
    assert shown(metrics) == [("a", 1), ("b", 1), ("other", 2)]


def test_gauges_are_told_all_anew() -> None:
    metrics = Metrics(label_sets_max=2)

    def tell(**values: int) -> list[Any]:
        metrics.gauges("quiver_lag", "Lag.", {labels_of(topic=topic): n for topic, n in values.items()})
        return shown(metrics)

    assert tell(a=1, b=2, c=3, d=4) == [("a", 1), ("b", 2), ("other", 7)]
    assert tell(d=4, c=3, b=5) == [("b", 5), ("d", 4), ("other", 3)], "one that is shown stays"
    assert tell(d=1, other=9) == [("d", 1), ("other", 9)]
    metrics.forget(topic="other")
    assert shown(metrics) == [("d", 1)]
    assert tell() == []


def test_of_ages_beyond_the_limit_the_largest_is_shown() -> None:
    metrics = Metrics(label_sets_max=1)
    ages = {labels_of(topic=topic): age for topic, age in (("a", 1), ("b", 9), ("c", 5))}
    metrics.gauges("quiver_age_seconds", "Age.", ages, together=max)
    assert shown(metrics) == [("a", 1), ("other", 9)]
