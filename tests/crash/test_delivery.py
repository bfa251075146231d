"""What consumers were told holds after a crash: leases, receipts, attempts, and above all acks."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import pytest
from support.crash import every, seeds
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import ALL_MODELS, LONG_S, MODELS, Judged, Life, Model, drain, life_to_judge, values

import quivermq
from quivermq.engine import engine_of
from quivermq.topic import state_log

pytestmark = pytest.mark.fault("power", "engine")

VALUES = [b"%d" % number for number in range(8)]

both_models = pytest.mark.parametrize("model", MODELS)
all_models = pytest.mark.parametrize("model", ALL_MODELS)
# What each word promises to survive.
promises = pytest.mark.parametrize(
    ("durability", "model"), [("fsync", "kill"), ("fsync", "power"), ("os", "kill"), ("fsync", "store")]
)


class Told(NamedTuple):
    """Something that a consumer asked for (with `begun`), or was told."""

    what: str
    value: bytes
    attempt: int
    receipt: str


class Consumer:
    """Does things with messages, and writes down what it was told."""

    def __init__(self, life: Life, told: list[Told]) -> None:
        self.life, self._told = life, told

    def get(self, count: int = 1) -> list[quivermq.Delivery]:
        messages = self.life.queue().get_many(count)
        self._tell("leased", messages)
        return messages

    def ack(self, messages: list[quivermq.Delivery]) -> None:
        self._tell("begun", messages)
        self.life.queue().ack(messages)
        self._tell("acked", messages)

    def ack_one(self, message: quivermq.Delivery) -> None:
        self._tell("begun", [message])
        message.ack()
        self._tell("acked", [message])

    def nack(self, messages: list[quivermq.Delivery]) -> None:
        self._tell("begun", messages)
        self.life.queue().nack(messages, delay=0)
        self._tell("nacked", messages)

    def pop(self) -> None:
        message = self.life.queue().pop()
        assert message is not None
        self._tell("acked", [message])

    def _tell(self, what: str, messages: Iterable[quivermq.Delivery]) -> None:
        self._told += [Told(what, m.value, m.attempt, m.receipt) for m in messages]


@cache
def prepared(durability: str) -> FaultyDisk:
    """Messages that nobody has had yet, all of them durable."""
    life = Life()
    life.create(durability=durability, attempts_max=9).put_many(list(VALUES))
    life.close()
    return life.disk


def work(disk: FaultyDisk, told: list[Told]) -> None:
    """Some of everything: acked alone, together, out of order; failed and tried again; extended; popped."""
    consumer = Consumer(Life(disk), told)
    one, two, three, four = consumer.get(4)
    consumer.ack_one(two)
    consumer.nack([one, three])
    [again] = consumer.get()
    consumer.life.queue().extend([again, four], 1000)
    consumer.get(2)
    consumer.ack([four])
    consumer.pop()
    consumer.nack([again])


def judge(disk: FaultyDisk, told: list[Told]) -> None:
    acked = {each.value for each in told if each.what == "acked"}
    attempts = {each.value: each.attempt for each in told if each.what in ("leased", "nacked")}
    last = {each.value: each for each in told}
    held = [each for each in last.values() if each.what == "leased"]
    with life_to_judge(disk) as life:
        queue = life.queue()
        # Whoever still has a message can settle it, and nobody else gets it.
        free = queue.get_many(100)
        assert not (acked | {each.value for each in held}) & set(values(free))
        queue.ack([each.receipt for each in held[::2]])
        acked |= {each.value for each in held[::2]}
        for each in told:
            if each.what in ("acked", "nacked"):
                with pytest.raises(quivermq.LeaseExpired):
                    queue.ack(each.receipt)
        check_attempts(free, attempts)
        queue.ack(free)
        life.wait(LONG_S)
        late = queue.get_many(100)
        found = set(values(free)) | set(values(late))
        assert not acked & found
        assert acked | found | settled_by_nobody(last) == set(VALUES)
        check_attempts(late, attempts)
        queue.ack(late)
        assert queue.get() is None
        for each in held:
            with pytest.raises(quivermq.LeaseExpired):
                queue.ack(each.receipt)


def check_attempts(messages: list[quivermq.Delivery], attempts: dict[bytes, int]) -> None:
    """None is understated; one more than anybody knows of may have died on its way to the consumer."""
    for message in messages:
        assert 0 <= message.attempt - attempts.get(message.value, 0) - 1 <= 2


def settled_by_nobody(last: dict[bytes, Told]) -> set[bytes]:
    """An ack or a pop that died on the way: nobody knows whether it got through."""
    return {value for value, each in last.items() if each.what == "begun"} | (set(VALUES) - set(last))


@promises
def test_a_crash_at_every_step(durability: str, model: Model) -> None:
    judged = Judged()
    for disk, told in every_crash(work, model=model, seeds=seeds(1), start=prepared(durability)):
        if judged.is_new(disk, tuple(each[:3] for each in told)):
            judge(disk, told)
    assert len(judged) > 10


@promises
def test_a_crash_beside_snapshots(durability: str, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    start = prepared(durability)
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)
    judged = Judged()
    for disk, told in every_crash(work, model=model, seeds=seeds(1), start=start):
        if judged.is_new(disk, tuple(each[:3] for each in told)):
            judge(disk, told)
    assert len(judged) > (10 if model == "store" else 20)


@all_models
def test_a_crash_at_every_step_of_a_snapshot(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is shortened, and files of it go."""
    life = Life()
    life.create(attempts_max=9).put_many(list(VALUES))
    told: list[Told] = []
    consumer = Consumer(life, told)
    messages = consumer.get(4)
    consumer.ack(messages[1:3])
    consumer.nack(messages[3:])
    life.engine.close()

    def run(disk: FaultyDisk, _: list[None]) -> None:
        Life(disk).engine.compact()

    judged = Judged()
    for disk, _ in every_crash(run, model=model, seeds=seeds(2), start=life.disk):
        if judged.is_new(disk):
            judge(disk, told)
    assert len(judged) > 3


