"""A dead letter that goes back is in exactly one of the two topics, wherever the process dies."""

from collections.abc import Callable
from functools import cache

import pytest
from support.crash import every, seeds
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import ALL_MODELS, LONG_S, MODELS, TOPIC, Judged, Life, Model, drain, life_to_judge

import quivermq
from quivermq.model.lanes import PRIORITIES, priority_of
from quivermq.topic import state_log

pytestmark = pytest.mark.fault("interrupted", "engine")

GRAVES = "orders.dlq"
VALUES = [b"high", b"low", b"normal 1", b"normal 2"]

both_models = pytest.mark.parametrize("model", MODELS)
all_models = pytest.mark.parametrize("model", ALL_MODELS)


@cache
def prepared(durability: str = "fsync") -> FaultyDisk:
    """Four dead letters from three lanes, all of it durable, and nothing left to be delivered."""
    life = Life()
    queue = life.create(durability=durability, partitions=2)
    for value in VALUES:
        priority = value.split()[0].decode()
        queue.put(
            value,
            key=b"k",
            headers={"h": value},
            priority=priority_of(priority),
            partition=int(priority == "low"),
        )
    queue.reject(queue.get_many(4))
    assert len(queue.dead_letters()) == 4
    life.close()
    return life.disk


def dead(life: Life) -> list[bytes]:
    return sorted(letter.value for letter in life.queue().dead_letters())


def back(life: Life) -> list[bytes]:
    """What has come back to the topic, by looking at its log."""
    queue = life.queue()
    lanes = [(partition, priority) for partition in (0, 1) for priority in PRIORITIES]
    first = {b"high": 1, b"low": 1, b"normal 1": 2, b"normal 2": 2}
    records = [r for partition, priority in lanes for r in queue.read(partition, priority=priority)]
    for record in records:
        assert (record.key, record.headers) == (b"k", {"h": record.value})
    return sorted(record.value for record in records if record.offset >= first[record.value])


def judge(disk: FaultyDisk, moved: int) -> None:
    with life_to_judge(disk) as life:
        assert sorted(dead(life) + back(life)) == VALUES
        assert len(back(life)) >= moved
        assert life.queue().stats().dead_letters == len(dead(life))
        # Who reads the dead letters does not see those that have gone.
        assert sorted(drain(life, GRAVES)) == dead(life)
        found = back(life)
        assert sorted(drain(life)) == found
        assert life.queue().redrive() == 4 - len(found)
        assert (dead(life), back(life)) == ([], VALUES)
        assert sorted(found + drain(life)) == VALUES
        again = life.killed()
        assert (dead(again), back(again), drain(again)) == ([], VALUES, [])
        again.close()


def everything(life: Life, acknowledged: list[int]) -> None:
    acknowledged.append(life.queue().redrive())


def one_by_one(life: Life, acknowledged: list[int]) -> None:
    while moved := life.queue().redrive(limit=1):
        acknowledged.append(moved)


def some(life: Life, acknowledged: list[int]) -> None:
    acknowledged.append(life.queue().redrive(lambda letter: letter.value.startswith(b"normal")))


@all_models
@pytest.mark.parametrize(
    ("act", "durability"),
    [(everything, "fsync"), (everything, "os"), (one_by_one, "fsync"), (some, "fsync")],
)
def test_a_crash_at_every_step(
    act: Callable[[Life, list[int]], None], durability: str, model: Model
) -> None:
    def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
        act(Life(disk), acknowledged)

    judged = Judged()
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1), start=prepared(durability)):
        moved = sum(acknowledged)
        if judged.is_new(disk, moved):
            judge(disk, moved)
    assert len(judged) > 5


