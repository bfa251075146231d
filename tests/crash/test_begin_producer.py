"""A producer that takes over from another one finds what that one has written, once, after any crash."""

from collections import Counter

import pytest
from support.crash import every, seeds
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import ALL_MODELS, START_US, Judged, Life, Model, life_to_judge

import quivermq
from quivermq.engine import engine_of
from quivermq.frame import Producer, encode
from quivermq.model.lanes import priority_of
from quivermq.topic import state_log

pytestmark = pytest.mark.fault("producer", "engine")

ID = 2**64 - 3
PLACES = ((0, "normal"), (1, "high"), (0, "normal"))
VALUES = [b"a", b"b", b"c"]


def frame(value: bytes, epoch: int, sequence: int) -> bytes:
    return bytes(encode([value], timestamp=START_US, producer=Producer(ID, epoch, sequence)))


def written(life: Life, state: quivermq.ProducerState) -> Counter[bytes]:
    """What lies from the places on that the producer was told."""
    queue = life.queue()
    found: Counter[bytes] = Counter()
    for place in state.batches:
        records = queue.read(place.partition, place.offset, priority=place.priority)
        found.update(record.value for record in records if record.value != b"x")
    return found


def attempt(life: Life) -> int:
    """Write everything that is not there yet, as a sink does, and return the epoch that did."""
    state = life.engine.begin_producer("orders", ID)
    there = written(life, state)
    sequences: Counter[tuple[int, str]] = Counter()
    for value, place in zip(VALUES, PLACES, strict=True):
        if there[value]:
            there[value] -= 1
            continue
        partition, priority = place
        sent = frame(value, state.epoch, sequences[place])
        life.queue().put_frame(sent, partition=partition, priority=priority_of(priority))
        sequences[place] += 1
    return state.epoch


def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
    life = Life(disk)
    life.create(partitions=2).put(b"x", partition=0)
    acknowledged.append(attempt(life))
    acknowledged.append(attempt(life))


def judge(disk: FaultyDisk, told: list[int]) -> None:
    with life_to_judge(disk) as life:
        if not life.engine.topics():
            life.create(partitions=2)
        epoch = attempt(life)
        assert epoch >= len(told)
        again = life.killed()
        assert attempt(again) == epoch + 1
        stored = [
            record.value
            for partition in (0, 1)
            for priority in ("high", "normal")
            for record in again.queue().read(partition, priority=priority)
        ]
        assert sorted(value for value in stored if value != b"x") == VALUES
        for old in range(epoch + 1):
            with pytest.raises(quivermq.Conflict):
                again.queue().put_frame(frame(b"late", old, 0), partition=1, priority="low")
        again.close()


@pytest.mark.parametrize("model", ALL_MODELS)
def test_a_crash_at_every_step(model: Model) -> None:
    judged = Judged()
    for disk, told in every_crash(run, model=model, seeds=seeds(2)):
        if judged.is_new(disk, len(told)):
            judge(disk, told)
    assert len(judged) > 10


@pytest.mark.parametrize("model", ALL_MODELS)
def test_a_crash_beside_snapshots(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)
    judged = Judged()
    for disk, told in every_crash(run, model=model, seeds=seeds(1)):
        if judged.is_new(disk, len(told)) and len(judged) % every(2) == 0:
            judge(disk, told)
    assert len(judged) > 10


def test_what_power_took_of_a_later_epoch_leaves_the_first_frame() -> None:
    life = Life()
    queue = life.create(durability="os")
    queue.put_frame(frame(b"a", 0, 0), partition=0)
    assert life.engine.begin_producer("orders", ID).batches == [quivermq.FirstFrame(0, "normal", 0)]
    queue.put_frame(frame(b"lost", 1, 0), partition=0)
    dedup = engine_of(life.engine).catalog.get("orders").topic.dedup
    assert dedup._log is not None
    dedup._log.sync()
    life = life.without_power()
    # To begin made durable what was there, whatever its own durability.
    assert [record.value for record in life.queue().read()] == [b"a"]
    assert not life.queue().put_frame(frame(b"lost", 1, 0), partition=0).duplicate
    assert life.engine.begin_producer("orders", ID) == (2, [quivermq.FirstFrame(0, "normal", 0)], 0)
    life.close()
