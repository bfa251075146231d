"""A message that is given up becomes a dead letter exactly once, wherever the process dies."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from support.crash import every, seeds
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import (
    ALL_MODELS,
    LONG_S,
    MODELS,
    SECOND,
    START_US,
    Judged,
    Life,
    Model,
    fail_until_dead,
    life_to_judge,
)

import quivermq
from quivermq.engine import engine_of
from quivermq.topic import state_log

pytestmark = pytest.mark.fault("power", "engine")

VALUES = [b"one", b"two", b"three"]
ENDS: dict[str, Callable[[Life, list[quivermq.Delivery]], None]] = {}

both_models = pytest.mark.parametrize("model", MODELS)
all_models = pytest.mark.parametrize("model", ALL_MODELS)
both_durabilities = pytest.mark.parametrize("durability", ["fsync", "os"])


def end(act: Callable[[Life, list[quivermq.Delivery]], None]) -> Callable[..., None]:
    """A way in which messages come to their end."""
    ENDS[act.__name__] = act
    return act


@end
def fail(life: Life, messages: list[quivermq.Delivery]) -> None:
    life.queue().nack(messages, reason="broken", error="Traceback")


@end
def fail_one_by_one(life: Life, messages: list[quivermq.Delivery]) -> None:
    for message in messages:
        message.nack()


@end
def reject(life: Life, messages: list[quivermq.Delivery]) -> None:
    life.queue().reject(messages)


@end
def run_out_of_time(life: Life, messages: list[quivermq.Delivery]) -> None:
    life.wait(31)


@end
def run_out_of_time_unseen(life: Life, messages: list[quivermq.Delivery]) -> None:
    life.clock.advance(31)
    assert life.queue().get() is None


@cache
def prepared(durability: str, **settings: Any) -> FaultyDisk:
    """Three messages that failed once and may fail once more, all of it durable."""
    life = Life()
    queue = life.create(durability=durability, attempts_max=2, **settings)
    for value in VALUES:
        queue.put(value, key=b"k", headers={"h": value})
    queue.nack(queue.get_many(3), delay=0)
    life.close()
    return life.disk


def judge(disk: FaultyDisk, *, is_certain: bool, is_thorough: bool = False) -> None:
    """Each message is a dead letter or can still be delivered, and in the end is a dead letter once."""
    with life_to_judge(disk, start_s=LONG_S) as life:
        queue = life.queue()
        dead = [letter.value for letter in queue.dead_letters()]
        assert not is_certain or sorted(dead) == sorted(VALUES)
        engine_of(life.engine).maintain()
        dead = [letter.value for letter in queue.dead_letters()]
        deliverable = queue.get_many(10)
        assert sorted(dead + [message.value for message in deliverable]) == sorted(VALUES)
        queue.nack(deliverable, delay=0)
        fail_until_dead(life)
        check_letters(queue)
        assert [record.value for record in queue.read()] == VALUES
        if is_thorough:
            again = life.reopened()
            engine_of(again.engine).maintain()
            assert again.queue().get() is None
            check_letters(again.queue())
            again.engine.close()


def check_letters(queue: quivermq.Queue) -> None:
    letters = sorted(queue.dead_letters(), key=lambda letter: letter.offset)
    assert [(letter.offset, letter.value) for letter in letters] == list(enumerate(VALUES))
    for letter in letters:
        assert (letter.key, letter.original_headers) == (b"k", {"h": letter.value})
        assert (letter.topic, letter.group, letter.priority) == ("orders", "billing", "normal")
        assert letter.attempts == 2
    assert queue.stats().dead_letters == 3


@all_models
@pytest.mark.parametrize(
    ("how", "durability"), [*((how, "fsync") for how in ENDS), ("fail", "os"), ("run_out_of_time", "os")]
)
def test_a_crash_at_every_step_of_giving_up(how: str, durability: str, model: Model) -> None:
    def run(disk: FaultyDisk, acknowledged: list[str]) -> None:
        life = Life(disk)
        messages = life.queue().get_many(3)
        assert [message.attempt for message in messages] == [2, 2, 2]
        ENDS[how](life, messages)
        acknowledged.append("dead")

    judged = Judged()
    count = 2 if model == "power" and how in ("fail", "reject") else 1
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(count), start=prepared(durability)):
        # What time alone does nobody is told, and so it does not wait for a store.
        is_certain = bool(acknowledged) and (how, model) != ("run_out_of_time", "store")
        if judged.is_new(disk, is_certain):
            judge(disk, is_certain=is_certain, is_thorough=len(judged) % every(4) == 0)
    assert len(judged) > 10


@both_models
@pytest.mark.parametrize("how", ["fail", "reject"])
def test_a_crash_at_every_step_of_the_recovery_after_a_crash(how: str, model: Model) -> None:
    def run(disk: FaultyDisk, _: list[None]) -> None:
        life = Life(disk)
        ENDS[how](life, life.queue().get_many(3))

    def recover(disk: FaultyDisk, _: list[None]) -> None:
        life = Life(disk, start_s=LONG_S)
        engine_of(life.engine).maintain()
        fail_until_dead(life)

    first, judged = Judged(), Judged()
    for crashed, _ in every_crash(run, model=model, seeds=seeds(1), start=prepared("fsync")):
        if first.is_new(crashed) and len(first) % every(15) == 0:
            for disk, _ in every_crash(recover, model=model, seeds=[len(first)], start=crashed):
                disk.description += f"; in a recovery {crashed.description}"
                if judged.is_new(disk):
                    judge(disk, is_certain=False)
    assert len(judged) > 10


@both_models
def test_every_group_has_its_own_dead_letter(model: Model) -> None:
    def run(disk: FaultyDisk, acknowledged: list[str]) -> None:
        life = Life(disk)
        for group in ("billing", "audit"):
            queue = life.queue(group=group)
            queue.reject(queue.get_many(3))
            acknowledged.append(group)

    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1), start=prepared("fsync")):
        with life_to_judge(disk, start_s=LONG_S) as life:
            letters = life.queue().dead_letters()
            assert {letter.group for letter in letters} >= set(acknowledged)
            for group in ("billing", "audit"):
                fail_until_dead(life, group=group)
            letters = life.queue().dead_letters()
            expected = sorted((group, value) for group in ("audit", "billing") for value in VALUES)
            assert sorted((letter.group, letter.value) for letter in letters) == expected


@both_models
def test_a_crash_while_the_messages_that_power_took_were_given_up(model: Model) -> None:
    """What is lost from the lane may live on as a dead letter, and what comes in its place is new."""

    def run(disk: FaultyDisk, acknowledged: list[str]) -> None:
        life = Life(disk)
        queue = life.create(durability="os", attempts_max=1)
        queue.put(b"old")
        life.get().reject()
        acknowledged.append("dead")

    lost = 0
    judged = Judged()
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1 if model == "kill" else 3)):
        if not judged.is_new(disk, bool(acknowledged)):
            continue
        with life_to_judge(disk, start_s=LONG_S) as life:
            queue = life.queue()
            dead = len(queue.dead_letters())
            assert dead == 1 or not acknowledged
            if "orders" not in life.engine.topics():
                continue
            put = queue.put(b"new")
            lost += bool(dead) and put.offset == 0
            fail_until_dead(life)
            assert [letter.value for letter in queue.dead_letters()].count(b"new") == 1
            assert [letter.value for letter in queue.dead_letters()].count(b"old") <= 1
    assert lost or model == "kill", "no power loss took the message of a dead letter"


@both_models
@both_durabilities
def test_expired_messages_become_dead_letters_once(durability: str, model: Model) -> None:
    """Also those that had been delivered before."""
    start = Life()
    queue = start.create(durability=durability, dead_letter_expired=True)
    for value in VALUES:
        queue.put(value, key=b"k", headers={"h": value}, ttl=5)
    start.get().nack(delay=1)
    start.close()

    def run(disk: FaultyDisk, acknowledged: list[str]) -> None:
        life = Life(disk, start_s=10)
        assert life.queue().get() is None
        acknowledged.append("dead")

    judged = Judged()
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(2), start=start.disk):
        if not judged.is_new(disk, bool(acknowledged)):
            continue
        with life_to_judge(disk, start_s=20) as life:
            if acknowledged:
                assert len(life.queue().dead_letters()) == 3
            assert life.queue().get_many(10) == []
            life.wait(LONG_S)
            assert life.queue().get_many(10) == []
            letters = sorted(life.queue().dead_letters(), key=lambda letter: letter.offset)
            assert [letter.value for letter in letters] == VALUES
            assert [letter.attempts for letter in letters] == [1, 0, 0]
            assert {letter.reason for letter in letters} == {"expired"}


@both_models
def test_expired_messages_become_dead_letters_beside_a_snapshot(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)
    start = Life()
    queue = start.create(dead_letter_expired=True)
    for value in VALUES:
        queue.put(value, ttl=5)
    start.close()

    def run(disk: FaultyDisk, _: list[None]) -> None:
        life = Life(disk, start_s=10)
        life.queue().get()

    for disk, _ in every_crash(run, model=model, seeds=seeds(1), start=start.disk):
        with life_to_judge(disk, start_s=20) as life:
            life.queue().get_many(10)
            life.wait(LONG_S)
            life.queue().get_many(10)
            assert sorted(letter.value for letter in life.queue().dead_letters()) == sorted(VALUES)


@both_models
def test_a_crash_beside_snapshots(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    start = prepared("fsync")
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)

    def run(disk: FaultyDisk, acknowledged: list[str]) -> None:
        life = Life(disk)
        for _ in VALUES:
            life.get().nack()
        life.engine.compact()
        acknowledged.append("dead")

    judged = Judged()
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1), start=start):
        if judged.is_new(disk, bool(acknowledged)) and len(judged) % every(2) == 0:
            judge(disk, is_certain=bool(acknowledged))


def test_a_disk_that_is_full_delays_a_dead_letter_and_loses_none() -> None:
    failures = 0
    for room_bytes in range(0, 2000, 100):
        disk = prepared("fsync").after_kill()
        life = Life(disk)
        messages = life.queue().get_many(3)
        disk.fill_after(room_bytes)
        try:
            life.queue().reject(messages)
        except quivermq.DiskFull:
            failures += 1
            life.wait(31)
            disk.fill_after(None)
            life.wait(2)
        disk.fill_after(None)
        assert life.queue().get() is None
        check_letters(life.queue())
        life.close()
    assert 0 < failures < 20


def test_letters_tell_when_they_were_written() -> None:
    life = Life(prepared("fsync").after_kill(), start_s=5)
    life.queue().reject(life.queue().get_many(3), "unreadable", error="at byte 3")
    assert {(letter.time, letter.timestamp) for letter in life.queue().dead_letters()} == {
        (START_US + 5 * SECOND, START_US)
    }
    assert {(letter.reason, letter.error) for letter in life.queue().dead_letters()} == {
        ("unreadable", "at byte 3")
    }
    life.close()
