"""What is put again after a crash, because nobody knows whether it got through, is there once."""

from collections.abc import Callable
from typing import Any

import pytest
from support.crash import every, seeds
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import ALL_MODELS, LONG_S, MODELS, START_US, Judged, Life, Model, drain, life_to_judge

import quivermq
from quivermq.engine import engine_of
from quivermq.frame import Producer, encode
from quivermq.topic import state_log

pytestmark = pytest.mark.fault("power", "engine")

both_models = pytest.mark.parametrize("model", MODELS)
all_models = pytest.mark.parametrize("model", ALL_MODELS)

Puts = dict[str, Callable[[quivermq.Queue], list[quivermq.Put]]]


def message(id_: str, **rest: object) -> quivermq.Message:
    return quivermq.Message(id_.encode(), dedup_id=id_, **rest)  # type: ignore[arg-type]


def frame(sequence: int, *values: str, epoch: int = 0) -> bytes:
    producer = Producer(7, epoch, sequence)
    return bytes(encode([value.encode() for value in values], timestamp=START_US, producer=producer))


# Each may be repeated at any time, in this order.
PUTS: Puts = {
    "plain first": lambda queue: list(queue.put_many([message("a")])),
    "batch": lambda queue: list(
        queue.put_many([message("b"), message("c", priority="high"), message("a")])
    ),
    "delayed": lambda queue: list(queue.put_many([message("d", delay=100)])),
    "frame": lambda queue: [queue.put_frame(frame(0, "f", "g"), partition=0)],
    "next frame": lambda queue: [queue.put_frame(frame(2, "h"), partition=0)],
    "last": lambda queue: list(queue.put_many([message("e", priority="low"), message("d")])),
}
EVERYTHING = sorted(b"abcdefgh"[n : n + 1] for n in range(8))


def work(durability: str) -> Callable[[FaultyDisk, list[tuple[str, list[quivermq.Put]]]], None]:
    def run(disk: FaultyDisk, acknowledged: list[tuple[str, list[quivermq.Put]]]) -> None:
        life = Life(disk)
        queue = life.create(durability=durability)
        queue.put(b"x")
        for name, put in PUTS.items():
            acknowledged.append((name, put(queue)))

    return run


def stored(life: Life) -> list[bytes]:
    queue = life.queue()
    lanes = [queue.read(priority=priority) for priority in ("high", "normal", "low")]
    found = [record.value for lane in lanes for record in lane if record.value != b"x"]
    return sorted(found + [waiting.value for waiting in queue.scheduled()])


def repeat(life: Life) -> dict[str, list[quivermq.Put]]:
    return {name: put(life.queue()) for name, put in PUTS.items()}


def judge(disk: FaultyDisk, told: list[tuple[str, list[quivermq.Put]]], *, are_kept: bool) -> None:
    with life_to_judge(disk) as life:
        puts = repeat(life)
        assert stored(life) == EVERYTHING
        for name, before in told if are_kept else []:
            assert all(put.duplicate for put in puts[name]), name
            assert [put._replace(duplicate=False) for put in puts[name]] == [
                put._replace(duplicate=False) for put in before
            ]
        # And for the next process, which finds other messages where some were lost.
        again = life.killed()
        assert all(put.duplicate for puts in repeat(again).values() for put in puts)
        assert stored(again) == EVERYTHING
        again.wait(LONG_S)
        assert sorted(value for value in drain(again) if value != b"x") == EVERYTHING
        again.close()


@pytest.mark.parametrize(
    ("durability", "model"),
    [
        ("fsync", "kill"),
        ("fsync", "power"),
        ("os", "kill"),
        ("os", "power"),
        ("fsync", "store"),
    ],
)
def test_a_crash_at_every_step(durability: str, model: Model) -> None:
    judged = Judged()
    are_kept = durability == "fsync" or model == "kill"
    count = 2 if (durability, model) == ("os", "power") else 1
    for disk, told in every_crash(work(durability), model=model, seeds=seeds(count)):
        if judged.is_new(disk, len(told)):
            judge(disk, told, are_kept=are_kept)
    assert len(judged) > (10 if model == "store" else 20)


@all_models
def test_a_crash_beside_snapshots(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)
    judged = Judged()
    for disk, told in every_crash(work("fsync"), model=model, seeds=seeds(1)):
        if judged.is_new(disk, len(told)) and len(judged) % every(2) == 0:
            judge(disk, told, are_kept=True)


@both_models
def test_a_crash_at_every_step_of_the_recovery_after_a_crash(model: Model) -> None:
    def recover(disk: FaultyDisk, _: list[None]) -> None:
        repeat(Life(disk))

    first, judged = Judged(), Judged()
    for crashed, told in every_crash(work("fsync"), model=model, seeds=seeds(1)):
        if not first.is_new(crashed, len(told)) or len(first) % every(25):
            continue
        for disk, _ in every_crash(recover, model=model, seeds=[len(first)], start=crashed):
            disk.description += f"; in a recovery {crashed.description}"
            if judged.is_new(disk) and len(judged) % every(2) == 0:
                judge(disk, told, are_kept=True)
    assert len(judged) > 10


