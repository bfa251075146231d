"""Ranges as tasks: everything once, in order, in pieces of a good size."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quivermq
from quivermq.errors import Conflict, TopicNotFound
from quivermq.model.lanes import Lane
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.rows import Range, rows_of
from quivermq.spark.source.plan import TASK_BYTES, tasks_by_rows, tasks_by_size

MIB = 1024 * 1024


def part(number: int, start: int, end: int, size_bytes: int = 0) -> Range:
    return Range(Lane("t", number, "normal"), start, end, size_bytes, 7)


def test_a_large_lane_is_cut() -> None:
    tasks = tasks_by_size([part(0, 100, 1100, 4 * TASK_BYTES - 1)])
    assert [(r.start, r.end) for [r] in tasks] == [(100, 350), (350, 600), (600, 850), (850, 1100)]
    assert {r.created_us for [r] in tasks} == {7}
    assert len(tasks_by_size([part(0, 0, 2, 100 * TASK_BYTES)])) == 2


def test_small_lanes_share_a_task() -> None:
    small = [part(n, 0, 10, 1000) for n in range(50)]
    assert tasks_by_size(small) == [small]
    large = part(50, 0, 10, 2 * MIB)
    assert tasks_by_size([*small, large]) == [[large], small]


def test_as_many_tasks_as_are_asked_for() -> None:
    tasks = tasks_by_size([part(0, 0, 100, 10), part(1, 0, 100, 30)], 8)
    assert len(tasks) >= 8
    assert sum(r.end - r.start for task in tasks for r in task) == 200


def test_nothing_is_no_task() -> None:
    assert tasks_by_size([part(0, 5, 5, 100)]) == []
    assert tasks_by_rows([part(0, 6, 5)]) == []


ranges = st.lists(
    st.builds(
        lambda start, rows, size: (start, start + rows, size),
        st.integers(0, 2**40),
        st.integers(0, 3_000_000),
        st.integers(0, 2**32),
    ),
    max_size=8,
)


@given(ranges, st.none() | st.integers(1, 50))
def test_every_offset_is_in_exactly_one_task(
    given: list[tuple[int, int, int]], tasks_min: int | None
) -> None:
    parts = [part(number, *each) for number, each in enumerate(given)]
    for tasks in (tasks_by_size(parts, tasks_min), tasks_by_rows(parts, tasks_min)):
        found: dict[Lane, list[tuple[int, int]]] = {}
        for task in tasks:
            for each in task:
                found.setdefault(each.lane, []).append((each.start, each.end))
        for each in parts:
            pieces = sorted(found.get(each.lane, []))
            assert all(start < end for start, end in pieces)
            edges = [each.start, *(end for _, end in pieces)]
            assert [start for start, _ in pieces] == edges[:-1]
            assert edges[-1] == max(each.start, each.end)


def test_a_topic_that_is_gone_or_another_is_skipped_if_that_is_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.queue("t").put(b"x")
        place = DirectoryReader(str(tmp_path))
        planned = part(0, 0, 1)._replace(created_us=place.created_us("t"))
        mq.delete_topic("t")
        with pytest.raises(TopicNotFound):
            list(rows_of(place, planned, ["value"], fail_on_data_loss=True))
        with caplog.at_level(logging.WARNING):
            assert list(rows_of(place, planned, ["value"], fail_on_data_loss=False)) == []
        mq.queue("t").put(b"y")
        with pytest.raises(Conflict):
            list(rows_of(place, planned, ["value"], fail_on_data_loss=True))
        with caplog.at_level(logging.WARNING):
            assert list(rows_of(place, planned, ["value"], fail_on_data_loss=False)) == []
    assert len(caplog.records) == 2
    assert all("offsets [0, 1) of t" in record.message for record in caplog.records)
