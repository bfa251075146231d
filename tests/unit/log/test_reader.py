import gc
import itertools
from typing import Any

import pytest
from support.damage import flip
from support.logs import Logs, offsets, values

from quivermq.errors import Corruption, OffsetOutOfRange
from quivermq.frame import HEADER_BYTES
from quivermq.log import Log
from quivermq.log import reader as reader_module
from quivermq.log.reader import LogReader

BATCHES = [[b"a"], [b"b", b"c"], [b"d", b"e", b"f"], [b"g"], [b"h", b"i"]]
FLAT = [value for batch in BATCHES for value in batch]


def filled(logs: Logs, **settings: Any) -> Log:
    """Nine messages in five frames, by default in three segments."""
    log = logs.open(**{"segment_messages": 3} | settings)
    for number, batch in enumerate(BATCHES):
        log.append_many(batch, timestamp=number)
    return log


# By offset


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("start", range(10))
def test_reading_begins_with_the_frame_that_holds_the_offset(logs: Logs, start: int, mapped: bool) -> None:
    log = filled(logs)
    assert [s.base_offset for s in log.segments] == [0, 3, 6]
    expected = [(0, 1), (1, 3), (3, 6), (6, 7), (7, 9)]
    ranges = [pair for pair in expected if pair[1] > start]
    assert offsets(log.frames(start, mapped=mapped)) == ranges
    assert values(log, start) == FLAT[start:]
    for reader in (logs.follow(), log):
        assert offsets(reader.frames(start, mapped=mapped)) == ranges


@pytest.mark.parametrize("start", [-1, 10, 10**9])
def test_an_offset_outside_of_the_log_is_refused(logs: Logs, start: int) -> None:
    log = filled(logs)
    for read in (log.frames, log.read, log.records):
        with pytest.raises(OffsetOutOfRange) as refused:
            list(read(start))
        assert (refused.value.offset, refused.value.start, refused.value.end) == (start, 0, 9)


def test_without_a_start_reading_begins_at_the_start(logs: Logs) -> None:
    log = filled(logs, segments_max=2)
    log.retain()
    assert log.start == 3
    assert values(log) == FLAT[3:]
    assert offsets(log.frames()) == [(3, 6), (6, 7), (7, 9)]
    with pytest.raises(OffsetOutOfRange):
        list(log.records(2))


def test_reading_is_limited_by_bytes_but_makes_progress(logs: Logs) -> None:
    log = filled(logs)
    sizes = [frame.header.frame_bytes for frame in log.frames()]
    assert offsets(log.read(0)) == offsets(log.frames())
    assert offsets(log.read(0, bytes_max=1)) == [(0, 1)]
    assert offsets(log.read(2, bytes_max=1)) == [(1, 3)]
    assert offsets(log.read(0, bytes_max=sizes[0] + sizes[1] - 1)) == [(0, 1)]
    assert offsets(log.read(0, bytes_max=sizes[0] + sizes[1])) == [(0, 1), (1, 3)]
    assert log.read(9) == []


def test_records_are_limited_by_number(logs: Logs) -> None:
    log = filled(logs)
    assert [r.offset for r in log.records(2, limit=4)] == [2, 3, 4, 5]
    assert list(log.records(2, limit=0)) == []
    assert [r.offset for r in log.records(7, limit=99)] == [7, 8]


def test_the_size_is_that_of_all_frames(logs: Logs) -> None:
    log = filled(logs)
    total = sum(frame.header.frame_bytes for frame in log.frames())
    assert log.size_bytes == logs.follow().size_bytes == total


# While the log changes


def test_a_reader_goes_on_to_what_is_appended_while_it_reads(logs: Logs) -> None:
    log = logs.open(segment_messages=3)
    log.append(b"0")
    read = []
    for frame in log.frames(0):
        read += frame.values()
        if len(read) < 20:
            log.append_many([b"%d" % len(read), b"+"])
    assert read[:5] == [b"0", b"1", b"+", b"3", b"+"]
    assert len(read) == log.end == 21
    assert len(log.segments) == 6


def test_a_reader_that_reached_the_end_stops(logs: Logs) -> None:
    log = filled(logs)
    reading = log.records(8)
    assert next(reading).value == b"i"
    assert list(reading) == []
    log.append(b"j")
    assert list(reading) == []
    assert values(log, 9) == [b"j"]


def test_a_reader_keeps_the_segment_that_retention_removes(logs: Logs) -> None:
    log = filled(logs, segments_max=1)
    reading = log.frames(0)
    next(reading)
    log.retain()
    # The file is open, so its other frames are still there; the next segment is not.
    assert next(reading).values() == [b"b", b"c"]
    with pytest.raises(OffsetOutOfRange) as refused:
        next(reading)
    assert (refused.value.offset, refused.value.start) == (3, 6)


def test_a_segment_that_vanished_is_out_of_range(logs: Logs) -> None:
    log = filled(logs)
    log.close()
    follower = logs.follow()
    reading = follower.frames(0)
    next(reading)
    next(reading)
    removed = [path for path in (logs.path / "log").iterdir() if int(path.stem) < 6]
    for path in removed:
        path.unlink()
    with pytest.raises(OffsetOutOfRange):
        next(reading)
    assert follower.find_time(0) == 6


# By time


def timed(logs: Logs, *stamps: int, **settings: Any) -> Log:
    log = logs.open(**{"index_interval_bytes": 1, "segment_messages": 3} | settings)
    for stamp in stamps:
        log.append(b"%d" % stamp, timestamp=stamp)
    return log


