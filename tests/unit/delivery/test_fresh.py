"""Reading what a group has not had yet."""

from collections.abc import Iterator

import pytest
from support.queues import DATA, START_US, Parts

from quivermq.delivery import fresh as fresh_module
from quivermq.delivery.fresh import Fresh, fresh_messages, fresh_slices, messages_at
from quivermq.delivery.ordering import KeyOrder, LaneOffset
from quivermq.delivery.state import LaneState
from quivermq.errors import Corruption
from quivermq.log import Log, repair
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.partition import Partition


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.close()


@pytest.fixture
def partition(parts: Parts) -> Partition:
    return parts.partition(segment_messages=5)


@pytest.fixture
def log(partition: Partition) -> Log:
    """Two frames of five messages each."""
    log = partition.log(1)
    log.append_many([b"%d" % number for number in range(5)])
    log.append_many([b"%d" % number for number in range(5, 10)])
    return log


def read(
    state: LaneState,
    log: Log,
    count: int,
    *,
    now_us: int = START_US,
    removed: OffsetSet | None = None,
    order: KeyOrder | None = None,
) -> Fresh:
    """The next messages; the state goes on behind them, as a cursor would."""
    found = fresh_messages(
        state, log, count, now_us=now_us, removed=removed or OffsetSet(), order=order, lane=1
    )
    state.next, state.ahead_index = found.next, found.ahead_index
    return found


def offsets(found: Fresh) -> list[int]:
    return [record.offset for record in found.records]


@pytest.mark.parametrize("count", [1, 3, 5, 7, 10, 100])
def test_messages_come_in_order_and_once(log: Log, count: int) -> None:
    state = LaneState()
    found: list[int] = []
    while more := offsets(read(state, log, count)):
        assert len(more) <= count
        found += more
        assert state.next == found[-1] + 1
    assert found == list(range(10))


def test_a_lane_goes_on_in_the_middle_of_a_frame(log: Log) -> None:
    assert offsets(read(LaneState(7), log, 10)) == [7, 8, 9]


def test_what_comes_later_is_read_later(log: Log) -> None:
    state = LaneState()
    read(state, log, 100)
    assert offsets(read(state, log, 1)) == []
    log.append(b"10")
    assert offsets(read(state, log, 5)) == [10]


