"""A worker that is struck by signals at random moments: whatever its handler does, it must not hang.

Run as `python -m support.signalled ADDRESS LIVES SEED`, with a directory or the URL of a broker. Each life
works on a topic of its own until the signal ends it; then everything that it was told is held against what
is there. Says what went wrong, or where it hangs, and exits with 1.
"""

import faulthandler
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import quivermq

# Nothing that a life does takes a hundredth of it.
HANG_S = 60
STRIKES_S = (0.0002, 0.006)


class Stop(Exception):
    """Raised by a worker that has seen its flag."""


class Life:
    """One worker, from its opening to its signal."""

    def __init__(self, mq: Any, topic: str, chance: random.Random) -> None:
        self.mq = mq
        self.chance = chance
        self.queue = mq.queue(topic)
        self.stored: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.is_stopping = False
        self.refused = 0
        self.die: Callable[[], None] = chance.choice([self.close, self.exit, self.flag, self.call])

    # What a handler may do.

    def close(self) -> None:
        self.mq.close()
        # Further signals come while the first one is served.
        self.mq.close()

    def exit(self) -> None:
        # Python drops an exception that strikes while it finalises something.
        self.is_stopping = True
        sys.exit(0)

    def flag(self) -> None:
        self.is_stopping = True

    def call(self) -> None:
        """Make calls: each is carried out or refused."""
        self.is_stopping = True
        for act in (
            lambda: self.queue.put(b"from the handler"),
            lambda: self.queue.put_many([b"one", b"two", b"three"]),
            self.queue.stats,
            self.queue.read,
            self.mq.topics,
            lambda: self.mq.create_topic(f"{self.queue.topic}.other"),
        ):
            try:
                act()
            except quivermq.Reentered:
                self.refused += 1

    # What it does until then.

    def run(self) -> None:
        signal.signal(signal.SIGALRM, lambda _number, _frame: self.die())
        signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(*STRIKES_S))
        try:
            for number in count():
                self.step(b"%d" % number)
                if self.is_stopping:
                    raise Stop
        except (quivermq.Closing, SystemExit, Stop):
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.mq.close()

    def step(self, value: bytes) -> None:
        queue, kind = self.queue, self.chance.randrange(8)
        if kind == 0:
            queue.put(value)
            self.stored.add(value)
        elif kind == 1:
            queue.put(value, key=b"key", headers={"a": b"1"}, dedup_id=value.decode())
            self.stored.add(value)
        elif kind == 2:
            values = [b"%s.%d" % (value, part) for part in range(20)]
            queue.put_many(values)
            self.stored.update(values)
        elif kind == 3:
            if (message := queue.get()) is not None:
                message.ack()
                self.acked.add(message.value)
        elif kind == 4:
            messages = queue.get_many(10)
            if messages:
                queue.ack(messages)
                self.acked.update(message.value for message in messages)
        elif kind == 5:
            with queue.process(0.0001) as message:
                pass
            if message is not None:
                self.acked.add(message.value)
        elif kind == 6 and self.die in (self.close, self.exit):
            # Nothing ever comes here: only the signal ends it, unless Python drops what the handler raises.
            self.mq.queue("empty").get(timeout=HANG_S if self.die == self.close else 1)
        else:
            for message in queue.stream(timeout=0.0001, prefetch=self.chance.choice([1, 20])):
                message.ack()
                self.acked.add(message.value)
                if self.chance.random() < 0.3:
                    break

    # What must hold.

    def check(self, mq: Any) -> None:
        queue = mq.queue(self.queue.topic)
        with suppress(quivermq.TopicNotFound):
            there = {message.value for message in queue.read(limit=100_000)}
            lost = self.stored - there
            assert not lost, f"put and not there: {sorted(lost)[:5]}"
            again = {message.value for message in queue.get_many(100_000)} & self.acked
            assert not again, f"acked and delivered again: {sorted(again)[:5]}"
            assert queue.stats().dead_letters == 0, "a dead letter, though nothing failed"
            return
        assert not self.stored, "the topic of what was put is not there"


def main(address: str, lives: int, seed: int) -> int:
    chance = random.Random(seed)
    refused = 0

    def opened() -> Any:
        if address.startswith("http"):
            return quivermq.connect(address)
        durability: Any = chance.choice(["os", "fsync", "buffered"])
        return quivermq.open(
            address, quivermq.Settings(storage=quivermq.StorageSettings(durability=durability))
        )

    for number in range(lives):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        life = Life(opened(), f"t{seed}-{number}", chance)
        life.run()
        with opened() as mq:
            life.check(mq)
            with suppress(quivermq.TopicNotFound):
                mq.delete_topic(life.queue.topic)
            with suppress(quivermq.TopicNotFound):
                mq.delete_topic(f"{life.queue.topic}.other")
        refused += life.refused
    faulthandler.cancel_dump_traceback_later()
    print(f"{lives} lives, {refused} calls refused")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