@pytest.mark.parametrize(
    "stamps",
    [
        [10, 20, 30, 40, 50, 60, 70],
        [70, 60, 50, 40, 30, 20, 10],
        [30, 10, 20, 60, 5, 50, 40, 45, 70],
        [10, 10, 10, 10, 10, 10, 10],
        [10],
        [],
    ],
)
def test_the_first_message_that_is_not_older_is_found(logs: Logs, stamps: list[int]) -> None:
    log = timed(logs, *stamps)
    assert len(log.segments) == max(1, -(-len(stamps) // 3))
    for timestamp in range(80):
        expected = next((n for n, stamp in enumerate(stamps) if stamp >= timestamp), len(stamps))
        assert log.find_time(timestamp) == expected
        assert logs.follow().find_time(timestamp) == expected


def test_before_all_and_after_all(logs: Logs) -> None:
    log = timed(logs, *range(100, 110), segments_max=2)
    log.retain()
    assert log.find_time(-(2**63) + 1) == log.start == 6
    assert log.find_time(2**63 - 1) == log.end == 10


def test_time_is_looked_for_in_what_is_only_buffered_too(logs: Logs) -> None:
    log = timed(logs, 10, 20, durability="buffered")
    assert log.find_time(15) == 1


def test_a_removed_segment_is_passed_over_by_a_search_for_time(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = timed(logs, *range(10), segments_max=1)
    using = LogReader._using

    def remove_then_use(self: LogReader, segment: Any) -> Any:
        # Between the look at the list of segments and the look at the segment.
        monkeypatch.setattr(LogReader, "_using", using)
        log.retain()
        return using(self, segment)

    monkeypatch.setattr(LogReader, "_using", remove_then_use)
    assert log.find_time(1) == 9


# Damage


def damaged(logs: Logs, number: int, **settings: Any) -> Log:
    """A log whose frame of that number, from 0, is rotten."""
    filled(logs, **settings).close()
    follower = logs.follow()
    frame = list(follower.frames())[number]
    segment = follower._segment_of(frame.header.base_offset)
    position = next(p for p, f in segment.frames(frame.header.base_offset))
    flip(segment.path, position + HEADER_BYTES)
    return logs.open(**{"segment_messages": 3} | settings)


@pytest.mark.damages
@pytest.mark.parametrize("number", range(5))
def test_nothing_behind_damage_is_served_once_it_was_found(logs: Logs, number: int) -> None:
    log = damaged(logs, number)
    first, last = [(0, 1), (1, 3), (3, 6), (6, 7), (7, 9)][number]
    with pytest.raises(Corruption) as found:
        list(log.records())
    assert found.value.offsets == (first, last)
    told = []
    for start in range(first + 1, 10):
        with pytest.raises(Corruption) as refused:
            list(log.frames(start))
        told.append(refused.value)
        assert (refused.value.path, refused.value.offsets) == (found.value.path, (first, last))
    # Each caller has an error of its own: one traceback would grow without end.
    assert len(set(map(id, told))) == len(told)
    for start in range(first):
        reading = log.records(start)
        assert [next(reading).value for _ in range(first - start)] == FLAT[start:first]
        with pytest.raises(Corruption):
            next(reading)


@pytest.mark.damages
def test_damage_that_a_search_for_time_finds_counts_too(logs: Logs) -> None:
    log = damaged(logs, 1)
    with pytest.raises(Corruption):
        log.find_time(1)
    with pytest.raises(Corruption):
        list(log.frames(6))


@pytest.mark.damages
def test_the_first_of_several_damages_counts(logs: Logs) -> None:
    damaged(logs, 3).close()
    log = damaged_again(logs, 1)
    with pytest.raises(Corruption) as later:
        list(log.frames(4))
    with pytest.raises(Corruption) as earlier:
        list(log.frames(0))
    assert (later.value.offsets, earlier.value.offsets) == ((6, 7), (1, 3))
    with pytest.raises(Corruption) as refused:
        list(log.frames(4))
    assert refused.value.offsets == (1, 3)
    with pytest.raises(Corruption) as refused:
        list(log.frames(6))
    assert refused.value.offsets == (1, 3)


def damaged_again(logs: Logs, number: int) -> Log:
    position = [0, 96][number]
    flip(logs.path / "log" / f"{0:020}.log", position + HEADER_BYTES)
    return logs.open(segment_messages=3)


@pytest.mark.damages
def test_appends_go_on_beside_damage(logs: Logs) -> None:
    log = damaged(logs, 4)
    with pytest.raises(Corruption):
        list(log.records())
    assert [log.append(b"new", durability=word) for word in ("fsync", "os", "buffered")] == [9, 10, 11]
    assert log.append_many([b"x", b"y"]) == 12
    with pytest.raises(Corruption):
        list(log.records(9))


@pytest.mark.damages
def test_other_logs_go_on_beside_damage(logs: Logs) -> None:
    with pytest.raises(Corruption):
        list(damaged(logs, 0).records())
    other = logs.open("other")
    other.append(b"fine")
    assert values(other) == [b"fine"]


# Memory


def test_only_the_indexes_of_segments_read_last_are_kept(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_INDEXES_KEPT", 3)
    log = logs.open(segment_messages=1)
    for n in range(12):
        log.append(b"%d" % n)
    log.close()
    follower = logs.follow()
    for start in [*range(12), 5, 5, 5, 0, 7]:
        next(follower.frames(start))
        held = [s.base_offset for s in follower.segments if s._index is not None]
        assert start in held
        # One for each that is kept, the one in use, and that of the last segment.
        assert len(held) <= 5
    gc.collect()


def test_every_segment_can_be_read_in_any_order(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_INDEXES_KEPT", 1)
    log = filled(logs)
    for order in itertools.permutations((0, 3, 6)):
        assert [next(log.records(start)).value for start in order] == [FLAT[start] for start in order]