@promises
def test_a_crash_of_the_process_that_recovered(durability: str, model: Model) -> None:
    """The second process goes on where the first one died, and dies as well."""

    def go_on(disk: FaultyDisk, told: list[Told]) -> None:
        consumer = Consumer(Life(disk), told)
        consumer.ack(consumer.get(2))
        consumer.nack(consumer.get(2))

    first, judged = Judged(), Judged()
    for crashed, before in every_crash(work, model=model, seeds=seeds(1), start=prepared(durability)):
        if not first.is_new(crashed) or len(first) % every(9):
            continue
        for disk, after in every_crash(go_on, model=model, seeds=[len(first)], start=crashed):
            disk.description += f"; after {crashed.description}"
            told = [*before, *after]
            # What the first one had begun, the second one may have found done, or not.
            if judged.is_new(disk, tuple(each[:3] for each in told)):
                judge(disk, told)
    assert len(judged) > 5


def test_receipts_hold_until_their_time_is_over_and_no_longer() -> None:
    life = Life()
    queue = life.create(lease_ms=10_000)
    queue.put_many([b"a", b"b", b"c"])
    a, b, c = queue.get_many(3)
    b.extend(100)
    life.clock.advance(9)
    life = life.killed()
    life.queue().ack(a.receipt)
    life.clock.advance(2)
    life = life.killed()
    with pytest.raises(quivermq.LeaseExpired) as refused:
        life.queue().ack([b.receipt, c.receipt])
    assert refused.value.receipts == (c.receipt,)
    [again] = life.queue().get_many(3)
    assert (again.value, again.attempt) == (b"c", 2)
    with pytest.raises(quivermq.LeaseExpired):
        life.queue().ack(c.receipt)
    again.ack()
    life.close()


