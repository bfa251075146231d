from typing import Any, NamedTuple

import pytest
from support.damage import flip
from support.faulty_disk import FaultyDisk
from support.logs import Logs, contents, values

from quivermq.errors import FsyncFailed, OffsetOutOfRange
from quivermq.log import Log, RetentionResult
from quivermq.log.maintenance import removable
from quivermq.settings import StorageSettings

FRAME_BYTES = 96


def filled(logs: Logs, count: int = 10, **settings: Any) -> Log:
    """One message a segment, one segment a second."""
    log = logs.open(segment_messages=1, **settings)
    for n in range(count):
        log.append(b"%d" % n)
        logs.clock.advance(1)
    return log


# Which may go


class Fake(NamedTuple):
    """A segment as retention sees it."""

    end_offset: int
    messages: int
    end: int
    newest_us: int | None

    def last_append_time(self) -> int | None:
        return self.newest_us


SEGMENTS: list[Any] = [Fake(10 * n + 10, 10, 100, 1_000_000 * n) for n in range(5)]
NOW_US = 4_000_000


@pytest.mark.parametrize(
    ("settings", "floor", "count"),
    [
        ({}, None, 0),
        ({"segments_max": 5}, None, 0),
        ({"segments_max": 4}, None, 1),
        ({"segments_max": 1}, None, 4),
        ({"retention_bytes": 500}, None, 0),
        ({"retention_bytes": 499}, None, 1),
        ({"retention_bytes": 1}, None, 4),
        ({"retention_messages": 50}, None, 0),
        ({"retention_messages": 49}, None, 1),
        ({"retention_messages": 30}, None, 2),
        ({"retention_messages": 1}, None, 4),
        ({"retention_ms": 4000}, None, 0),
        ({"retention_ms": 3999}, None, 1),
        ({"retention_ms": 3000}, None, 1),
        ({"retention_ms": 1}, None, 4),
        ({"retention_ms": 2000, "segments_max": 4}, None, 2),
        ({"retention_ms": 2000, "segments_max": 2}, None, 3),
        ({"segments_max": 3, "segments_min": 3}, None, 2),
        ({"retention_bytes": 1, "segments_min": 3}, None, 2),
        ({"retention_ms": 1, "segments_min": 5}, None, 0),
        ({"retention_ms": 1, "segments_min": 9}, None, 0),
        ({"segments_max": 1}, 0, 0),
        ({"segments_max": 1}, 9, 0),
        ({"segments_max": 1}, 10, 1),
        ({"segments_max": 1}, 29, 2),
        ({"segments_max": 1}, 30, 3),
        ({"segments_max": 1}, 10**9, 4),
        ({"retention_ms": 1}, 20, 2),
        ({"retention_bytes": 1}, 20, 2),
    ],
)
def test_how_many_of_the_oldest_may_go(settings: dict[str, Any], floor: int | None, count: int) -> None:
    assert removable(SEGMENTS, StorageSettings(**settings), now_us=NOW_US, floor=floor, finished=0) == count


def test_the_last_segment_always_stays() -> None:
    assert (
        removable(
            SEGMENTS[:1],
            StorageSettings(retention_ms=1, retention_bytes=1),
            now_us=10**18,
            floor=None,
            finished=0,
        )
        == 0
    )


def test_a_segment_of_unknown_age_does_not_grow_old_and_keeps_those_behind_it() -> None:
    segments = [SEGMENTS[0], SEGMENTS[1]._replace(newest_us=None), *SEGMENTS[2:]]
    assert removable(segments, StorageSettings(retention_ms=1), now_us=10**18, floor=None, finished=0) == 1
    assert removable(segments, StorageSettings(segments_max=2), now_us=10**18, floor=None, finished=0) == 3


# What a log does


def test_the_oldest_segments_go_and_the_rest_is_as_before(logs: Logs) -> None:
    log = filled(logs, segments_max=3)
    before = contents(log.directory)
    assert log.retain() == RetentionResult(segments=7, messages=7, bytes=7 * FRAME_BYTES)
    assert (log.start, log.end) == (7, 10)
    assert values(log) == [b"7", b"8", b"9"]
    after = contents(log.directory)
    assert sorted(after) == [f"{n:020}.{end}" for n in (7, 8, 9) for end in ("idx", "log")]
    assert all(before[name] == data for name, data in after.items() if name.endswith(".log"))
    with pytest.raises(OffsetOutOfRange) as refused:
        list(log.records(6))
    assert (refused.value.start, refused.value.end) == (7, 10)
    assert log.retain() == RetentionResult()


