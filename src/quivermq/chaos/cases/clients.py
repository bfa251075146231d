"""What happens to clients: the clock is set, a consumer is stopped or dies, a producer repeats itself."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from quivermq.chaos import CheckedThread, expect, wait_until
from quivermq.chaos.processes import BrokerProcess, ProcessPool, process_pool
from quivermq.chaos.system_faults import JumpingClock
from quivermq.chaos.trial import DAY_S, Trial, opened_to_look, read_all
from quivermq.clock import SystemClock
from quivermq.frame import Producer, encode
from quivermq.model.dead_letters import DeadLetter
from quivermq.opening import connect, open_directory
from quivermq.queue.connection import Connection

_TOPIC, _GROUP = "orders", "default"

# Somebody sets the machine's clock, by an hour or a year, forward or back, while a queue is in use.

_HOUR_S, _YEAR_S = 3600, 365 * DAY_S
JUMPS_S = (_HOUR_S, -_HOUR_S, _YEAR_S, -_YEAR_S)
_DELAY_S = 0.3


def clock_of_engine(trial: Trial) -> None:
    """The queue in this process."""
    clock = JumpingClock(trial.directory / "clock")
    with open_directory(trial.data, clock=clock) as opened:
        _jump(trial, clock, lambda: opened)


def clock_of_broker(trial: Trial) -> None:
    """A broker in a process of its own."""
    path = trial.directory / "clock"
    with trial.broker(clock=path) as process:
        _jump(trial, JumpingClock(path), process.connect)


def _jump(trial: Trial, clock: JumpingClock, opened: Callable[[], Connection]) -> None:
    for number in range(trial.cycles):
        trial.tried += 1
        _check_jump(opened(), partial(clock.set, JUMPS_S[number % len(JUMPS_S)]), partial(clock.set, 0))


def _check_jump(mq: Connection, jump: Callable[[], None], back: Callable[[], None]) -> None:
    """No lease is lost, nothing comes early, nothing expires that should not, and what is due does come."""
    queue, clock = mq.queue(_TOPIC, group="billing"), SystemClock()
    queue.put(b"leased")
    held = queue.get(lease=60)
    expect(held is not None, "the message is not there")
    queue.put(b"expiring", ttl=60)
    queue.put(b"much later", delay=600)
    jump()
    start = clock.monotonic()
    queue.put(b"soon", delay=_DELAY_S)
    came: dict[bytes, float] = {}

    def has_come() -> bool:
        taken = queue.get(lease=60)
        if taken is not None:
            came[taken.value] = clock.monotonic() - start
            queue.ack(taken)
        return b"soon" in came

    wait_until(has_come, "what was due did not come")
    expect(
        came.keys() == {b"expiring", b"soon"},
        f"a lease was lost, or something came that was not due: {came}",
    )
    expect(came[b"soon"] >= _DELAY_S, f"it came {_DELAY_S - came[b'soon']:.3f} s early")
    assert held is not None
    queue.ack(held)  # Raises LeaseExpired where the lease was lost.
    back()
    for scheduled in queue.scheduled():
        queue.cancel(scheduled.id)


# A consumer is stopped for longer than its lease, and then acknowledges.

_LEASE_S = 0.3


def late_in_engine(trial: Trial) -> None:
    """The process that has the queue open is stopped as a whole, its leases with it."""
    with trial.process_pool() as pool:
        for cycle in range(trial.cycles):
            _put_one(trial, cycle)
            _stop_consumer(pool, str(trial.data))
            # Longer than the lease, which is counted in time that passes for everybody.
            threading.Event().wait(_LEASE_S * 1.5)
            _go_on(pool)
            expect(pool.read() == ("again", [2]), "the message was not delivered elsewhere")
            expect(pool.read()[0] == "refused", "an ack was taken that came too late")
            pool.wait(0)
            trial.tried += 1


def late_at_broker(trial: Trial) -> None:
    """A worker of a broker is stopped; another one gets its message, and finishes it."""
    with process_pool() as workers, trial.broker() as process:
        client = process.client()
        for cycle in range(trial.cycles):
            client.publish(_TOPIC, f"message {cycle}")
            _stop_consumer(workers, process.url)
            [message] = client.receive(_TOPIC, _GROUP, wait_ms=10_000, lease_ms=60_000)
            expect(
                message["attempt"] == 2, f"delivered elsewhere, but not as the second attempt: {message}"
            )
            _go_on(workers)
            expect(workers.read()[0] == "refused", "an ack was taken that came too late")
            workers.wait(0)
            settled = client.settle("ack", _TOPIC, _GROUP, [message["receipt"]])
            expect(settled.document["results"][0]["ok"], f"its new holder cannot finish it: {settled}")
            expect(client.receive(_TOPIC, _GROUP) == [], "what is finished came again")
            trial.tried += 1


def _put_one(trial: Trial, cycle: int) -> None:
    with open_directory(trial.data) as opened:
        queue = opened.queue(_TOPIC)
        while (left := queue.get()) is not None:
            left.ack()
        queue.put(b"message %d" % cycle)


def _stop_consumer(pool: ProcessPool, place: str) -> None:
    pool.start(kind="consumer", place=place, topic=_TOPIC, lease_s=_LEASE_S)
    expect(pool.read()[0] == "took", "there is no message")
    os.kill(pool.pid, signal.SIGSTOP)


def _go_on(pool: ProcessPool) -> None:
    os.kill(pool.pid, signal.SIGUSR1)
    os.kill(pool.pid, signal.SIGCONT)


# A message that nobody survives: its worker dies, or raises, again and again.

_ATTEMPTS_MAX = 3
_CRASH_LEASE_S, _RAISE_LEASE_S = 0.1, 600.0
_POISON: dict[str, Any] = {"attempts_max": _ATTEMPTS_MAX, "backoff_ms": 1, "backoff_ms_max": 1}
_HEALTHY = "healthy"


def poison_engine(trial: Trial) -> None:
    """Each attempt is a new process, which opens the directory, takes the message, and dies or raises."""
    with trial.process_pool() as pool:
        _poison(trial, pool, str(trial.data), lambda: open_directory(trial.data))


def poison_broker(trial: Trial) -> None:
    """The same against a broker that goes on, while others get their messages."""
    with process_pool() as workers, trial.broker() as process:
        _poison(trial, workers, process.url, process.connect)


def _poison(trial: Trial, pool: ProcessPool, place: str, opened: Callable[[], Connection]) -> None:
    for cycle in range(trial.cycles):
        topic, crashes = f"t{cycle}", bool(cycle % 2)
        with opened() as mq:
            mq.create_topic(topic, **_POISON)
            mq.queue(topic).put(b"poison")
        attempts = _take_poison(pool, place, topic, crashes=crashes)
        with opened() as mq:
            letters = mq.queue(topic).dead_letters()
            expect(len(letters) == 1, f"{len(letters)} dead letters after {attempts} attempts")
            _check_letter(letters[0], crashes)
            _check_others(mq)
        trial.tried += attempts


def _take_poison(pool: ProcessPool, place: str, topic: str, *, crashes: bool) -> int:
    """Let process after process take the message, until nobody gets it any more."""
    attempts: list[int] = []
    # Who raises gives the message back itself; a lease is over only when its holder is dead.
    lease_s = _CRASH_LEASE_S if crashes else _RAISE_LEASE_S
    while len(attempts) <= _ATTEMPTS_MAX:
        pool.start(kind="poisoned", place=place, topic=topic, lease_s=lease_s, crashes=crashes)
        word, rest = pool.read()
        if word == "took":
            attempts += rest
        # A process that exits with 1 has a status of 256.
        pool.wait(256 if word == "took" and crashes else 0)
        if word == "nothing":
            break
    expect(attempts == list(range(1, _ATTEMPTS_MAX + 1)), f"delivered as attempts {attempts}")
    return len(attempts)


def _check_letter(letter: DeadLetter, crashes: bool) -> None:
    died = letter.value, letter.attempts
    expect(died == (b"poison", _ATTEMPTS_MAX), f"{died[0]!r} died after {died[1]} attempts")
    cause = letter.reason, letter.error or ""
    wanted = ("lease_expired", "") if crashes else ("ValueError", "ValueError: it tastes of almonds")
    expect(cause == wanted, f"its cause is {cause}")


def _check_others(mq: Connection) -> None:
    queue = mq.queue(_HEALTHY)
    queue.put(b"fine")
    taken = queue.get(timeout=5)
    expect(taken is not None and taken.value == b"fine", "others do not get their messages")
    if taken is not None:
        taken.ack()


# A producer repeats what was not acknowledged, across restarts.

_PRODUCER_ID = 9


def repeat_to_engine(trial: Trial) -> None:
    """The same frame is sent before and after the directory is opened again: it is there once."""
    sequence = 0
    for cycle in range(trial.cycles):
        count = trial.rng.randint(1, 5)
        values = [b"%d/%d" % (cycle, number) for number in range(count)]
        frame = bytes(encode(values, timestamp=1, producer=Producer(_PRODUCER_ID, 0, sequence)))
        offsets = []
        for attempt in range(3):
            with open_directory(trial.data) as opened:
                put = opened.queue(_TOPIC).put_frame(frame, partition=0)
            expect(put.duplicate == (attempt > 0), f"attempt {attempt} is answered {put}")
            offsets.append(put.offset)
            trial.tried += 1
        expect(offsets == [sequence] * 3, f"three attempts were given the offsets {offsets}")
        sequence += count
    with opened_to_look(trial.data) as opened:
        found = len(list(read_all(opened.queue(_TOPIC))))
        expect(found == sequence, f"{sequence} messages were sent, and {found} are there")


def repeat_to_broker(trial: Trial) -> None:
    """A producer goes on while its broker is killed and started again: everything comes once, in order."""
    with trial.broker() as process:
        producer = _ProducerThread(process)
        for _ in range(trial.cycles):
            producer.wait_for_more(trial.rng.randint(1, 400))
            process.restart()
            trial.tried += 1
        total = producer.end()
        process.stop()
    with opened_to_look(trial.data) as opened:
        values = [record.value for record in read_all(opened.queue(_TOPIC))]
    twice = [value for value, times in Counter(values).items() if times > 1]
    expect(not twice, f"doubled: {twice[:10]}")
    expect(values == [b"%d" % n for n in range(total)], f"{total} were sent, {len(values)} are there")


class _ProducerThread:
    """A thread that sends numbers in order, as fast as they are taken."""

    def __init__(self, process: BrokerProcess) -> None:
        # Not the broker's own client, which ends with it.
        self._connection = connect(process.url, retries=30)
        self._count = 0
        self._must_end = False
        self._thread = CheckedThread(self._send)

    def wait_for_more(self, count: int) -> None:
        wanted = self._count + count
        wait_until(lambda: self._count >= wanted or self._thread.is_over, "the producer does not get on")

    def end(self) -> int:
        """Stop, and return how many were sent, all of them acknowledged."""
        self._must_end = True
        self._thread.end("the producer does not end")
        self._connection.close()
        return self._count

    def _send(self) -> None:
        with self._connection.producer(_TOPIC, linger_ms=1, batch_messages=50) as producer:
            while not self._must_end:
                for _ in range(50):
                    producer.send(b"%d" % self._count)
                    self._count += 1
                producer.flush()