@both_models
def test_a_crash_at_every_step_of_the_recovery_after_a_crash(model: Model) -> None:
    def run(disk: FaultyDisk, _: list[None]) -> None:
        Life(disk).queue().redrive()

    def recover(disk: FaultyDisk, _: list[None]) -> None:
        Life(disk)

    first, judged = Judged(), Judged()
    for crashed, _ in every_crash(run, model=model, seeds=seeds(1), start=prepared()):
        if first.is_new(crashed) and len(first) % every(10) == 0:
            for disk, _ in every_crash(recover, model=model, seeds=[len(first)], start=crashed):
                disk.description += f"; in a recovery {crashed.description}"
                if judged.is_new(disk):
                    judge(disk, 0)
    assert len(judged) > 5


@all_models
def test_a_crash_beside_snapshots(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    start = prepared()
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)

    def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
        one_by_one(Life(disk), acknowledged)

    judged = Judged()
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1), start=start):
        if judged.is_new(disk, sum(acknowledged)) and len(judged) % every(5) == 0:
            judge(disk, sum(acknowledged))


@both_models
def test_an_edited_dead_letter_is_in_one_place_in_one_of_its_forms(model: Model) -> None:
    def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
        queue = Life(disk).queue()
        [name] = [letter.id for letter in queue.dead_letters() if letter.value == b"low"]
        edit = quivermq.Message(b"mended", key=b"k", headers={"h": b"mended"})
        acknowledged.append(queue.redrive(edits={name: edit}))

    judged = Judged()
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1), start=prepared()):
        if judged.is_new(disk, sum(acknowledged)):
            with life_to_judge(disk) as life:
                there = b"low" in dead(life)
                back = [message.value for message in life.queue().read(1, priority="low")][1:]
                assert back == ([] if there else [b"mended"])
                assert not (there and acknowledged)
    assert len(judged) > 3


@both_models
def test_what_was_discarded_stays_away(model: Model) -> None:
    def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
        acknowledged.append(Life(disk).queue().discard(lambda letter: letter.value == b"low"))

    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1), start=prepared()):
        with life_to_judge(disk) as life:
            left = dead(life)
            assert left == ([value for value in VALUES if value != b"low"] if acknowledged else left)
            assert len(left) >= 3
            assert back(life) == []


def test_dead_letters_of_messages_that_power_took_can_go_back() -> None:
    life = Life()
    queue = life.create(durability="os", attempts_max=1)
    queue.put(b"lost")
    life.get().reject()
    life = life.without_power()
    assert life.queue().read() == []
    assert life.queue().redrive() == 1
    life = life.without_power()
    assert [letter.value for letter in life.queue().dead_letters()] == []
    assert drain(life) == [b"lost"]
    life.close()


def test_a_move_that_came_to_nothing_does_not_keep_a_queue_from_opening() -> None:
    disk = prepared().after_kill()

    def interrupt(operation: str, path: object) -> None:
        if "orders/p1/low" in str(path):
            raise KeyboardInterrupt

    life = Life(disk)
    disk.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        life.queue().redrive(lambda letter: letter.value == b"low")
    disk.before_step = None
    life = life.killed()
    assert len(life.queue().dead_letters()) == 4
    life.engine.delete_topic(TOPIC)
    life.create(partitions=1)
    life = life.reopened()
    assert life.queue().redrive() == 4
    life.close()


def test_a_full_disk_leaves_each_in_one_of_the_topics() -> None:
    failures = 0
    for room_bytes in range(0, 1500, 50):
        disk = prepared().after_kill()
        life = Life(disk)
        # The files that come to be with the first redrive are there.
        assert life.queue().redrive(limit=1) == 1
        disk.fill_after(room_bytes)
        try:
            life.queue().redrive()
        except quivermq.DiskFull:
            failures += 1
        disk.fill_after(None)
        assert sorted(dead(life) + back(life)) == VALUES
        life.queue().redrive()
        assert (dead(life), back(life)) == ([], VALUES)
        life.wait(LONG_S)
        assert sorted(drain(life)) == VALUES
        life.close()
    assert 0 < failures < 30