@pytest.mark.parametrize(
    "settings",
    [
        {"segments_max": 4},
        {"retention_messages": 4},
        {"retention_bytes": 4 * FRAME_BYTES},
        {"retention_ms": 4000},
    ],
)
def test_by_each_rule(logs: Logs, settings: dict[str, Any]) -> None:
    log = filled(logs, **settings)
    log.retain()
    assert values(log) == [b"6", b"7", b"8", b"9"]


def test_what_somebody_still_needs_stays(logs: Logs) -> None:
    log = filled(logs, segments_max=1)
    log.retain(floor=0)
    assert log.start == 0
    log.retain(floor=4)
    assert log.start == 4
    log.retain(floor=2)
    assert log.start == 4
    log.retain(floor=10)
    assert log.start == 9


def test_as_many_segments_as_wanted_stay(logs: Logs) -> None:
    log = filled(logs, retention_ms=1, segments_min=4)
    log.retain()
    # The active segment has expired too, so an empty one took its place.
    assert (log.start, log.end, len(log.segments)) == (7, 10, 4)


def test_the_active_segment_goes_too_once_it_has_expired(logs: Logs) -> None:
    log = logs.open(retention_ms=1000)
    log.append(b"a")
    logs.clock.advance(1)
    log.append(b"b")
    logs.clock.advance(1)
    assert log.retain() == RetentionResult()
    logs.clock.advance(0.001)
    assert log.retain().messages == 2
    assert (log.start, log.end, values(log)) == (2, 2, [])
    assert log.retain() == RetentionResult()
    assert len(log.segments) == 1
    assert log.append(b"c") == 2
    assert values(log) == [b"c"]


def test_an_expired_active_segment_that_is_needed_stays(logs: Logs) -> None:
    log = logs.open(retention_ms=1000)
    log.append(b"a")
    logs.clock.advance(2)
    log.retain(floor=0)
    assert values(log) == [b"a"]
    log.retain(floor=1)
    assert values(log) == []


def test_buffered_messages_count(logs: Logs) -> None:
    log = logs.open(durability="buffered", retention_ms=1000)
    log.append(b"a")
    logs.clock.advance(5)
    # It comes into the log only now.
    assert log.retain() == RetentionResult()
    logs.clock.advance(5)
    assert log.retain().messages == 1


@pytest.mark.parametrize("settings", [{"segments_max": 3}, {"retention_ms": 1}])
def test_where_a_log_begins_survives_reopening(logs: Logs, settings: dict[str, Any]) -> None:
    log = filled(logs, **settings)
    log.retain()
    start = log.start
    assert start >= 7
    log.close()
    assert (logs.follow().start, logs.follow().end) == (start, 10)
    log = logs.open(segment_messages=1, **settings)
    assert (log.start, log.end) == (start, 10)
    assert log.append(b"more") == 10
    log.close()
    assert logs.open().end == 11


def test_removal_survives_power_loss_and_goes_from_the_front(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = filled(faulty_logs, segments_max=2)
    before = faulty_disk.steps
    log.retain()
    removed = [
        (step.operation, step.path.name)
        for step in faulty_disk.history[before:]
        if step.operation in ("remove", "sync_directory")
    ]
    names = [f"{n:020}" for n in range(8)]
    assert removed == [
        each
        for name in names
        for each in [("remove", f"{name}.log"), ("remove", f"{name}.idx"), ("sync_directory", "log")]
    ]
    after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing")).open()
    assert (after.start, after.end) == (8, 10)


def test_a_removal_that_cannot_be_made_durable_fences_the_log(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = filled(faulty_logs, segments_max=2)
    log.sync()
    faulty_disk.fail_sync("/data/log")
    with pytest.raises(FsyncFailed):
        log.retain()
    with pytest.raises(FsyncFailed):
        log.append(b"x")
    log.close()
    log = faulty_logs.open(segments_max=2)
    log.retain()
    assert (log.start, log.end) == (8, 10)


@pytest.mark.damages
def test_a_damaged_segment_does_not_grow_old(logs: Logs) -> None:
    log = filled(logs, 4, retention_ms=1)
    log.close()
    flip(logs.path / "log" / f"{1:020}.log", 85)
    log = logs.open(segment_messages=1, retention_ms=1)
    logs.clock.advance(10)
    log.retain()
    assert log.start == 1


def test_a_missing_index_does_not_keep_a_segment(logs: Logs) -> None:
    filled(logs).close()
    for n in range(9):
        (logs.path / "log" / f"{n:020}.idx").unlink()
    log = logs.open(segment_messages=1, segments_max=1, retention_ms=1)
    log.retain()
    assert log.start == 10
