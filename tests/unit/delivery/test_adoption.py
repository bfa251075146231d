"""Attempts that were made elsewhere, and positions that are taken over, in memory and in the journal."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.queues import SECOND, Parts

from quivermq.delivery import journal
from quivermq.delivery.adoption import RUNS_MAX
from quivermq.delivery.cursor import Cursor
from quivermq.delivery.journal import Replay
from quivermq.delivery.state import LaneState, Wait
from quivermq.delivery.taken import deliveries_of
from quivermq.errors import InvalidRequest
from quivermq.model.adoption import Progress, Tried
from quivermq.model.deliveries import Lease
from quivermq.model.lanes import NORMAL
from quivermq.topic.offsets import runs
from quivermq.topic.records import unpack

LEASE_US = 30 * SECOND


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.close()


class Place:
    """A cursor over six messages, which can be opened again."""

    def __init__(self, parts: Parts, *, is_new: bool = True, **settings: Any) -> None:
        self.parts, self.settings = parts, settings
        self.partition = parts.partition()
        if is_new:
            for number in range(6):
                self.partition.log(NORMAL).append(b"%d" % number)
        self.cursor: Cursor = parts.cursor(self.partition, **settings)

    def adopt(self, position: int | None, *tried: Tried, expected: Progress | None = None) -> bool:
        return self.cursor.adopt(NORMAL, Progress(position, tried), expected)

    def take(self, count: int = 100, *, pop: bool = False, whole: bool = False) -> list[tuple[int, int]]:
        taken = self.cursor.take(NORMAL, count, LEASE_US, pop=pop, whole=whole)
        return [(message.offset, message.attempt) for message in deliveries_of(taken)]

    def reopened(self) -> "Place":
        return Place(self.parts.killed(), is_new=False, **self.settings)


@pytest.mark.parametrize("how", [{}, {"whole": True}, {"pop": True}, {"pop": True, "whole": True}])
@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("is_reopened", [False, True])
def test_every_way_to_take_counts_on(
    parts: Parts, how: dict[str, bool], count: int, is_reopened: bool
) -> None:
    place = Place(parts, durability="os")
    assert place.adopt(None, Tried(1, 2, 4), Tried(2, 4, 1))
    if is_reopened:
        place = place.reopened()
    taken = []
    while found := place.take(count, **how):
        taken += found
    assert taken == [(0, 1), (1, 5), (2, 2), (3, 2), (4, 1), (5, 1)]
    assert place.cursor.lanes[NORMAL].imported_attempts == {}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_group_in_the_middle_is_the_same_after_a_crash(parts: Parts, is_compacted: bool) -> None:
    place = Place(parts)
    assert place.adopt(3, Tried(1, 2, 2), Tried(4, 5, 7))
    if is_compacted:
        place.cursor.compact()
    place = place.reopened()
    assert place.cursor.counts()[NORMAL] == (3, 0, 1, 0)
    assert place.take() == [(1, 3), (3, 1), (4, 8), (5, 1)]
    assert place.reopened().cursor.counts()[NORMAL] == (0, 4, 0, 0)


def test_a_group_is_there_already_when_it_is_asked_twice(parts: Parts) -> None:
    place = Place(parts)
    progress = (3, Tried(1, 2, 2), Tried(4, 5, 7))
    assert place.adopt(*progress)
    place = place.reopened()
    assert place.adopt(*progress)
    assert not place.adopt(4)
    assert place.take() == [(1, 3), (3, 1), (4, 8), (5, 1)]


def test_what_expires_tells_how_often_it_was_tried(parts: Parts) -> None:
    place = Place(parts, dead_letter_expired=True)
    place.partition.log(NORMAL).append(b"old", expires_at=parts.clock.now_us() - 1)
    place.adopt(None, Tried(6, 7, 4))
    place.take()
    [letter] = parts.grave().log(1).records()
    assert (letter.value, letter.headers["quiver-dlq-attempts"]) == (b"old", b"4")


def test_what_is_too_scattered_is_refused(parts: Parts) -> None:
    place = Place(parts)
    with pytest.raises(InvalidRequest, match="too scattered"):
        place.adopt(None, *[Tried(1, 2, 1)] * (RUNS_MAX + 1))


offsets = st.sets(st.integers(0, 20), max_size=6)


@given(st.integers(0, 20), offsets, offsets, st.lists(st.tuples(st.integers(1, 3), offsets), max_size=3))
def test_a_snapshot_tells_of_attempts_made_elsewhere(
    position: int, leased: set[int], waiting: set[int], tried: list[tuple[int, set[int]]]
) -> None:
    records = [journal.sought(1, position)]
    records += [journal.granted(1, position, Lease(1, 100, 7), runs(leased))] * bool(leased)
    records += [journal.waiting(1, Wait(2, 5), runs(waiting))] * bool(waiting)
    records += [journal.tried(1, attempts, runs(each)) for attempts, each in tried if each]
    before = _replayed(records)
    after = _replayed(journal.snapshot([LaneState(), before, LaneState()]))
    assert after.imported_attempts == before.imported_attempts == {o: n for n, each in tried for o in each}
    assert (after.next, after.waiting, set(after.leases)) == (
        before.next,
        before.waiting,
        set(before.leases),
    )
    before.forget_imported_attempts()
    assert set(before.imported_attempts) == {o for _, each in tried for o in each if o >= before.next}


def test_a_log_that_lost_its_end_loses_the_attempts_too() -> None:
    state = _replayed([journal.tried(1, 2, [3, 6])])
    assert (state.reaches_behind(6), state.reaches_behind(5)) == (False, True)
    state.cut(5)
    assert state.imported_attempts == {3: 2, 4: 2}


def _replayed(records: Any) -> LaneState:
    replay = Replay([LaneState() for _ in range(3)])
    for change in unpack(b"".join(records)):
        replay.apply(change)
    return replay.lanes[1]
