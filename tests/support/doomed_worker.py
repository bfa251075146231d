"""A process that uses every feature of a queue until it is killed, and tells what it does.

`python -m support.doomed_worker DIRECTORY TOPIC_SETTINGS` is a nursery: for each line on its standard
input, the JSON of an `Errand`, it forks a worker, which costs a hundredth of a new interpreter. Their
lines on standard output, a word and JSON each:

    born <pid>                      a worker is about to open the queue
    try [step, …]                   before a step
    did [step, …, result]           after it
    failed <error>                  the queue did what it must not do; the worker ends
    dead <status>                   a worker has ended
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Any

import quivermq

TESTS = Path(__file__).parents[1]
TOPIC = "work"
GROUPS = ("billing", "audit")
PARTITIONS = 2
NUMBERS_PER_LIFE = 100_000


@dataclass
class Errand:
    """What a worker is sent to do besides its work: finish what an earlier one was killed at."""

    life: int
    retries: list[int] = field(default_factory=list)
    """Messages that were put, but not acknowledged, and can be put again without harm."""
    receipts: list[tuple[str, str]] = field(default_factory=list)
    """Groups, and what they have in hand."""


def value_of(number: int) -> bytes:
    """The value of a message: whoever knows it can tell which it is, and whether it is whole."""
    name = b"%d:" % number
    return name + Random(name).randbytes(number % 5 * 40)


def number_in(value: bytes) -> int:
    number = int(value.partition(b":")[0])
    assert value == value_of(number)
    return number


def options_of(number: int) -> dict[str, Any]:
    """How a message is put, which its number decides: whoever tries again does the same."""
    rng = Random(number)
    return {
        "key": b"key %d" % (number % 3) if number % 4 else None,
        "headers": {"number": b"%d" % number} if number % 5 == 0 else None,
        "priority": rng.choice(("normal", "normal", "high", "low")),
        "ttl": 10**6 if number % 7 == 0 else None,
        "delay": rng.choice((0.001, 0.01, 0.1)) if is_delayed(number) else None,
        "dedup_id": f"message {number}" if is_deduplicated(number) else None,
    }


def is_deduplicated(number: int) -> bool:
    return number % 3 == 0


def is_delayed(number: int) -> bool:
    return number % 5 == 1


class Worker:
    """One life: a step after the other, each told before and after."""

    def __init__(self, engine: Any, errand: Errand) -> None:
        self._engine = engine
        self._queues = {group: engine.queue(TOPIC, group=group) for group in GROUPS}
        self._rng = Random(errand.life)
        self._number = errand.life * NUMBERS_PER_LIFE
        self._in_hand = [tuple(pair) for pair in errand.receipts]

    def run(self, errand: Errand) -> None:
        for number in errand.retries:
            self._put([number])
        work = (
            [self._put_one] * 4
            + [self._put_some] * 2
            + [self._get] * 8
            + [self._settle] * 8
            + [self._pop, self._redrive, self._compact]
        )
        while True:
            self._rng.choice(work)()

    def _put_one(self) -> None:
        self._put([self._new_number()])

    def _put_some(self) -> None:
        self._put([self._new_number() for _ in range(self._rng.randint(2, 8))])

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    def _put(self, numbers: list[int]) -> None:
        queue = self._queues[GROUPS[0]]
        tell("try", "put", numbers)
        if len(numbers) == 1:
            puts = [queue.put(value_of(numbers[0]), **options_of(numbers[0]))]
        else:
            puts = queue.put_many([quivermq.Message(value_of(n), **options_of(n)) for n in numbers])
        tell("did", "put", numbers, [[put.partition, put.priority, put.offset] for put in puts])

    def _get(self) -> None:
        group, count = self._rng.choice(GROUPS), self._rng.choice((1, 1, 5))
        # Some leases are so short that nobody can keep them.
        lease = self._rng.choice((60, 60, 0.003))
        tell("try", "get", group)
        if count == 1:
            delivery = self._queues[group].get(lease=lease)
            taken = [] if delivery is None else [delivery]
        else:
            taken = self._queues[group].get_many(count, lease=lease)
        tell("did", "get", group, [delivery_facts(delivery) for delivery in taken])
        self._in_hand += [(group, delivery.receipt) for delivery in taken]

    def _pop(self) -> None:
        group = self._rng.choice(GROUPS)
        tell("try", "pop", group)
        delivery = self._queues[group].pop()
        tell("did", "pop", group, [delivery_facts(delivery)] if delivery else [])

    def _settle(self) -> None:
        if not self._in_hand:
            return
        group, receipt = self._in_hand.pop(self._rng.randrange(len(self._in_hand)))
        queue = self._queues[group]
        step = self._rng.choice(("ack",) * 6 + ("nack",) * 5 + ("reject", "extend"))
        settle = {
            "ack": queue.ack,
            "nack": lambda receipt: queue.nack(receipt, delay=self._rng.choice((0, 0.002))),
            "reject": queue.reject,
            "extend": lambda receipt: queue.extend(receipt, 60),
        }[step]
        tell("try", step, group, receipt)
        try:
            settle(receipt)
        except quivermq.LeaseExpired:
            tell("did", "lose", group, receipt)
            return
        tell("did", step, group, receipt)
        if step == "extend":
            self._in_hand.append((group, receipt))

    def _redrive(self) -> None:
        limit = self._rng.choice((None, 1, 3))
        tell("try", "redrive")
        moved = self._queues[GROUPS[0]].redrive(limit=limit)
        tell("did", "redrive", moved)

    def _compact(self) -> None:
        tell("try", "compact")
        self._engine.compact()
        tell("did", "compact")


def delivery_facts(delivery: Any) -> list[Any]:
    """Partition, priority, offset, attempt, receipt and number of a delivery."""
    place = [delivery.partition, delivery.priority, delivery.offset]
    return [*place, delivery.attempt, delivery.receipt, number_in(delivery.value)]


def tell(word: str, *rest: Any) -> None:
    # One system call for the whole line, which a pipe takes as a whole.
    os.write(1, f"{word} {json.dumps(rest)}\n".encode())


def _work(path: str, settings: dict[str, Any], errand: Errand) -> None:
    """A worker's whole life. It never returns: it is killed, or ends at what it did not expect."""
    try:
        tell("born", os.getpid())
        engine = quivermq.open(path)
        if TOPIC not in engine.topics():
            engine.create_topic(TOPIC, **settings)
        Worker(engine, errand).run(errand)
    except BaseException:
        tell("failed", traceback.format_exc())
    finally:
        os._exit(1)


def _nurse(path: str, settings: dict[str, Any]) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _work(path, settings, Errand(**json.loads(line)))
        _, status = os.waitpid(pid, 0)
        tell("dead", status)


class Nursery:
    """The checker's end: lives begin with `send`, and are told line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders: IO[str] = process.stdin
        self.told: IO[str] = process.stdout

    def send(self, errand: Errand) -> None:
        self._orders.write(json.dumps(asdict(errand)) + "\n")
        self._orders.flush()

    def read(self) -> tuple[str, list[Any]]:
        """The next line. What a worker had written into the pipe outlives it."""
        word, _, rest = self.told.readline().partition(" ")
        return word, json.loads(rest)


@contextmanager
def nursery(path: Path, settings: dict[str, Any]) -> Iterator[Nursery]:
    """A process that makes workers, one at a time."""
    with subprocess.Popen(
        [sys.executable, "-m", "support.doomed_worker", str(path), json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


if __name__ == "__main__":
    _nurse(sys.argv[1], json.loads(sys.argv[2]))
