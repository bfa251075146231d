"""A load that uses every feature of a queue, one step after the other, and reports each before and after.

It runs against a directory or a broker, which have the same methods. It reports words and plain data:

    try step …              before a step
    did step … result       after it
    refused                 the disk did not take the step, and nothing of it happened
    failed                  the disk failed at it: it may have happened or not

A message is known by a number, from which follows everything else about it: whoever reads it knows which it
is and whether it is whole, and whoever has to put it again does the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Any

from quivermq.chaos import expect
from quivermq.errors import DiskRefused, LeaseExpired, StorageFailed
from quivermq.frame import Producer, encode
from quivermq.model.deliveries import Delivery
from quivermq.model.messages import Message
from quivermq.queue.connection import Connection

NUMBERS_PER_RUN = 100_000


def value_of(number: int) -> bytes:
    """The value of a message."""
    name = b"%d:" % number
    return name + Random(name).randbytes(number % 5 * 40)


def number_in(value: bytes) -> int:
    """The number of a message. Raises Violation when its value is not the one it was put with."""
    digits = value.partition(b":")[0]
    expect(
        digits.isdigit() and value == value_of(int(digits)), f"a value is not what was put: {value[:80]!r}"
    )
    return int(digits)


def key_of(number: int) -> bytes | None:
    return b"key %d" % (number % 3) if number % 4 else None


def options_of(number: int) -> dict[str, Any]:
    """How a message is put: every feature that a put has is somewhere among the numbers."""
    rng = Random(number)
    return {
        "key": key_of(number),
        "headers": {"number": b"%d" % number} if number % 5 == 0 else None,
        "priority": rng.choice(("normal", "normal", "high", "low")),
        "ttl": 10**6 if number % 7 == 0 else None,
        "delay": rng.choice((0.001, 0.01, 0.1)) if is_delayed(number) else None,
        "dedup_id": f"message {number}" if is_deduplicated(number) else None,
    }


def is_deduplicated(number: int) -> bool:
    """Whether it can be put again without harm."""
    return number % 3 == 0


def is_delayed(number: int) -> bool:
    return number % 5 == 1


TOPIC = "work"
GROUPS = ("billing", "audit")
PARTITIONS = 2
ATTEMPTS_MAX = 4
SETTINGS: dict[str, Any] = {
    "partitions": PARTITIONS,
    "attempts_max": ATTEMPTS_MAX,
    "segment_messages": 100,
    "dedup_window_ms": 24 * 3600 * 1000,
}
# A run alters the topic between these two.
SEGMENT_MESSAGES = (100, 60)

_PRODUCER_ID = 7
# Neither delayed nor deduplicated, which a frame of a producer cannot be.
_FRAME_STEP, _FRAME_START = 15, 4

_ENDS = ("ack",) * 6 + ("nack",) * 5 + ("release",) * 2 + ("reject", "extend")
_ENDS_TIDYING = ("ack", "nack", "reject", "reject")

Report = Callable[..., None]


@dataclass
class WorkerRun:
    """One run of a worker: its number, and what an earlier one was stopped at, which it finishes."""

    number: int
    retries: list[int] = field(default_factory=list)
    """Messages that were put, but not acknowledged, and can be put again without harm."""
    receipts: list[tuple[str, str]] = field(default_factory=list)
    """Groups, and what they have in hand."""
    sequence: int = 0
    """The number of the producer's next message."""
    frame: list[int] = field(default_factory=list)
    """The messages of a frame that was sent and not acknowledged; it is sent again."""
    tidies: bool = False
    """Whether it gives messages up, sends them back and shortens files most of the time."""


def prepare(engine: Connection, settings: dict[str, Any]) -> None:
    """Make the topic, unless an earlier run has."""
    if TOPIC not in engine.topics():
        engine.create_topic(TOPIC, **{**SETTINGS, **settings})