def test_large_messages_come_a_few_at_a_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    raw_bytes = next(log.frames(0)).header.raw_bytes
    monkeypatch.setattr(fresh_module, "GIVEN_BYTES", raw_bytes // 5 * 3)
    state = LaneState()
    found = []
    while more := offsets(read(state, log, 100)):
        assert len(more) <= 3
        found += more
    assert found == list(range(10))


def test_one_message_comes_however_large_it_is(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_module, "GIVEN_BYTES", 1)
    assert offsets(read(LaneState(), log, 100)) == [0]


def test_what_is_read_ahead_counts_as_large_as_it_is_in_memory(parts: Parts) -> None:
    log = parts.partition(codec="gzip").log(1)
    for _ in range(4):
        log.append_many([bytes(100_000)] * 2)
    state = LaneState()
    read(state, log, 1)
    assert len(state.ahead) == 2


def test_only_some_is_read_ahead(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_module, "_AHEAD_BYTES", 1)
    state = LaneState()
    read(state, log, 1)
    assert [record.offset for record in state.ahead] == [0, 1, 2, 3, 4]
    assert offsets(read(state, log, 9)) == list(range(1, 10))


def test_what_retention_took_is_passed_over(log: Log) -> None:
    log.retain(finished=5)
    found = read(LaneState(), log, 2)
    assert offsets(found) == [5, 6]
    assert found.next == 7


def test_what_was_removed_is_passed_over(log: Log) -> None:
    removed = OffsetSet(2)
    removed.add([4, 9])
    state = LaneState()
    found = read(state, log, 3, removed=removed)
    assert offsets(found) == [2, 3, 5]
    assert (found.expired, found.waiting_for_key) == ([], [])
    assert offsets(read(state, log, 9, removed=removed)) == [6, 7, 8]
    assert state.next == 10


def test_what_has_expired_is_told_and_passed_over(parts: Parts) -> None:
    log = parts.partition().log(1)
    for wait_us in (10, 20, None, 5):
        log.append(b"m", expires_at=None if wait_us is None else START_US + wait_us)
    found = read(LaneState(), log, 9, now_us=START_US + 10)
    assert offsets(found) == [1, 2]
    assert found.expired == [0, 3]
    assert found.next == 4


def test_of_each_key_only_the_first_comes(parts: Parts) -> None:
    log = parts.partition().log(1)
    for key in (b"a", b"b", b"a", None, b"b", None):
        log.append(b"m", key=key)
    found = read(LaneState(), log, 9, order=KeyOrder())
    assert offsets(found) == [0, 1, 3, 5]
    assert found.waiting_for_key == [2, 4]


def test_a_lane_stops_when_too_many_wait_for_their_turn(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_module, "KEYED_UNFINISHED_MAX", 3)
    log = parts.partition().log(1)
    log.append_many([b"m"] * 6, keys=[b"a", None, b"a", b"a", b"a", b"b"])
    state, order = LaneState(), KeyOrder()
    found = read(state, log, 9, order=order)
    assert (offsets(found), found.waiting_for_key, found.next) == ([0, 1], [2, 3], 4)
    assert offsets(read(state, log, 9, order=order)) == []
    for offset in (0, 2, 3):
        order.leave(LaneOffset(1, offset))
    found = read(state, log, 9, order=order)
    assert (offsets(found), found.next) == ([4, 5], 6)


def test_a_gap_that_a_repair_left_is_passed_over(parts: Parts) -> None:
    """Its frame has offsets, and no messages."""
    log = parts.partition().log(1)
    for number in range(3):
        log.append(b"%d" % number)
    path = log.directory / f"{0:020}.log"
    parts.directory.close()
    parts.disk.flip(path, len(parts.disk.files()[path]) // 3 + 90)
    repair(DATA, parts.storage, disk=parts.disk)
    opened = Parts(parts.disk)
    repaired = opened.partition()
    log = repaired.log(1)
    state = LaneState()
    assert [offsets(read(state, log, 1)) for _ in range(3)] == [[0], [2], []]
    assert state.next == 3
    assert [record.offset for record in messages_at(repaired, 1, {0, 1, 2})] == [0, 2]
    opened.close()


@pytest.mark.usefixtures("log")
def test_messages_are_found_by_their_offsets(partition: Partition) -> None:
    assert [record.value for record in messages_at(partition, 1, {8, 1, 3})] == [b"1", b"3", b"8"]
    assert list(messages_at(partition, 1, set())) == []
    assert list(messages_at(partition, 0, {1})) == []
    # Nobody has used that lane, and nobody does so by looking.
    assert partition.logs[0] is None


def test_messages_that_are_gone_are_left_out(partition: Partition, log: Log) -> None:
    log.retain(finished=5)
    assert [record.offset for record in messages_at(partition, 1, {1, 4, 6, 9, 10, 77})] == [6, 9]


# Parts of frames.


def parts_of(state: LaneState, log: Log, count: int) -> list[tuple[int, int, int]]:
    """The next parts: base of the frame, start, end. The state goes on behind them."""
    slices, position = fresh_slices(state, log, count)
    state.go_to(position)
    return [(part.frame.header.base_offset, part.start, part.end) for part in slices]


def test_parts_of_frames_come_in_order_and_once(log: Log) -> None:
    state = LaneState()
    assert parts_of(state, log, 3) == [(0, 0, 3)]
    assert parts_of(state, log, 4) == [(0, 3, 5), (5, 5, 7)]
    assert parts_of(state, log, 100) == [(5, 7, 10)]
    assert parts_of(state, log, 100) == []
    log.append(b"more")
    assert parts_of(state, log, 100) == [(10, 10, 11)]


def test_large_frames_come_a_few_at_a_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    state = LaneState()
    monkeypatch.setattr(fresh_module, "_SLICED_BYTES", 1)
    assert parts_of(state, log, 100) == [(0, 0, 5)]
    assert parts_of(state, log, 100) == [(5, 5, 10)]


def test_parts_and_messages_can_be_taken_in_turns(log: Log) -> None:
    state = LaneState()
    assert offsets(read(state, log, 2)) == [0, 1]
    assert parts_of(state, log, 2) == [(0, 2, 4)]
    assert offsets(read(state, log, 2)) == [4, 5]
    assert parts_of(state, log, 1) == [(5, 6, 7)]
    assert offsets(read(state, log, 9)) == [7, 8, 9]


def test_a_frame_whose_messages_may_expire_ends_the_parts(log: Log) -> None:
    log.append(b"short", expires_at=START_US + 1)
    log.append(b"behind")
    state = LaneState()
    assert parts_of(state, log, 100) == [(0, 0, 5), (5, 5, 10)]
    assert parts_of(state, log, 100) == []


def test_of_what_lies_before_the_log_there_are_no_parts(parts: Parts) -> None:
    """An archive may have it: who reads on where the log begins would miss that."""
    log = parts.partition(segment_messages=5).log(1)
    for _ in range(3):
        log.append_many([b"x"] * 5)
    log.retain(finished=5)
    assert parts_of(LaneState(), log, 7) == []
    assert parts_of(LaneState(5), log, 7) == [(5, 5, 10), (10, 10, 12)]


def test_damage_ends_the_parts_and_the_next_look_tells(parts: Parts) -> None:
    log = parts.partition(segment_messages=5).log(1)
    for _ in range(2):
        log.append_many([b"x"] * 5)
    log.sync()
    parts.disk.flip(log.directory / "00000000000000000005.log", 100)
    state = LaneState()
    assert parts_of(state, log, 100) == [(0, 0, 5)]
    assert parts_of(state, log, 100) == []
    with pytest.raises(Corruption):
        read(state, log, 100)
    # Mended, or the fixture would complain.
    parts.disk.flip(log.directory / "00000000000000000005.log", 100)
