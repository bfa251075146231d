"""Queues whose disk, clock and background thread belong to the test.

- `Life`: a process that has the data directory open, until it closes it, is killed, or loses power.
- `Parts`: what an engine is made of, one by one: partitions, topics, cursors.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import quivermq
from quivermq.clock import SteadyClock
from quivermq.delivery.cursor import Cursor
from quivermq.delivery.cursor_state import CursorState, DeliveryMeter
from quivermq.delivery.dead_letters import DeadLetterTopic
from quivermq.engine import engine_of
from quivermq.log import DataDirectory, verify
from quivermq.metrics import Metrics
from quivermq.model.names import usual_origin
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.partition import Partition
from quivermq.topic.state_log import StateLog
from quivermq.topic.topic import Topic
from support.faulty_disk import FaultyDisk, Keep
from support.logs import assert_sound
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

DATA = Path("/data")
TOPIC, GROUP = "orders", "billing"
START_US = 1_700_000_000_000_000
SECOND, HOUR = 1_000_000, 3_600_000_000
# Longer than any lease, wait or window of the tests.
LONG_S = 7200

Model = Literal["kill", "power", "store"]
MODELS: tuple[Model, ...] = ("kill", "power")
# The machine is lost as well, and what an object store has is left.
ALL_MODELS: tuple[Model, ...] = (*MODELS, "store")


class Life:
    """One process that has the queue open. Nothing happens in it but what the test asks for."""

    def __init__(self, disk: FaultyDisk | None = None, *, start_s: float = 0) -> None:
        self.disk = FaultyDisk() if disk is None else disk
        self.clock = ManualClock(START_US + round(start_s * SECOND))
        self.scheduler = ManualScheduler(self.clock)
        self.engine = quivermq.open(DATA, disk=self.disk, clock=self.clock, scheduler=self.scheduler)

    def create(self, topic: str = TOPIC, **settings: Any) -> quivermq.Queue:
        """A new topic, as the group of most tests sees it."""
        self.engine.create_topic(topic, **settings)
        return self.queue(topic)

    def queue(self, topic: str = TOPIC, group: str = GROUP) -> quivermq.Queue:
        return self.engine.queue(topic, group)

    def get(self, topic: str = TOPIC) -> quivermq.Delivery:
        """The next message, of which there has to be one."""
        message = self.queue(topic).get()
        assert message is not None
        return message

    def wait(self, seconds: float) -> None:
        """Let time pass, and do what has fallen due."""
        self.clock.advance(seconds)
        self.scheduler.run_due()
        engine_of(self.engine).maintain()

    def reopened(self) -> "Life":
        """The next process, after this one has closed everything."""
        self.engine.close()
        return self._next(self.disk)

    def killed(self) -> "Life":
        """The next process, after kill -9."""
        return self._next(self.disk.after_kill())

    def without_power(self, keep: Keep = "nothing", seed: int = 0) -> "Life":
        """The next process, after the power was gone."""
        return self._next(self.disk.after_power_loss(seed, keep=keep))

    def close(self) -> None:
        """Close the queue, and look at every byte of it."""
        self.engine.close()
        assert_sound(verify(DATA, engine_of(self.engine).settings.storage, disk=self.disk))

    def _next(self, disk: FaultyDisk) -> "Life":
        return Life(disk, start_s=(self.clock.now_us() - START_US) / SECOND)

    def __enter__(self) -> "Life":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def values(deliveries: list[quivermq.Delivery]) -> list[bytes]:
    return [delivery.value for delivery in deliveries]


def drain(life: Life, topic: str = TOPIC, group: str = GROUP) -> list[bytes]:
    """Take and ack everything that comes by itself, also after leases and waits are over."""
    found: list[bytes] = []
    queue = life.queue(topic, group)
    for _ in range(2):
        while batch := queue.get_many(100):
            found += values(batch)
            queue.ack(batch)
        life.wait(LONG_S)
    return found


def fail_until_dead(life: Life, topic: str = TOPIC, group: str = GROUP) -> None:
    """Let every message fail, again and again, until none comes any more."""
    queue = life.queue(topic, group)
    for _ in range(2):
        while batch := queue.get_many(100):
            queue.nack(batch, delay=0)
        life.wait(LONG_S)
    assert queue.get() is None


@contextmanager
def life_to_judge(disk: FaultyDisk, *, start_s: float = 0) -> Iterator[Life]:
    """Open what a crash left. An error tells which crash it was."""
    try:
        with Life(disk, start_s=start_s) as life:
            yield life
    except BaseException as error:
        error.add_note(disk.description)
        raise


class Judged:
    """Which crashes were looked at already: many leave the same files, and the same promises."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def is_new(self, disk: FaultyDisk, promised: object = None) -> bool:
        found = (promised, tuple(disk.files().items()))
        is_new = found not in self._seen
        self._seen.add(found)
        return is_new

    def __len__(self) -> int:
        return len(self._seen)