def test_what_power_took_may_be_put_again() -> None:
    """The ids and sequences are remembered durably, and the messages are not there."""
    life = Life()
    queue = life.create(durability="os")
    queue.put(b"safe", dedup_id="safe")
    queue.put_frame(frame(0, "safe"), partition=0)
    life.wait(2)
    queue.put(b"lost", dedup_id="lost")
    queue.put_frame(frame(1, "lost"), partition=0)
    # Only the notes about it get as far as the disk.
    dedup = engine_of(life.engine).catalog.get("orders").topic.dedup
    assert dedup._log is not None
    dedup._log.sync()
    life = life.without_power()
    queue = life.queue()
    assert [record.value for record in queue.read()] == [b"safe", b"safe"]
    queue.put(b"other")
    assert not queue.put(b"lost", dedup_id="lost").duplicate
    assert not queue.put_frame(frame(1, "lost"), partition=0).duplicate
    life = life.killed()
    queue = life.queue()
    assert queue.put(b"lost", dedup_id="lost") == quivermq.Put("orders", 0, "normal", 3, duplicate=True)
    assert queue.put_frame(frame(1, "lost"), partition=0).offset == 4
    assert queue.put(b"safe", dedup_id="safe").offset == 0
    assert queue.put_frame(frame(0, "safe"), partition=0).offset == 1
    assert drain(life) == [b"safe", b"safe", b"other", b"lost", b"lost"]
    life.close()


def test_durable_ids_are_known_also_after_a_lane_was_lost_before_them() -> None:
    life = Life()
    queue = life.create(durability="os")
    queue.put_many([b"lost"] * 5)
    queue.put(b"lost", dedup_id="first")
    life = life.without_power()
    put = life.queue().put(b"new", dedup_id="new", durability="fsync")
    life = life.without_power()
    assert life.queue().put(b"new", dedup_id="new") == put._replace(duplicate=True)
    life.close()


@both_models
def test_an_id_that_comes_again_after_the_window_is_known_from_then_on(model: Model) -> None:
    start = Life()
    start.create(dedup_window_ms=10_000).put(b"old", dedup_id="x")
    start.close()

    def run(disk: FaultyDisk, acknowledged: list[int | None]) -> None:
        life = Life(disk, start_s=60)
        acknowledged.append(life.queue().put(b"new", dedup_id="x").offset)

    for disk, _ in every_crash(run, model=model, seeds=seeds(1), start=start.disk):
        with life_to_judge(disk, start_s=65) as life:
            life.queue().put(b"new", dedup_id="x")
            assert [record.value for record in life.queue().read()] == [b"old", b"new"]


def test_an_id_is_forgotten_after_the_window_also_after_a_crash() -> None:
    life = Life()
    queue = life.create(dedup_window_ms=300_000)
    queue.put(b"first", dedup_id="y")
    life.clock.advance(100)
    queue.put(b"other", dedup_id="x", priority="high")
    life = life.without_power()
    life.clock.advance(250)
    assert not life.queue().put(b"second", dedup_id="y").duplicate
    assert life.queue().put(b"other", dedup_id="x").duplicate
    life.close()


@both_models
def test_the_id_of_a_message_that_was_cancelled_is_free(model: Model) -> None:
    start = Life()
    id_ = start.create().put(b"x", dedup_id="x", delay=1000).scheduled_id
    assert id_ is not None
    start.close()

    def run(disk: FaultyDisk, acknowledged: list[bool]) -> None:
        acknowledged.append(Life(disk).queue().cancel(id_))

    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(2), start=start.disk):
        with life_to_judge(disk) as life:
            put = life.queue().put(b"x", dedup_id="x", delay=1000)
            assert len(life.queue().scheduled()) == 1
            assert not (acknowledged and put.duplicate)


@both_models
@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("first", [{}, {"priority": "low", "delay": 10_000}])
def test_the_id_of_a_delayed_message_is_known_wherever_that_is(
    model: Model, is_reopened: bool, first: dict[str, Any]
) -> None:
    """Also when an earlier message had the id, whose window is over, and which perhaps still waits."""

    def run(disk: FaultyDisk, acknowledged: list[quivermq.Put]) -> None:
        life = Life(disk)
        queue = life.create(dedup_window_ms=100_000)
        queue.put(b"old", dedup_id="x", **first)
        life.wait(200)
        if is_reopened:
            life = life.reopened()
        acknowledged.append(life.queue().put(b"new", dedup_id="x", delay=10))
        life.wait(20)

    judged = Judged()
    for disk, told in every_crash(run, model=model, seeds=seeds(3)):
        if not told or not judged.is_new(disk):
            continue
        with life_to_judge(disk, start_s=230) as life:
            assert life.queue().put(b"new", dedup_id="x").duplicate
            again = life.killed()
            assert again.queue().put(b"new", dedup_id="x").duplicate
            engine_of(again.engine).maintain()
            assert stored(again) == [b"new", b"old"]
            again.close()
    assert len(judged) > 5
