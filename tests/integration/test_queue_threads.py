"""Eight producers and eight consumers over all features at once: nothing is lost, nothing is done twice."""

import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from support.threads import start

import quivermq

TOPIC = "work"
GROUPS = ("billing", "audit")
PRIORITIES = ("high", "normal", "low")
PARTITIONS = 3
PRODUCERS = 8
CONSUMERS_PER_GROUP = 4
MESSAGES_PER_PRODUCER = 500
ATTEMPTS_MAX = 5
# After this long something hangs: the test itself takes a few seconds.
PATIENCE_S = 60
SHORT_S = 0.02


class Place(NamedTuple):
    partition: int
    priority: str
    offset: int


class Notes:
    """What the threads were told. Each method is called by many of them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.put: dict[bytes, Place | None] = {}
        self.mortal: set[bytes] = set()
        self.seen: dict[str, set[bytes]] = defaultdict(set)
        self.attempts: Counter[tuple[str, Place, int]] = Counter()
        self.acks: Counter[tuple[str, Place]] = Counter()

    def was_put(self, value: bytes, put: Any, *, is_mortal: bool) -> None:
        with self._guard:
            self.put[value] = None if put.offset is None else _place(put)
            if is_mortal:
                self.mortal.add(value)

    def was_delivered(self, group: str, delivery: Any) -> None:
        with self._guard:
            self.seen[group].add(delivery.value)
            self.attempts[group, _place(delivery), delivery.attempt] += 1

    def was_acked(self, group: str, delivery: Any) -> None:
        with self._guard:
            self.acks[group, _place(delivery)] += 1


def _place(holder: Any) -> Place:
    return Place(holder.partition, holder.priority, holder.offset)


class Producer:
    """Puts messages of every kind."""

    def __init__(self, engine: Any, notes: Notes, number: int, seed: str) -> None:
        self._queue = engine.queue(TOPIC)
        self._notes = notes
        self._name = b"%d" % number
        self._rng = Random(f"{seed} producer {number}")
        self._count = 0

    def run(self) -> None:
        while self._count < MESSAGES_PER_PRODUCER:
            messages = [self._message() for _ in range(self._rng.choice((1, 1, 1, 7)))]
            if len(messages) == 1:
                puts = [self._put(messages[0])]
            else:
                puts = self._queue.put_many([quivermq.Message(**message) for message in messages])
            for message, put in zip(messages, puts, strict=True):
                assert not put.duplicate
                self._notes.was_put(message["value"], put, is_mortal=message["ttl"] == SHORT_S)

    def _put(self, message: dict[str, Any]) -> Any:
        put = self._queue.put(**message)
        if message["dedup_id"]:
            again = self._queue.put(**message)
            assert again.duplicate, "taken twice"
            assert put.offset is None or again.offset == put.offset
        return put

    def _message(self) -> dict[str, Any]:
        self._count += 1
        rng = self._rng
        return {
            "value": b"%s:%d" % (self._name, self._count),
            "key": rng.choice((None, b"a", b"b", b"c")),
            "headers": rng.choice((None, {"from": self._name})),
            "priority": rng.choice(PRIORITIES),
            "ttl": rng.choice((None, None, 600, SHORT_S)),
            "delay": rng.choice((None, None, None, 0.01, 0.2)),
            "dedup_id": rng.choice((None, f"{self._name!r} {self._count}")),
            "partition": rng.choice((None, None, *range(PARTITIONS))),
        }


class Consumer:
    """Does everything with messages that one can do, until there are none, and in the end only good."""

    def __init__(
        self, engine: Any, notes: Notes, group: str, number: int, *, seed: str, over: threading.Event
    ) -> None:
        self._over = over
        self._queue = engine.queue(TOPIC, group=group)
        self._notes = notes
        self._group = group
        self._rng = Random(f"{seed} consumer {group} {number}")

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        ways = [
            self._acks,
            self._acks,
            self._acks_many,
            self._fails,
            self._is_late,
            self._processes,
            self._pops,
        ]
        while time.monotonic() < deadline:
            was_over = self._over.is_set()
            way = self._acks_many if was_over else self._rng.choice(ways)
            if way() or not was_over:
                continue
            stats = self._queue.stats()
            if not stats.backlog:
                return
        raise AssertionError(f"{self._group}: there is no end to it: {self._queue.stats()}")

    def _get(self, **options: Any) -> Any:
        delivery = self._queue.get(timeout=0.02, **options)
        if delivery is not None:
            self._notes.was_delivered(self._group, delivery)
        return delivery

    def _acks(self) -> bool:
        if delivery := self._get():
            delivery.ack()
            self._notes.was_acked(self._group, delivery)
        return delivery is not None

    def _acks_many(self) -> bool:
        deliveries = self._queue.get_many(10, timeout=0.02)
        for delivery in deliveries:
            self._notes.was_delivered(self._group, delivery)
        self._queue.ack(deliveries)
        for delivery in deliveries:
            self._notes.was_acked(self._group, delivery)
        return bool(deliveries)

    def _fails(self) -> bool:
        if delivery := self._get():
            match self._rng.randrange(8):
                case 0:
                    delivery.reject("no use")
                case 1 | 2 | 3:
                    delivery.nack()
                case _:
                    delivery.nack(delay=self._rng.choice((0, 0.01)), reason="no luck")
        return delivery is not None

    def _is_late(self) -> bool:
        """Keep a message longer than allowed, and then find out whether somebody else has it."""
        if delivery := self._get(lease=SHORT_S):
            if self._rng.random() < 0.5:
                self._acks()
            with suppress(quivermq.LeaseExpired):
                delivery.ack()
                self._notes.was_acked(self._group, delivery)
        return delivery is not None

    def _processes(self) -> bool:
        fails = self._rng.random() < 0.3
        with suppress(ZeroDivisionError), self._queue.process(timeout=0.02) as delivery:
            if delivery is None:
                return False
            self._notes.was_delivered(self._group, delivery)
            if fails:
                raise ZeroDivisionError
        if not fails:
            self._notes.was_acked(self._group, delivery)
        return True

    def _pops(self) -> bool:
        delivery = self._queue.pop(timeout=0.02)
        if delivery is not None:
            self._notes.was_delivered(self._group, delivery)
            self._notes.was_acked(self._group, delivery)
        return delivery is not None


def test_eight_producers_and_eight_consumers_use_everything_at_once(tmp_path: Path, request: Any) -> None:
    seed = request.config.option.hypothesis_seed
    notes = Notes()
    with quivermq.open(tmp_path) as engine:
        engine.create_topic(
            TOPIC,
            partitions=PARTITIONS,
            durability="os",
            attempts_max=ATTEMPTS_MAX,
            backoff_ms=5,
            segment_messages=100,
        )
        _work(engine, notes, seed)
        _check(engine, notes)


def _work(engine: Any, notes: Notes, seed: str) -> None:
    over = threading.Event()
    consumers = [
        start(Consumer(engine, notes, group, number, seed=seed, over=over).run)
        for group in GROUPS
        for number in range(CONSUMERS_PER_GROUP)
    ]
    producers = [start(Producer(engine, notes, number, seed).run) for number in range(PRODUCERS)]
    queue = engine.queue(TOPIC)
    while not all(producer.done() for producer in producers):
        queue.redrive(limit=5)
        engine.compact()
        assert engine.verify().is_sound
    for producer in producers:
        producer.result(PATIENCE_S)
    over.set()
    for consumer in consumers:
        consumer.result(PATIENCE_S)


def _check(engine: Any, notes: Notes) -> None:
    assert len(notes.put) >= PRODUCERS * MESSAGES_PER_PRODUCER
    for group in GROUPS:
        missing = notes.put.keys() - notes.seen[group] - notes.mortal
        assert not missing, f"{group} never saw {missing}"
    assert max(notes.acks.values()) == 1, "acknowledged twice"
    assert max(notes.attempts.values()) == 1, "the same attempt was handed out twice"
    for group, place, attempt in notes.attempts:
        assert attempt == 1 or (group, place, attempt - 1) in notes.attempts, f"{place} skipped an attempt"
    _check_every_offset(engine, notes)
    _check_dead_letters(engine, notes)
    assert engine.verify().is_sound


def _check_every_offset(engine: Any, notes: Notes) -> None:
    queue = engine.queue(TOPIC)
    found: dict[Place, bytes] = {}
    for partition in range(PARTITIONS):
        for priority in PRIORITIES:
            offset = 0
            while records := queue.read(partition, offset, 64, priority=priority):
                for record in records:
                    assert record.offset == offset
                    found[Place(partition, priority, offset)] = record.value
                    offset += 1
    for value, place in notes.put.items():
        assert place is None or found[place] == value
    assert set(found.values()) == notes.put.keys()


def _check_dead_letters(engine: Any, notes: Notes) -> None:
    deaths = Counter(
        (dead.group, Place(dead.partition, dead.priority, dead.offset))
        for dead in engine.queue(TOPIC).dead_letters()
    )
    assert not deaths or max(deaths.values()) == 1, "died twice"
    assert deaths.keys().isdisjoint(notes.acks), "acknowledged, and a dead letter"
