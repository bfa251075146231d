"""What is wrong, judged by the rules that Prometheus has."""

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from unit.engine.store import Store

import quivermq
from quivermq.engine import engine_of
from quivermq.engine.alerts import RULES, judge
from quivermq.engine.rules import Evidence
from quivermq.engine.watch import ChangeTracker
from quivermq.model.stats import Alert

ALERTS = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yaml"
LOTS = 10**12
SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)([smh])", text)
    assert found, text
    return int(found[1]) * SECONDS[found[2]]


def test_prometheus_has_the_same_rules_in_the_same_order() -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    written = [
        (rule["alert"], rule["labels"]["severity"], seconds(rule.get("for", "0s")), rule["expr"])
        for rule in rules
    ]
    assert written == [(rule.alert, rule.severity, rule.for_s, rule.expr) for rule in RULES]


@pytest.fixture
def engine(store: Store, monkeypatch: pytest.MonkeyPatch) -> quivermq.Connection:
    """One whose disk has room, whatever the machine has."""
    monkeypatch.setattr(engine_of(store.engine)._directory.disk, "free_bytes", lambda _: LOTS)
    store.queue(durability="os")
    return store.engine


def alerts(engine: quivermq.Connection) -> list[tuple[str, str | None, str | None]]:
    return [(each.alert, each.topic, each.group) for each in engine.stats().alerts]


def watched(store: Store, minutes: int) -> list[tuple[str, str | None, str | None]]:
    """What is wrong after so long, with a look every half a minute."""
    for _ in range(2 * minutes):
        store.clock.advance(30)
        store.engine.stats()
    return alerts(store.engine)


def test_an_empty_queue_is_well(engine: quivermq.Connection) -> None:
    assert alerts(engine) == []


def test_a_message_that_nobody_finished_for_ten_minutes_is_told_at_the_first_look(
    store: Store, engine: quivermq.Connection
) -> None:
    queue = engine.queue("orders", "billing")
    queue.put(b"x")
    queue.seek("earliest")
    store.clock.advance(38 * 60)
    [alert] = engine.stats().alerts
    assert (alert.alert, alert.severity, alert.topic, alert.group) == (
        "QuiverConsumersFallBehind",
        "page",
        "orders",
        "billing",
    )
    assert alert.summary == "billing has had a message of orders unfinished for 38 min"
    assert alert.since == engine_of(engine).clock.now_us() - 33 * 60 * 1_000_000


def test_an_age_counts_once_it_has_lasted(store: Store, engine: quivermq.Connection) -> None:
    queue = engine.queue("orders", "billing")
    assert alerts(engine) == []
    queue.put(b"x")
    assert queue.get(timeout=0) is not None
    assert watched(store, 6) == []
    assert ("QuiverConsumersFallBehind", "orders", "billing") in watched(store, 5)


def test_who_takes_nothing_is_told_and_who_commits_is_not(
    store: Store, engine: quivermq.Connection
) -> None:
    from quivermq.engine.offsets import Commit, commit_offsets

    for name in ("asleep", "stream"):
        engine.queue("orders", name).seek("earliest")
    for minute in range(25):
        engine.queue("orders").put_many([b"x"] * 2)
        commit_offsets(engine_of(engine), "stream", [Commit("orders", 0, 2 * minute + 1)])
        store.clock.advance(60)
        engine.stats()
    found = alerts(engine)
    assert ("QuiverNobodyConsumes", "orders", "asleep") in found
    assert ("QuiverNobodyConsumes", "orders", "stream") not in found


def test_a_group_that_just_began_is_no_alert(store: Store, engine: quivermq.Connection) -> None:
    engine.queue("orders", "billing").seek("earliest")
    engine.queue("orders").put(b"x")
    assert watched(store, 4) == []


def test_dead_letters_are_told_while_they_come_and_while_they_wait(
    store: Store, engine: quivermq.Connection
) -> None:
    queue = engine.queue("orders", "billing")
    engine.stats()
    queue.put_many([b"x"] * 3)
    for delivery in queue.get_many(3):
        delivery.reject("broken")
    came, wait = engine.stats().alerts
    assert (came.alert, came.value) == ("QuiverDeadLetters", 3)
    assert came.summary == "billing gave up 3 messages of orders in the last quarter of an hour"
    assert (wait.alert, wait.topic, wait.value) == ("QuiverDeadLettersWait", "orders", 3)
    assert watched(store, 20) == [("QuiverDeadLettersWait", "orders", None)]


