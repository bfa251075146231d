"""A consumer is stopped for longer than its lease, and then acknowledges."""

import os
import signal

from quivermq.chaos.broker import LIVES, broker
from quivermq.chaos.expectation import expect
from quivermq.chaos.nursery import Nursery, nursery
from quivermq.chaos.trial import Trial, wait_until
from quivermq.clock import SystemClock
from quivermq.engine import open_engine

_TOPIC, _GROUP = "orders", "default"
_LEASE_S = 0.3


def engine(trial: Trial) -> None:
    """The process that has the queue open is stopped as a whole, its leases with it."""
    with trial.nursery() as lives:
        for cycle in range(trial.cycles):
            _put_one(trial, cycle)
            lives.begin(kind="consumer", place=str(trial.data), topic=_TOPIC, lease_s=_LEASE_S)
            expect(lives.read()[0] == "took", "there is no message")
            os.kill(lives.pid, signal.SIGSTOP)
            # Longer than the lease, which is counted in time that passes for everybody.
            _pass(_LEASE_S * 1.5)
            _go_on(lives)
            expect(lives.read() == ("again", [2]), "the message was not delivered elsewhere")
            expect(lives.read()[0] == "refused", "an ack was taken that came too late")
            list(lives.last_words(0))
            trial.tried += 1


def over_http(trial: Trial) -> None:
    """A worker of a broker is stopped; another one gets its message, and finishes it."""
    with trial.nursery() as lives, nursery(LIVES) as workers, broker(lives, trial.data) as process:
        caller = process.caller()
        for cycle in range(trial.cycles):
            caller.publish(_TOPIC, f"message {cycle}")
            workers.begin(kind="consumer", place=process.url, topic=_TOPIC, lease_s=_LEASE_S)
            expect(workers.read()[0] == "took", "there is no message")
            os.kill(workers.pid, signal.SIGSTOP)
            [message] = caller.receive(_TOPIC, _GROUP, wait_ms=10_000, lease_ms=60_000)
            expect(
                message["attempt"] == 2, f"delivered elsewhere, but not as the second attempt: {message}"
            )
            _go_on(workers)
            expect(workers.read()[0] == "refused", "an ack was taken that came too late")
            list(workers.last_words(0))
            settled = caller.settle("ack", _TOPIC, _GROUP, [message["receipt"]])
            expect(settled.document["results"][0]["ok"], f"its new holder cannot finish it: {settled}")
            expect(caller.receive(_TOPIC, _GROUP) == [], "what is finished came again")
            trial.tried += 1


def _put_one(trial: Trial, cycle: int) -> None:
    with open_engine(trial.data) as opened:
        queue = opened.queue(_TOPIC)
        while (left := queue.get()) is not None:
            left.ack()
        queue.put(b"message %d" % cycle)


def _go_on(lives: Nursery) -> None:
    os.kill(lives.pid, signal.SIGUSR1)
    os.kill(lives.pid, signal.SIGCONT)


def _pass(seconds: float) -> None:
    clock = SystemClock()
    end = clock.monotonic() + seconds
    wait_until(lambda: clock.monotonic() >= end, "time stands still")
