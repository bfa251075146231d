"""The last hour, kept in the broker."""

from collections.abc import Iterator
from functools import partial

import pytest
from support.site import Site

from quivermq.engine import engine, engine_of
from quivermq.errors import Overloaded
from quivermq.metrics import Metrics
from quivermq.server import history
from quivermq.server.figures import look
from quivermq.server.history import POINTS, History

POINT_S = history.INTERVAL_S
MINUTE_S = 60.0


@pytest.fixture
def site() -> Iterator[Site]:
    with Site([]) as site:
        site.engine.create_topic("orders", durability="os")
        yield site


def point(site: Site, kept: History, *, seconds: float = POINT_S) -> None:
    site.clock.advance(seconds)
    assert kept.see(look(site.broker), engine_of(site.engine).metrics)


def test_rates_and_gauges_are_kept_for_the_whole_a_topic_and_a_group(site: Site) -> None:
    kept, queue = History(), site.engine.queue("orders", "billing")
    queue.seek("earliest")
    point(site, kept)
    queue.put_many([b"x"] * 50)
    queue.ack(queue.get_many(10))
    queue.get_many(5)
    point(site, kept)
    point(site, kept)
    whole, topic, group = kept.whole(), kept.topic("orders"), kept.group("orders", "billing")
    assert whole["interval_ms"] == POINT_S * 1000
    assert whole["times"] == topic["times"] == group["times"]
    assert whole["times"][-1] == site.clock.now_us()
    assert [
        later - earlier for earlier, later in zip(whole["times"], whole["times"][1:], strict=False)
    ] == [
        5_000_000,
        5_000_000,
    ]
    # Of the first point nobody knows what was before.
    for told in (whole, topic):
        assert told["series"]["published"] == [None, 10, 0]
        assert told["series"]["lag"][1:] == [35, 35]
        assert told["series"]["in_flight"][1:] == [5, 5]
    assert group["series"]["delivered"] == [None, 3, 0]
    assert group["series"]["acked"] == [None, 2, 0]
    assert group["series"]["lag"] == [None, 35, 35]
    later = kept.topic("orders", since=whole["times"][1])
    assert (later["times"], later["series"]["published"]) == (whole["times"][2:], [0])


def test_how_long_things_took_is_kept_for_each_point(site: Site) -> None:
    kept, queue = History(), site.engine.queue("orders", "billing")
    request_time = engine_of(site.engine).metrics.histogram(
        "quiver_http_request_seconds", "", method="POST", route="/v1/topics/{topic}/messages"
    )
    sync_time = engine_of(site.engine).metrics.histogram("quiver_fsync_seconds", "")
    queue.put(b"x")
    queue.get()
    request_time.observe(9)
    point(site, kept)
    queue.put(b"x")
    site.clock.advance(2)
    queue.get_many(1)
    request_time.observe(0.02)
    for _ in range(99):
        sync_time.observe(0.001)
    sync_time.observe(0.5)
    point(site, kept)
    point(site, kept)
    series = kept.whole()["series"]
    assert series["publish_p50"] == [None, pytest.approx(20, rel=0.2), None]
    assert series["fsync_p50"][1] == pytest.approx(1, rel=0.2)
    assert series["age_p99"] == [None, pytest.approx(2000, rel=0.2), None]
    assert kept.group("orders", "billing")["series"]["age_p99"] == series["age_p99"]


def test_points_come_at_their_pace_and_a_gap_has_no_rate(site: Site) -> None:
    kept, queue = History(), site.engine.queue("orders")
    point(site, kept)
    assert not kept.see(look(site.broker), engine_of(site.engine).metrics)
    queue.put_many([b"x"] * 10)
    point(site, kept, seconds=10 * POINT_S)
    queue.put_many([b"x"] * 10)
    point(site, kept)
    assert kept.whole()["series"]["published"] == [None, None, 2]


def test_an_hour_is_kept_and_no_more(site: Site) -> None:
    kept = History()
    for _ in range(POINTS + 5):
        point(site, kept)
    assert len(kept.whole()["times"]) == POINTS
    assert kept.whole()["times"] == sorted(kept.whole()["times"])


def test_what_does_not_move_was_all_along_as_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SERIES_MAX", 0)
    kept = History()
    site.engine.queue("orders", "asleep").seek("earliest")
    site.engine.queue("orders").put_many([b"x"] * 7)
    for _ in range(3):
        point(site, kept)
    told = kept.group("orders", "asleep")["series"]
    assert (told["lag"], told["delivered"], told["age_p99"]) == ([7, 7, 7], [0, 0, 0], [None] * 3)


