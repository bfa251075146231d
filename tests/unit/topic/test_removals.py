"""What was taken out of a partition, and what is on its way out."""

from collections.abc import Iterator

import pytest
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import DATA, MODELS, Model, Parts

from quivermq.topic import state_log
from quivermq.topic.removals import Move, Removals

NAME = "topics/orders/p0/removed"
MOVE = Move(
    transfer=77, lane=1, offsets=(2, 3, 7), target="orders", target_partition=4, target_lane=2, target_end=9
)


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.close()


def opened(parts: Parts) -> Removals:
    return Removals(parts.directory, NAME)


def gone(removals: Removals, lane: int = 1) -> list[int]:
    return [offset for offset in range(20) if offset in removals.lanes[lane]]


def test_nothing_is_written_before_the_first_removal(parts: Parts) -> None:
    removals = opened(parts)
    removals.raise_floor(1, 0)
    removals.cut([0, 0, 0])
    assert not parts.disk.is_directory(DATA / NAME)
    removals.remove(1, [3])
    assert parts.disk.is_directory(DATA / NAME)


def test_removals_count_in_one_lane(parts: Parts) -> None:
    removals = opened(parts)
    removals.remove(1, [3, 5])
    removals.raise_floor(2, 4)
    assert [gone(removals, lane) for lane in range(3)] == [[], [3, 5], [0, 1, 2, 3]]


def test_every_change_is_durable_on_return(parts: Parts) -> None:
    removals = opened(parts)
    removals.remove(1, [3, 5])
    assert gone(opened(parts.without_power())) == [3, 5]
    removals.raise_floor(1, 4)
    assert gone(opened(parts.without_power())) == [0, 1, 2, 3, 5]
    removals.begin(MOVE)
    assert opened(parts.without_power()).unfinished == {77: MOVE}
    removals.remove(1, MOVE.offsets)
    assert opened(parts.without_power()).unfinished == {}


def test_a_floor_that_is_there_already_costs_nothing(parts: Parts) -> None:
    removals = opened(parts)
    removals.raise_floor(1, 4)
    steps = parts.disk.steps
    removals.raise_floor(1, 4)
    removals.raise_floor(1, 3)
    assert parts.disk.steps == steps


def test_a_move_ends_when_all_of_it_is_removed(parts: Parts) -> None:
    removals = opened(parts)
    removals.begin(MOVE)
    removals.remove(1, [2, 3])
    removals.remove(0, [2, 3, 7])
    assert removals.unfinished == {77: MOVE}
    removals.remove(1, [2, 3, 7])
    assert removals.unfinished == {}
    assert gone(removals) == [2, 3, 7]


def test_a_move_that_is_given_up_removes_nothing(parts: Parts) -> None:
    removals = opened(parts)
    removals.begin(MOVE)
    removals.give_up(MOVE)
    removals.give_up(MOVE)
    assert removals.unfinished == {}
    assert gone(removals) == []


@pytest.mark.parametrize(
    ("end", "left"), [(20, [0, 1, 2, 5, 8]), (9, [0, 1, 2, 5, 8]), (8, [0, 1, 2, 5]), (2, [0, 1]), (0, [])]
)
def test_a_cut_forgets_what_lies_behind(parts: Parts, end: int, left: list[int]) -> None:
    removals = opened(parts)
    removals.remove(1, [5, 8])
    removals.raise_floor(1, 3)
    steps = parts.disk.steps
    removals.cut([0, end, 0])
    assert gone(removals) == left
    assert gone(opened(parts.without_power())) == left
    assert (parts.disk.steps == steps) == (left == [0, 1, 2, 5, 8]), "only what is needed is written"


def test_a_snapshot_holds_everything(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)
    removals = opened(parts)
    removals.begin(MOVE)
    removals.raise_floor(0, 2)
    # More runs than one change of the snapshot holds.
    removals.remove(2, range(1, 6001, 2))
    found = opened(parts.without_power())
    assert found.unfinished == {77: MOVE}
    assert gone(found, 0) == [0, 1]
    assert [o for o in range(7000) if o in found.lanes[2]] == list(range(1, 6001, 2))


@pytest.mark.parametrize("model", MODELS)
def test_a_crash_at_every_step(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 300)

    def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
        removals = opened(Parts(disk))
        for offset in range(0, 8, 2):
            removals.remove(1, [offset])
            acknowledged.append(offset)

    for disk, acknowledged in every_crash(run, model=model):
        parts = Parts(disk)
        found = gone(opened(parts))
        assert found in (acknowledged, [*acknowledged, len(acknowledged) * 2]), disk.description
        parts.close()
