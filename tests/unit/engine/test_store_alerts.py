"""What is wrong with the object store of a queue."""

from typing import Any

from support.shared import opened, queue_on

from quivermq.engine import engine_of
from quivermq.engine.alerts import judge
from quivermq.engine.rules import Evidence
from quivermq.engine.watch import ChangeTracker
from quivermq.model.stats import Alert
from quivermq.shared.figures import CacheFigures, CheckpointFigures, CommitFigures, SharedFigures
from quivermq.shared.memory import MemoryStore

LOTS = 10**12
MINUTE_US = 60_000_000


def found(minutes: int = 20, *, commit_p99_s: float | None = None, **figures: Any) -> list[Alert]:
    """What is said of a store that was so for some minutes."""
    given = {
        "epoch": 1,
        "failure": None,
        "uncommitted_bytes": 0,
        "commits": CommitFigures(),
        "checkpoint": CheckpointFigures(),
        "cache": CacheFigures(),
        **figures,
    }
    store = SharedFigures(**given)
    watch, alerts = ChangeTracker(), []
    watch.see({}, {}, {}, -1)
    for now_us in range(0, (minutes + 1) * MINUTE_US, MINUTE_US):
        watch.see({}, {}, {}, now_us)
        alerts = judge(Evidence({}, {}, [], LOTS, None, None, now_us, store, commit_p99_s), watch)
    return alerts


def names(**figures: Any) -> list[str]:
    return [each.alert for each in found(**figures)]


def test_a_store_that_is_well() -> None:
    assert names(commit_p99_s=2.0, replay_chunks=4096, cache=CacheFigures(bytes=10**12)) == []


def test_a_store_that_refuses_is_a_page_after_a_minute() -> None:
    assert names(minutes=0, trouble="store_denied") == []
    [alert] = found(minutes=1, trouble="store_denied")
    assert (alert.alert, alert.severity) == ("QuiverStoreRefuses", "page")
    assert "store_denied" in alert.summary
    assert "look at its endpoint, credentials and room" in alert.summary


def test_each_threshold_is_told_once_it_has_lasted() -> None:
    assert names(commit_p99_s=2.1) == ["QuiverSlowCommits"]
    assert names(minutes=4, commit_p99_s=2.1) == []
    assert names(replay_chunks=4097) == ["QuiverCheckpointIsOld"]
    assert names(checkpoint=CheckpointFigures(garbage_objects=10_001)) == ["QuiverGarbageGrows"]


def test_a_cache_is_under_pressure_when_it_stays_above_its_limit() -> None:
    assert names(cache=CacheFigures(bytes=1100, bytes_max=1000)) == []
    assert names(cache=CacheFigures(bytes=1101, bytes_max=1000)) == ["QuiverCachePressure"]
    assert names(minutes=9, cache=CacheFigures(bytes=1101, bytes_max=1000)) == []


def test_a_queue_on_a_shared_disk_is_judged_and_measured_by_its_store() -> None:
    with opened(MemoryStore()) as disk, queue_on(disk) as mq:
        mq.queue("orders").put(b"x")
        statistics = engine_of(mq).statistics
        assert statistics.shared is disk
        assert mq.stats().alerts == []
        measured = {sample["name"] for sample in engine_of(mq).collect_metrics()}
        assert {"quiver_topic_messages", "quiver_store_commits_total"} <= measured