class Worker:
    """Takes the steps of one run."""

    def __init__(self, engine: Connection, run: WorkerRun, report: Report) -> None:
        self._engine = engine
        self._queues = {group: engine.queue(TOPIC, group=group) for group in GROUPS}
        self._run = run
        self._report = report
        self._rng = Random(run.number)
        self._number = run.number * NUMBERS_PER_RUN
        self._sequence = run.sequence
        self._in_hand = [(group, receipt) for group, receipt in run.receipts]
        self._deliveries: dict[str, Delivery] = {}
        self._unsent = run.frame

    def run(self, steps: int | None = None, between: Callable[[], None] = lambda: None) -> None:
        """Work until somebody stops it, or for so many steps, and do something between each two."""
        for number in self._run.retries:
            self._try(partial(self._put, [number]))
        work = (
            [self._put_one] * 4
            + [self._put_some, self._send_frame] * 2
            + [self._get] * 8
            + [self._settle] * 8
            + [self._pop, self._cancel, self._alter]
            + [self._redrive, self._compact] * (12 if self._run.tidies else 1)
        )
        for _ in count() if steps is None else range(steps):
            self._try(self._send_frame if self._unsent else self._rng.choice(work))
            between()

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except DiskRefused:
            self._report("refused")
        except StorageFailed:
            self._report("failed")

    def _put_one(self) -> None:
        self._put([self._new_number()])

    def _put_some(self) -> None:
        self._put([self._new_number() for _ in range(self._rng.randint(2, 8))])

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    def _put(self, numbers: list[int]) -> None:
        queue = self._queues[GROUPS[0]]
        self._report("try", "put", numbers)
        if len(numbers) == 1:
            puts = [queue.put(value_of(numbers[0]), **options_of(numbers[0]))]
        else:
            puts = list(queue.put_many([Message(value_of(n), **options_of(n)) for n in numbers]))
        stored = [[put.partition, put.priority, put.offset, put.scheduled_id] for put in puts]
        self._report("did", "put", numbers, stored)

    def _send_frame(self) -> None:
        """Send a frame as a producer that repeats what was not acknowledged."""
        if not self._unsent:
            first = self._number - self._number % _FRAME_STEP + _FRAME_STEP + _FRAME_START
            self._unsent = [first + n * _FRAME_STEP for n in range(self._rng.randint(1, 6))]
            self._number = self._unsent[-1]
        numbers = self._unsent
        producer = Producer(_PRODUCER_ID, 0, self._sequence)
        frame = encode([value_of(number) for number in numbers], timestamp=1, producer=producer)
        self._report("try", "send", numbers)
        put = self._queues[GROUPS[0]].put_frame(bytes(frame), partition=0)
        self._sequence += len(numbers)
        self._unsent = []
        self._report("did", "send", numbers, put.offset)

    def _get(self) -> None:
        group, wanted = self._rng.choice(GROUPS), self._rng.choice((1, 1, 5))
        # Some leases are so short that nobody can keep them.
        lease = self._rng.choice((60, 60, 0.003))
        self._report("try", "get", group)
        if wanted == 1:
            delivery = self._queues[group].get(lease=lease)
            taken = [] if delivery is None else [delivery]
        else:
            taken = self._queues[group].get_many(wanted, lease=lease)
        self._report("did", "get", group, [delivery_facts(delivery) for delivery in taken])
        self._in_hand += [(group, delivery.receipt) for delivery in taken]
        self._deliveries.update((delivery.receipt, delivery) for delivery in taken)

    def _pop(self) -> None:
        group = self._rng.choice(GROUPS)
        self._report("try", "pop", group)
        delivery = self._queues[group].pop()
        self._report("did", "pop", group, [delivery_facts(delivery)] if delivery else [])

    def _settle(self) -> None:
        if not self._in_hand:
            return
        index = self._rng.randrange(len(self._in_hand))
        group, receipt = self._in_hand[index]
        step = self._rng.choice(_ENDS_TIDYING if self._run.tidies else _ENDS)
        self._report("try", step, group, receipt)
        try:
            self._settle_as(step, group, receipt)
        except LeaseExpired:
            step = "lose"
        except StorageFailed:
            del self._in_hand[index]
            raise
        self._report("did", step, group, receipt)
        if step != "extend":
            del self._in_hand[index]

    def _settle_as(self, step: str, group: str, receipt: str) -> None:
        queue = self._queues[group]
        # What an earlier run took is known by its receipt alone.
        delivery = self._deliveries.pop(receipt, None) if step == "ack" else None
        if delivery is not None and self._rng.random() < 0.5:
            delivery.ack()
        elif step == "nack":
            queue.nack(receipt, delay=self._rng.choice((0, 0.002)))
        elif step == "extend":
            queue.extend(receipt, 60)
        else:
            getattr(queue, step)(receipt)

    def _redrive(self) -> None:
        limit = self._rng.choice((None, 1, 3))
        self._report("try", "redrive")
        self._report("did", "redrive", self._queues[GROUPS[0]].redrive(limit=limit))

    def _compact(self) -> None:
        self._report("try", "compact")
        self._engine.compact()
        self._report("did", "compact")

    def _cancel(self) -> None:
        queue = self._queues[GROUPS[0]]
        for scheduled in queue.scheduled(1):
            number = number_in(scheduled.value)
            self._report("try", "cancel", number)
            self._report("did", "cancel", number, queue.cancel(scheduled.id))

    def _alter(self) -> None:
        messages = self._rng.choice(SEGMENT_MESSAGES)
        self._report("try", "alter", messages)
        self._engine.alter_topic(TOPIC, segment_messages=messages)
        self._report("did", "alter", messages)


def delivery_facts(delivery: Any) -> list[Any]:
    """Partition, priority, offset, attempt, receipt and number of a delivery."""
    found = [delivery.partition, delivery.priority, delivery.offset]
    return [*found, delivery.attempt, delivery.receipt, number_in(delivery.value)]
