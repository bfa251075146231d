"""Metrics as text for Prometheus."""

from quivermq.metrics import Metrics
from quivermq.server.figures import exposition


def test_counters_and_gauges_have_a_line_each_below_their_name() -> None:
    metrics = Metrics()
    metrics.counter("a_total", "How many.", topic="x").add(2)
    metrics.gauge("b", "How much.").set(1.5)
    metrics.counter("a_total", "How many.", topic="y").add(3)
    assert exposition(metrics.collect()).decode() == (
        "# HELP a_total How many.\n"
        "# TYPE a_total counter\n"
        'a_total{topic="x"} 2\n'
        'a_total{topic="y"} 3\n'
        "# HELP b How much.\n"
        "# TYPE b gauge\n"
        "b 1.5\n"
    )


def test_a_histogram_has_cumulative_buckets_a_sum_and_a_count() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("c_seconds", "How long.", topic="x")
    histogram.observe(0.5)
    histogram.observe(3.0)
    lines = exposition(metrics.collect()).decode().splitlines()
    assert lines[:2] == ["# HELP c_seconds How long.", "# TYPE c_seconds histogram"]
    assert lines[-3:] == [
        'c_seconds_bucket{topic="x",le="+Inf"} 2',
        'c_seconds_sum{topic="x"} 3.5',
        'c_seconds_count{topic="x"} 2',
    ]
    counts = [int(line.rpartition(" ")[2]) for line in lines[2:-2]]
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2}


def test_what_could_break_a_line_is_escaped() -> None:
    metrics = Metrics()
    metrics.gauge("d", "one\nline \\", label='a"b\\c\nd').set(0)
    text = exposition(metrics.collect()).decode()
    assert text == '# HELP d one\\nline \\\\\n# TYPE d gauge\nd{label="a\\"b\\\\c\\nd"} 0\n'


def test_nothing_measured_is_nothing_said() -> None:
    assert exposition([]) == b""
