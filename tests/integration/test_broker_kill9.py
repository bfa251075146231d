"""kill -9 of a real broker under load: what a client was told is true when the broker is back.

The clients here are the standard library's, which know nothing of the project. QUIVER_KILLS says how often.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.threads import PATIENCE_S

import quivermq
from quivermq.frame import encode

COMMAND = Path(sys.executable).with_name("quiver")
KILLS = max(2, int(os.environ.get("QUIVER_KILLS", "200")) // 25)
PUBLISHERS = 4
WORKERS = 3
TOPIC = "/v1/topics/orders"
GROUP = f"{TOPIC}/groups/billing"


@contextmanager
def broker(path: Path, durability: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """A broker that runs, and its port."""
    with subprocess.Popen(
        [COMMAND, "serve", "--data", str(path), "--port", "0"],
        env={**os.environ, "QUIVER_STORAGE__DURABILITY": durability},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            found = next(
                match for line in lines if (match := re.search(r"http://127\.0\.0\.1:(\d+)", line))
            )
            yield int(found[1]), process
        finally:
            process.kill()


@dataclass
class Promises:
    """What clients asked for, and what they were told."""

    tried: set[str] = field(default_factory=set)
    put: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)
    maybe_acked: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    """One connection. A call that the broker did not live to answer raises."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def post(self, path: str, body: bytes, content_type: str = "application/json") -> dict[str, Any]:
        self._connection.request("POST", path, body, {"Content-Type": content_type})
        response = self._connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        assert response.status == 200, answer
        return answer

    def close(self) -> None:
        self._connection.close()


def publish(client: Client, promises: Promises, names: Iterator[int], rng: Random) -> None:
    """Put messages in every way there is, until the broker is gone."""
    while True:
        batch = [f"m{next(names)}" for _ in range(rng.choice((1, 1, 5, 50)))]
        with promises.lock:
            promises.tried.update(batch)
        if len(batch) == 1 and rng.random() < 0.5:
            client.post(f"{TOPIC}/messages", batch[0].encode(), "text/plain")
        elif len(batch) < 50:
            client.post(
                f"{TOPIC}/messages", json.dumps({"messages": [{"value": v} for v in batch]}).encode()
            )
        else:
            frame = encode([value.encode() for value in batch], timestamp=1)
            client.post(f"{TOPIC}/messages", bytes(frame), "application/vnd.quiver.frame")
        with promises.lock:
            promises.put.update(batch)


def work(client: Client, promises: Promises) -> None:
    """Take messages and acknowledge them, until the broker is gone."""
    while True:
        messages = client.post(f"{GROUP}/receive", b'{"max": 20, "wait_ms": 1000, "lease_ms": 3600000}')[
            "messages"
        ]
        values = {message["value"] for message in messages}
        with promises.lock:
            again = values & promises.acked
            if again:
                promises.wrong.append(f"acknowledged, and delivered again: {again}")
            promises.maybe_acked |= values
        if messages:
            client.post(f"{GROUP}/ack", json.dumps({"receipts": [m["receipt"] for m in messages]}).encode())
            with promises.lock:
                promises.acked |= values


def until_gone(act: Any, port: int, promises: Promises, *rest: Any) -> None:
    client = Client(port)
    try:
        act(client, promises, *rest)
    except (OSError, HTTPException):
        # The broker was killed: of the last call nobody knows anything.
        return
    except Exception as error:
        promises.wrong.append(repr(error))
    finally:
        client.close()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path, durability: str) -> None:
    promises, names, rng = Promises(), count(), Random(durability)
    for life in range(KILLS):
        with broker(tmp_path, durability) as (port, process):
            threads = [
                threading.Thread(
                    target=until_gone, args=(publish, port, promises, names, Random(f"{life}/{n}"))
                )
                for n in range(PUBLISHERS)
            ]
            threads += [
                threading.Thread(target=until_gone, args=(work, port, promises)) for _ in range(WORKERS)
            ]
            for thread in threads:
                thread.start()
            before = len(promises.put)
            while len(promises.put) < before + 500 and not promises.wrong:
                threading.Event().wait(rng.uniform(0.01, 0.05))
            process.send_signal(signal.SIGKILL)
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
        assert promises.wrong == []
    # A day later no lease holds any more.
    clock = ManualClock(time.time_ns() // 1000 + 24 * 3600 * 1_000_000)
    with quivermq.open(tmp_path, clock=clock, scheduler=ManualScheduler(clock)) as engine:
        queue = engine.queue("orders", group="billing")
        stored = Counter(record.value.decode() for record in queue.read(0, 0, 100_000))
        left = {delivery.value.decode() for delivery in queue.get_many(100_000)}
        assert engine.verify().is_sound
    assert promises.put.keys() - stored.keys() == set(), "lost"
    assert stored.keys() <= promises.tried
    assert max(stored.values()) == 1, "stored twice"
    assert left.isdisjoint(promises.acked), "acknowledged, and delivered again"
    assert promises.put.keys() - promises.maybe_acked <= left, "stored, but nobody gets it"
    assert promises.acked
