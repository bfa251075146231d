"""How much is due when: exact where ranks are in memory, spread over its bucket where they are not."""

from pathlib import Path

import pytest
from unit.topic.test_delay import DAY, HOUR, NOW, SECOND, Place

from quivermq.model.lanes import NORMAL
from quivermq.topic.delay import Delayed, upcoming
from quivermq.topic.delay.message import rank_of
from quivermq.topic.delay.upcoming import Span, count_by_time
from quivermq.topic.offsets import OffsetSet

EDGES = [0, 10, 20, 30]


def delayed(due: int) -> Delayed:
    return Delayed(due, 0, NORMAL, b"x", None, None, NOW, None, None)


def test_ranks_in_memory_are_counted_and_those_that_were_cancelled_are_not() -> None:
    cancelled = OffsetSet()
    cancelled.add([1])
    span = Span(7, 0, 100, 4, cancelled)
    ranks = [rank_of(due, 7, offset) for offset, due in enumerate((0, 5, 10, 29, 30))]
    assert count_by_time(ranks, 100, [span], EDGES) == [1, 1, 1, 1]
    # A bucket that is gone has released everything.
    assert count_by_time([rank_of(5, 8, 0)], 100, [span], EDGES) == [0, 0, 0, 4]


def test_what_is_on_disk_alone_is_spread_over_its_bucket() -> None:
    span = Span(7, 0, 40, 8, OffsetSet())
    assert count_by_time([], 0, [span], EDGES) == [2, 2, 2, 2]
    assert count_by_time([], 20, [span], EDGES) == [0, 0, 4, 4]
    assert count_by_time([rank_of(3, 7, 0)], 20, [span], EDGES) == [1, 0, 3, 4]
    assert sum(count_by_time([], 0, [span._replace(pending=7)], EDGES)) == 7
    assert count_by_time([], 99, [span._replace(start_us=20)], EDGES) == [0, 0, 0, 8]


def test_after_a_restart_nothing_is_read_for_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    dues = [NOW + HOUR + SECOND, NOW + HOUR + 2 * SECOND, NOW + 3 * DAY]
    place.store.put([delayed(due) for due in dues])
    exact = place.store.timeline(NOW, NOW + 4 * DAY, 96)
    assert [hour for hour, count in enumerate(exact.counts) if count] == [1, 72]
    place.reopen()
    again = place.store.timeline(NOW, NOW + 4 * DAY, 4)
    assert sum(again.counts) + again.later == 3
    assert again.counts[0] == 2
    assert place.store.timeline(NOW, None, 10).later == 0
    place.close()


def test_ranks_that_were_forgotten_again_are_counted_by_their_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upcoming, "RANKS_MAX", 2)
    place = Place(tmp_path)
    place.store.put([delayed(NOW + number * HOUR + SECOND) for number in range(1, 20)])
    found = place.store.timeline(NOW, NOW + 40 * HOUR, 40)
    assert (sum(found.counts), found.later) == (19, 0)
    assert found.counts[1:3] == [1, 1]
    place.close()
