"""Publishes over HTTP, and knows of every message whether it has to be there, may be, or must not."""

from collections import defaultdict
from itertools import count

from quivermq.chaos.expectation import expect
from quivermq.chaos.http import Answer, Caller

_MANY = 100_000
# The disk took nothing of it.
_REFUSED = {"disk_full", "disk_refused", "overloaded"}


class Publisher:
    """The messages of one topic, each with a value of its own."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._numbers = count()
        self.promised: dict[int, list[str]] = defaultdict(list)
        self._refused: set[str] = set()

    def publish(self, caller: Caller, partition: int = 0) -> Answer:
        """Publish one more message."""
        value = f"message {next(self._numbers)}"
        answer = caller.publish(self.topic, value, partition=partition)
        if answer.is_done:
            self.promised[partition].append(value)
        elif answer.code in _REFUSED:
            self._refused.add(value)
        return answer

    def check(self, caller: Caller) -> None:
        """What was promised is there, once and in order; what was refused is not."""
        for partition, promised in self.promised.items():
            found = caller.values(self.topic, partition, _MANY)
            expect(len(set(found)) == len(found), f"something is there twice: {found}")
            kept = [value for value in found if value in set(promised)]
            expect(kept == promised, f"partition {partition} has {kept}, and {promised} were acknowledged")
            expect(self._refused.isdisjoint(found), "something is there that was refused")