def test_rings_are_for_those_that_moved_last(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SERIES_MAX", 2)
    kept = History()
    for name in ("a", "b", "c"):
        site.engine.create_topic(name, durability="os")
    point(site, kept)
    for name in ("a", "b", "c"):
        site.engine.queue(name).put(b"x")
        point(site, kept)
    assert set(kept._series) == {("b",), ("c",)}
    # What had to make room is not known, and not made up.
    assert set(kept.topic("a")["series"]["published"]) == {None}
    assert kept.topic("c")["series"]["published"][-1] == 0.2


def test_what_is_gone_is_forgotten(site: Site) -> None:
    kept = History()
    site.engine.queue("orders", "billing").put(b"x")
    point(site, kept)
    site.engine.queue("orders", "billing").get()
    point(site, kept)
    assert ("orders", "billing") in kept._series
    site.engine.delete_topic("orders")
    point(site, kept)
    assert not kept._series
    assert kept._tallies.keys() <= {("fsync",), ("publish",)}


def test_what_is_still_for_an_hour_needs_no_ring(site: Site) -> None:
    kept = History()
    point(site, kept)
    site.engine.queue("orders").put(b"x")
    point(site, kept)
    assert ("orders",) in kept._series
    for _ in range(POINTS + 1):
        point(site, kept)
    assert not kept._series


def test_who_may_not_know_of_a_topic_is_told_the_sum_of_the_others(site: Site) -> None:
    kept = History()
    site.engine.create_topic("secret", durability="os")
    point(site, kept)
    site.engine.queue("orders").put_many([b"x"] * 5)
    site.engine.queue("secret").put_many([b"x"] * 500)
    point(site, kept)
    assert kept.whole()["series"]["published"][-1] == 101
    mine = kept.whole("orders".__eq__)["series"]
    assert mine["published"][-1] == 1
    assert "age_p99" not in mine
    assert set(kept.whole(lambda _: False)["series"]["published"]) == {None}


def test_more_topics_and_groups_than_prometheus_is_shown_have_their_own_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "Metrics", partial(Metrics, label_sets_max=1))
    with Site([]) as site:
        kept = History()
        for topic in ("first", "busy", "full", "left"):
            limit = 10 if topic == "full" else None
            site.engine.create_topic(topic, durability="os", attempts_max=1, backlog_messages_max=limit)
        queues = {topic: site.engine.queue(topic, "workers") for topic in ("first", "busy", "full", "left")}
        for queue in queues.values():
            queue.put_many([b"x"] * 10)
        for name in ("busy", "full", "left"):
            queues[name].seek("earliest")
        point(site, kept)
        queues["busy"].ack(queues["busy"].get_many(4))
        queues["busy"].get_many(1)[0].reject("no")
        queues["busy"].put_many([b"y"] * 5)
        with pytest.raises(Overloaded):
            queues["full"].put(b"one too many")
        point(site, kept)

        assert kept.topic("busy")["series"]["published"][-1] == 1
        assert kept.topic("left")["series"]["published"][-1] == 0
        busy, left = kept.group("busy", "workers")["series"], kept.group("left", "workers")["series"]
        assert (busy["delivered"][-1], busy["acked"][-1]) == (1, 0.8)
        assert busy["age_p99"][-1] is not None
        assert (left["delivered"][-1], left["acked"][-1]) == (0, 0)
        activity = engine_of(site.engine).activity()
        assert {name: (done.published, done.refused) for name, done in activity.items()} == {
            "first": (10, 0),
            "busy": (15, 0),
            "busy.dlq": (0, 0),
            "full": (10, 1),
            "left": (10, 0),
        }
        assert activity["busy"].groups["workers"].dead_lettered == 1
        assert activity["left"].groups["workers"].delivered == 0

        site.clock.advance(2 * MINUTE_S)
        queues["busy"].ack(queues["busy"].get_many(1))
        told = site.engine.stats()
        states = {name: told.topics[name].groups["workers"].state for name in ("busy", "full", "left")}
        assert states == {"busy": "catching_up", "full": "stalled", "left": "stalled"}
        wrong = {(alert.alert, alert.topic) for alert in told.alerts if alert.group == "workers"}
        assert wrong == {("QuiverDeadLetters", "busy")}
        whole = {
            s["labels"]["topic"]: s["value"]
            for s in engine_of(site.engine).collect_metrics()
            if s["name"] == "quiver_messages_published_total"
        }
        assert whole == {"first": 10, "other": 35}
