"""A producer repeats what was not acknowledged, across restarts of the broker."""

import threading
from collections import Counter

from quivermq.chaos.broker import BrokerProcess, broker
from quivermq.chaos.expectation import expect
from quivermq.chaos.http import PATIENCE_S
from quivermq.chaos.trial import Trial, opened_to_look, read_all
from quivermq.client import connect
from quivermq.engine import open_engine
from quivermq.frame import Producer, encode

_TOPIC = "orders"
_ID = 9


def engine(trial: Trial) -> None:
    """The same frame is sent before and after the directory is opened again: it is there once."""
    sequence = 0
    for cycle in range(trial.cycles):
        count = trial.rng.randint(1, 5)
        values = [b"%d/%d" % (cycle, number) for number in range(count)]
        frame = bytes(encode(values, timestamp=1, producer=Producer(_ID, 0, sequence)))
        offsets = []
        for attempt in range(3):
            with open_engine(trial.data) as opened:
                put = opened.queue(_TOPIC).put_frame(frame, partition=0)
            expect(put.duplicate == (attempt > 0), f"attempt {attempt} is told {put}")
            offsets.append(put.offset)
            trial.tried += 1
        expect(offsets == [sequence] * 3, f"three attempts were given the offsets {offsets}")
        sequence += count
    with opened_to_look(trial.data) as opened:
        found = len(list(read_all(opened.queue(_TOPIC))))
        expect(found == sequence, f"{sequence} messages were sent, and {found} are there")


def over_http(trial: Trial) -> None:
    """A producer goes on while its broker is killed and started again: everything comes once, in order."""
    with trial.nursery() as lives, broker(lives, trial.data) as process:
        sent = _Sent(process)
        for _ in range(trial.cycles):
            sent.wait_for_more(trial.rng.randint(1, 400))
            process.restart()
            trial.tried += 1
        total = sent.end()
        process.stop()
    with opened_to_look(trial.data) as opened:
        values = [record.value for record in read_all(opened.queue(_TOPIC))]
    twice = [value for value, times in Counter(values).items() if times > 1]
    expect(not twice, f"doubled: {twice[:10]}")
    expect(values == [b"%d" % n for n in range(total)], f"{total} were sent, {len(values)} are there")


class _Sent:
    """A thread that sends numbers in order, as fast as they are taken."""

    def __init__(self, process: BrokerProcess) -> None:
        # Not the broker's own client, which ends with it.
        self._connection = connect(process.url, retries=30)
        self._count = 0
        self._more = threading.Condition()
        self._is_over = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_more(self, count: int) -> None:
        with self._more:
            wanted = self._count + count
            expect(
                self._more.wait_for(lambda: self._count >= wanted or self._error is not None, PATIENCE_S),
                "the producer does not get on",
            )

    def end(self) -> int:
        """Stop, and return how many were sent, all of them acknowledged."""
        self._is_over = True
        self._thread.join(PATIENCE_S)
        expect(not self._thread.is_alive(), "the producer does not end")
        if self._error is not None:
            raise self._error
        self._connection.close()
        return self._count

    def _run(self) -> None:
        try:
            with self._connection.producer(_TOPIC, linger_ms=1, batch_messages=50) as producer:
                while not self._is_over:
                    for _ in range(50):
                        producer.send(b"%d" % self._count)
                        self._count += 1
                    producer.flush()
                    with self._more:
                        self._more.notify_all()
        except BaseException as error:
            self._error = error
            with self._more:
                self._more.notify_all()
