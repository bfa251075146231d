"""A crowd of simple clients beside a worker: many publish and take at once, until their broker is gone.

They are the standard library's, which know nothing of the project.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPException
from itertools import count
from pathlib import Path
from random import Random

from quivermq.chaos.broker import BrokerProcess
from quivermq.chaos.expectation import Unkept, expect
from quivermq.chaos.http import PATIENCE_S, Caller
from quivermq.chaos.trial import opened_to_look, read_all
from quivermq.frame import encode

_TOPIC, _GROUP = "orders", "billing"
_PUBLISHERS, _CONSUMERS = 3, 2
_FRAME = "application/vnd.quiver.frame"


class Bystanders:
    """What they asked for, and what they were told."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._names = count()
        self._lock = threading.Lock()
        self.tried: set[str] = set()
        self.put: set[str] = set()
        self.acked: set[str] = set()
        self.maybe_acked: set[str] = set()
        self._wrong: list[BaseException] = []

    @contextmanager
    def at_work(self, process: BrokerProcess) -> Iterator[None]:
        """They work until the broker is gone, which it has to be when this ends."""
        acts = [
            partial(self._publish, Random(f"{self._seed}/{n}/{process.pid}")) for n in range(_PUBLISHERS)
        ]
        threads = [
            threading.Thread(target=self._until_gone, args=(act, process.port), daemon=True)
            for act in (*acts, *[self._consume] * _CONSUMERS)
        ]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join(PATIENCE_S)
            expect(not thread.is_alive(), "a client waits for a broker that is gone")
        if self._wrong:
            raise self._wrong[0]

    def _until_gone(self, act: "partial[None]", port: int) -> None:
        try:
            with closing(Caller(port)) as caller:
                while True:
                    act(caller)
        except (OSError, HTTPException):
            # Of the last call nobody knows anything.
            return
        except BaseException as error:
            self._wrong.append(error)

    def _publish(self, rng: Random, caller: Caller) -> None:
        """Put messages in one of the ways there are."""
        names = [f"m{next(self._names)}" for _ in range(rng.choice((1, 1, 5, 50)))]
        with self._lock:
            self.tried.update(names)
        path = f"/v1/topics/{_TOPIC}/messages"
        if len(names) == 1 and rng.random() < 0.5:
            answer = caller.call("POST", path, names[0].encode(), content_type="text/plain")
        elif len(names) < 50:
            answer = caller.call("POST", path, {"messages": [{"value": name} for name in names]})
        else:
            frame = bytes(encode([name.encode() for name in names], timestamp=1))
            answer = caller.call("POST", path, frame, content_type=_FRAME)
        expect(answer.is_done, f"a publish was refused: {answer}")
        with self._lock:
            self.put.update(names)

    def _consume(self, caller: Caller) -> None:
        """Take messages and acknowledge them."""
        messages = caller.receive(_TOPIC, _GROUP, 20, wait_ms=1000, lease_ms=3_600_000)
        values = {message["value"] for message in messages}
        with self._lock:
            again = values & self.acked
            if again:
                raise Unkept(f"acknowledged, and delivered again: {sorted(again)[:10]}")
            self.maybe_acked |= values
        if messages:
            answer = caller.settle("ack", _TOPIC, _GROUP, [message["receipt"] for message in messages])
            expect(answer.is_done, f"an ack was refused: {answer}")
            with self._lock:
                self.acked |= values

    def check(self, path: Path) -> None:
        """Everything that was put is there once, and comes to somebody unless it was acknowledged."""
        with opened_to_look(path, later_s=24 * 3600) as engine:
            if _TOPIC not in engine.topics():
                expect(not self.put, "the topic is gone")
                return
            queue = engine.queue(_TOPIC, group=_GROUP)
            stored = Counter(record.value.decode() for record in read_all(queue))
            left: set[str] = set()
            while taken := queue.get_many(10_000):
                left.update(delivery.value.decode() for delivery in taken)
        expect(self.put <= stored.keys(), f"lost: {sorted(self.put - stored.keys())[:10]}")
        expect(stored.keys() <= self.tried, "something is there that nobody put")
        expect(not stored or max(stored.values()) == 1, f"stored twice: {stored.most_common(3)}")
        expect(left.isdisjoint(self.acked), "acknowledged, and delivered again")
        expect(self.put - self.maybe_acked <= left, "stored, but nobody gets it")