def test_attempts_that_ended_by_time_alone_count_after_a_crash() -> None:
    life = Life()
    life.create(attempts_max=5).put(b"a")
    for attempt in range(1, 5):
        assert life.get().attempt == attempt
        life.clock.advance(LONG_S)
        life = life.without_power()
    assert life.get().attempt == 5
    life.clock.advance(LONG_S)
    life = life.without_power()
    assert life.queue().get() is None
    [letter] = life.queue().dead_letters()
    assert (letter.attempts, letter.reason) == (5, "lease_expired")
    life.close()


def lose(disk: FaultyDisk, acknowledged: list[str]) -> None:
    """Take, ack and reject what is synced now and then: the journal gets ahead of the lanes."""
    life = Life(disk)
    queue = life.create(durability="os", attempts_max=9)
    queue.put_many([b"old"] * 3)
    life.wait(2)
    queue.put_many([b"old"] * 3)
    queue.put(b"old", priority="high")
    queue.ack(queue.get_many(3))
    # The dead letter is durable, and with it the journal.
    life.get().reject()
    queue.nack(queue.get_many(2), delay=0)
    queue.pop()
    life.queue(group="audit").get_many(9)
    life.get().reject()


@both_models
def test_what_comes_in_place_of_what_power_took_is_delivered(model: Model) -> None:
    judged = Judged()
    reused = 0
    new = [b"new %d" % number for number in range(10)]
    for disk, _ in every_crash(lose, model=model, seeds=seeds(2)):
        if not judged.is_new(disk) or (model == "kill" and len(judged) % every(4)):
            continue
        with life_to_judge(disk, start_s=LONG_S) as life:
            queue = life.queue()
            put = queue.put_many(list(new))[0]
            queue.put(b"new high", priority="high")
            reused += 0 < (put.offset or 0) < 6
            # Another crash, before anybody has looked.
            again = life.killed()
            for group in ("billing", "audit", "late"):
                found = drain(again, group=group)
                assert [value for value in found if value in new] == new
                assert found.count(b"new high") == 1
    assert reused > 3 or model == "kill"


def test_a_journal_that_is_ahead_of_its_lane_forgets_what_it_knows() -> None:
    life = Life()
    queue = life.create(durability="os", attempts_max=9)
    queue.put_many([b"safe", b"safe"])
    life.wait(2)
    queue.put_many([b"lost"] * 4)
    first, second, third, *others = queue.get_many(5)
    second.ack()
    queue.nack([third, others[0]], delay=0)
    # Syncs the journal, not the lane.
    first.reject()
    life = life.without_power()
    queue = life.queue()
    assert len(queue.read()) == 2
    assert queue.stats().in_flight == 0
    with pytest.raises(quivermq.LeaseExpired):
        queue.ack(others[1].receipt)
    queue.put_many([b"new"] * 4)
    found = queue.get_many(9)
    assert [(message.value, message.offset, message.attempt) for message in found] == [
        (b"new", offset, 1) for offset in range(2, 6)
    ]
    life.close()


def test_a_durable_delayed_message_comes_also_when_its_lane_was_lost() -> None:
    life = Life()
    queue = life.create(durability="os")
    queue.put(b"plain")
    queue.put(b"delayed", delay=10, durability="fsync")
    life.clock.advance(10)
    engine_of(life.engine).maintain()
    life.get().reject()
    for seed in range(60):
        after = life.without_power("random", seed)
        assert b"delayed" in drain(after), seed


@both_models
def test_a_seek_is_kept(model: Model) -> None:
    def run(disk: FaultyDisk, acknowledged: list[str]) -> None:
        life = Life(disk)
        queue = life.queue()
        queue.ack(queue.get_many(6))
        acknowledged.append("acked")
        queue.seek("earliest")
        acknowledged.append("sought")
        queue.seek(offset=7)
        acknowledged.append("sought on")

    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(1), start=prepared("fsync")):
        with life_to_judge(disk, start_s=LONG_S) as life:
            found = drain(life)
            allowed = {
                0: [VALUES, VALUES[6:]],
                1: [VALUES[6:], VALUES],
                2: [VALUES, VALUES[7:]],
                3: [VALUES[7:]],
            }
            assert found in allowed[len(acknowledged)]
