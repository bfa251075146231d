"""A partition: its lanes, opened when they are used."""

import threading

import pytest
from support.queues import DATA, Parts
from support.threads import PATIENCE_S, start

from quivermq.errors import InvalidRequest
from quivermq.log import Log
from quivermq.model.lanes import PRIORITIES, lane_number
from quivermq.settings import StorageSettings


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_there_are_three_lanes_and_the_highest_comes_first() -> None:
    assert PRIORITIES == ("high", "normal", "low")
    assert [lane_number(lane) for lane in PRIORITIES] == [0, 1, 2]


@pytest.mark.parametrize("priority", ["urgent", "", "High", None, 1, b"high", ["high"], {}])
def test_what_is_no_priority_is_refused(priority: object) -> None:
    with pytest.raises(InvalidRequest, match="priority is one of high, normal, low"):
        lane_number(priority)


def test_a_lane_comes_to_be_when_it_is_used(parts: Parts) -> None:
    partition = parts.partition(2)
    assert partition.logs == [None, None, None]
    partition.log(0).append(b"a")
    assert [log is not None for log in partition.logs] == [True, False, False]
    assert parts.disk.names(DATA / "topics/orders/p2") == ["high"]
    parts.close()


def test_a_lane_is_opened_once(parts: Parts) -> None:
    partition = parts.partition()
    barrier = threading.Barrier(4)
    found: list[Log] = []

    def ask() -> None:
        barrier.wait()
        found.append(partition.log(1))

    for asking in [start(ask) for _ in range(4)]:
        asking.result(PATIENCE_S)
    assert len(found) == 4
    assert all(log is partition.logs[1] for log in found)


def test_lanes_that_are_there_are_opened_at_once(parts: Parts) -> None:
    partition = parts.partition()
    partition.log(2).append(b"a")
    partition.log(1).append(b"b")
    opened = parts.reopened().partition()
    assert [log.end if log else None for log in opened.logs] == [None, 1, 1]


def test_every_lane_goes_by_new_settings(parts: Parts) -> None:
    partition = parts.partition()
    partition.log(0)
    partition.configure(StorageSettings(durability="os", segment_messages=1))
    for lane in (0, 1):
        log = partition.log(lane)
        log.append(b"a")
        log.append(b"b")
        log.append(b"c")
        log.retain(finished=2)
        assert log.start == 2


def test_a_closed_partition_can_be_opened_again(parts: Parts) -> None:
    partition = parts.partition()
    log = partition.log(0)
    log.append(b"a")
    partition.close()
    assert log.is_closed
    again = parts.partition().log(0)
    assert again is not log
    assert again.end == 1


def test_what_was_removed_behind_the_end_that_a_power_loss_left_is_forgotten(parts: Parts) -> None:
    partition = parts.partition()
    log = partition.log(1)
    log.append(b"safe")
    log.sync()
    for _ in range(3):
        log.append(b"lost")
    partition.removals.remove(1, [0, 2])
    parts = parts.without_power()
    after = parts.partition()
    assert after.log(1).end == 1
    for _ in range(3):
        after.log(1).append(b"new")
    assert [offset for offset in range(4) if offset in after.removals.lanes[1]] == [0]
    # For good: the next process must not remember it either.
    again = parts.reopened().partition()
    assert [offset for offset in range(4) if offset in again.removals.lanes[1]] == [0]