def meter() -> DeliveryMeter:
    """Counters that nobody else counts with."""
    metrics = Metrics()
    fields = [name for name in DeliveryMeter._fields if name != "age"]
    counters: dict[str, Any] = {name: metrics.counter(f"{name}_total", name) for name in fields}
    return DeliveryMeter(**counters, age=metrics.histogram("age_seconds", "age"))


class Parts:
    """A data directory, and what an engine would open in it."""

    def __init__(self, disk: FaultyDisk | None = None, clock: ManualClock | None = None) -> None:
        self.disk = FaultyDisk() if disk is None else disk
        self.wall = ManualClock() if clock is None else clock
        self.clock = SteadyClock(self.wall)
        self.storage = StorageSettings(durability="os")
        self.scheduler = ManualScheduler(self.wall)
        self.directory = DataDirectory(
            DATA, self.storage, disk=self.disk, clock=self.clock, scheduler=self.scheduler
        )
        # How many messages were said to be ready, and how many dead letters to be written.
        self.rings: list[int] = []
        self.letters: list[int] = []

    @property
    def now(self) -> int:
        return self.clock.now_us()

    def state_log(self, name: str = "state") -> StateLog:
        return StateLog(self.directory, name)

    def partition(self, number: int = 0, topic: str = TOPIC, **storage: Any) -> Partition:
        settings = StorageSettings(**{"durability": "os", **storage})
        return Partition(self.directory, topic, number, settings)

    def topic(self, name: str = TOPIC, **settings: Any) -> Topic:
        made = TopicSettings.make({"durability": "os", **settings}, self.storage)
        topic = Topic(self.directory, name, made, self.clock, usual_origin(name))
        topic.open_delays()
        return topic

    def cursor(self, partition: Partition | None = None, group: str = GROUP, **settings: Any) -> Cursor:
        """A cursor whose dead letters go to partition 0 of the topic's dead letters."""
        partition = partition or self.partition()
        state = CursorState(
            group,
            partition,
            self.state_log(f"groups/{group}/{partition.topic}/p{partition.number}"),
            TopicSettings.make({"durability": "os", **settings}, self.storage),
            clock=self.clock,
            dead_letter_topic=lambda _: DeadLetterTopic(
                {0: self.grave(partition.topic)}, self.letters.append
            ),
            meter=meter(),
            on_ready=self.rings.append,
            is_dead_letter_topic=usual_origin(partition.topic) is not None,
        )
        return Cursor(state)

    def grave(self, topic: str = TOPIC) -> Partition:
        return self.partition(0, f"{topic}.dlq", durability="fsync")

    def reopened(self) -> "Parts":
        """The same directory for the next process."""
        self.directory.close()
        return Parts(self.disk, self.wall)

    def killed(self) -> "Parts":
        return Parts(self.disk.after_kill(), self.wall)

    def without_power(self, keep: Keep = "nothing", seed: int = 0) -> "Parts":
        return Parts(self.disk.after_power_loss(seed, keep=keep), self.wall)

    def close(self) -> None:
        self.directory.close()
        assert_sound(verify(DATA, self.storage, disk=self.disk))
