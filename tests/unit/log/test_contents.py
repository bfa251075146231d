"""What segments hold: told alike by the writer, by whoever looks on, and after the log was closed."""

from pathlib import Path

import pytest
from support.damage import flip
from support.logs import Logs

from quivermq.log import ReadableLog
from quivermq.log.verify import SegmentContents, contents, count_frames


def seen(log: ReadableLog) -> list[tuple[SegmentContents, int | None]]:
    return [(contents(segment), count_frames(segment)) for segment in log.segments]


def test_a_writer_and_whoever_looks_on_tell_the_same(logs: Logs) -> None:
    log = logs.open(segment_messages=4)
    for timestamps in ((5, 9), (7, 8), (3, 30), (20, 21), (40, 41)):
        log.append_many([b"x", b"y"], timestamp=list(timestamps))
    told = seen(log)
    assert [(c.base_offset, c.end_offset, c.first_timestamp, c.last_timestamp) for c, _ in told] == [
        (0, 4, 5, 9),
        (4, 8, 3, 30),
        (8, 10, 40, 41),
    ]
    assert [frames for _, frames in told] == [2, 2, 1]
    assert seen(logs.follow()) == told
    log.close()
    assert seen(logs.follow()) == told
    assert sum(c.size_bytes for c, _ in told) == log.size_bytes


def test_the_largest_timestamp_is_found_wherever_it_is(logs: Logs) -> None:
    with logs.open(index_interval_bytes=200) as log:
        for number in range(20):
            log.append_many([b"x"], timestamp=1000 if number == 2 else number)
        assert contents(log.segments[0]).last_timestamp == 1000
        log.append_many([b"x"], timestamp=2000)
        assert contents(log.segments[0]).last_timestamp == 2000


def test_an_empty_segment_has_no_times(logs: Logs) -> None:
    with logs.open() as log:
        assert seen(log) in ([], [(SegmentContents(0, 0, 0, None, None), 0)])


@pytest.mark.damages
def test_what_cannot_be_read_is_left_open(logs: Logs) -> None:
    with logs.open(segment_messages=2) as log:
        for _ in range(4):
            log.append_many([b"x"], timestamp=7)
    flip(Path(log.directory) / f"{0:020}.log", 20)
    (first, frames), (second, more) = seen(logs.follow())[:2]
    assert (first.first_timestamp, first.last_timestamp, frames) == (None, None, None)
    assert (second.first_timestamp, more) == (7, 2)