def test_refused_and_dropped_messages_are_told(store: Store, engine: quivermq.Connection) -> None:
    engine.create_topic("small", backlog_messages_max=1)
    engine.create_topic("short", backlog_messages_max=1, backlog_policy="drop_oldest")
    for name in ("small", "short"):
        engine.queue(name).seek("earliest")
    engine.stats()
    engine.queue("small").put(b"1")
    with pytest.raises(quivermq.Overloaded):
        engine.queue("small").put(b"2")
    for _ in range(2):
        engine.queue("short").put(b"x")
    assert alerts(engine) == [
        ("QuiverRefusesMessages", "small", None),
        ("QuiverDropsMessages", "short", None),
    ]


def test_leases_that_run_out_again_and_again_are_told(store: Store, engine: quivermq.Connection) -> None:
    engine.alter_topic("orders", lease_ms=1000, attempts_max=100, backoff_ms=1, backoff_ms_max=1)
    queue = engine.queue("orders", "billing")
    queue.put_many([b"x"] * 50)
    found: list[tuple[str, str | None, str | None]] = []
    for _ in range(50):
        queue.get_many(50)
        store.clock.advance(30)
        found = alerts(engine)
    assert ("QuiverLeasesRunOut", "orders", "billing") in found


def test_what_does_not_work_comes_first(store: Store, engine: quivermq.Connection) -> None:
    from quivermq.engine.activity import Problem

    queue = engine.queue("orders", "billing")
    queue.put(b"x")
    queue.get_many(1)[0].reject("broken")
    survey = engine_of(engine).survey([Problem("the disk failed", "orders", 0, "normal")])
    assert [each.alert for each in survey.stats.alerts] == ["QuiverBroken", "QuiverDeadLettersWait"]
    first = survey.stats.alerts[0]
    assert (first.summary, first.topic, first.partition, first.priority) == (
        "the disk failed",
        "orders",
        0,
        "normal",
    )


def judged(
    *, free_bytes: int = LOTS, later: float | None = None, fsync: float | None = None
) -> list[Alert]:
    """What is said of a disk that was so for twenty minutes."""
    watch, found = ChangeTracker(), []
    for minute in range(20):
        now_us = minute * 60_000_000
        watch.see({}, {}, {"server_errors": minute}, now_us)
        found = judge(Evidence({}, {}, [], free_bytes, later, fsync, now_us), watch)
    return [each for each in found if each.alert != "QuiverErrors"]


def test_the_disk_is_judged_by_its_room_its_trend_and_its_time() -> None:
    assert judged(later=1.0, fsync=0.5) == []
    [alert] = judged(free_bytes=1_500_000_000)
    assert (alert.alert, alert.severity) == ("QuiverDiskNearlyFull", "page")
    assert alert.summary == "1.4 GiB are left on the disk"
    assert [each.alert for each in judged(later=-1.0)] == ["QuiverDiskFillsUp"]
    assert [each.alert for each in judged(fsync=0.51)] == ["QuiverSlowDisk"]


def test_errors_of_the_broker_are_told_when_they_go_on() -> None:
    watch = ChangeTracker()
    watch.see({}, {}, {"server_errors": 0}, 0)
    found = []
    for minute in range(1, 5):
        watch.see({}, {}, {"server_errors": minute}, minute * 60_000_000)
        found.append(judge(Evidence({}, {}, [], LOTS, None, None, minute * 60_000_000), watch))
    assert [[each.alert for each in one] for one in found] == [[], [], ["QuiverErrors"], ["QuiverErrors"]]


def test_the_worst_comes_first_within_a_rule(store: Store, engine: quivermq.Connection) -> None:
    for name, count in (("few", 1), ("many", 5)):
        queue = engine.queue(name)
        queue.put_many([b"x"] * count)
        for delivery in queue.get_many(count):
            delivery.reject("broken")
    assert [each.topic for each in engine.stats().alerts] == ["many", "few"]
