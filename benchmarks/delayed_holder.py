"""A process in which delayed messages wait: `python -m benchmarks.delayed_holder PATH TASK NUMBER SHAPE`.

It tells the most memory it ever had, measured before it looks whether all messages are there.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from operator import itemgetter
from pathlib import Path
from random import Random

import quivermq
from benchmarks.measure import Usage, now
from benchmarks.memory_reader import STATUS
from benchmarks.messages import AnyMessage, dressed
from benchmarks.shape import MESSAGE_BYTES, Shape

_TOPIC = "bench"
_BATCH = 1000
_SAMPLE = 1000
_SEED = 3
# Due in no order, all of them long after the end of this process.
_EARLIEST_S, _LATEST_S = 24 * 3600, 48 * 3600


def main() -> None:
    path, task, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    shape: Shape = "real" if sys.argv[4] == "real" else "plain"
    before = now()
    if task == "list":
        messages = [
            message for part in _parts(number) for message in dressed([value for value, _ in part], shape)
        ]
        _tell(before)
        assert len(messages) == number
        return
    with quivermq.open(path) as engine:
        if task == "put":
            engine.create_topic(_TOPIC, durability="os")
            _put(engine, number, shape)
        queue = engine.queue(_TOPIC)
        # Asked before the memory is looked at: nothing may be left for later.
        stats, message = queue.stats(), queue.get()
        _tell(before)
        if (stats.delayed, stats.pending) != (number, 0) or message is not None:
            raise RuntimeError(f"{number} messages were delayed, now {stats}")
        _check_next(queue, number)


def _put(engine: quivermq.Connection, number: int, shape: Shape) -> None:
    queue = engine.queue(_TOPIC)
    for part in _parts(number):
        values, delays = zip(*part, strict=True)
        queue.put_many([_delayed(*each) for each in zip(dressed(values, shape), delays, strict=True)])


def _delayed(message: AnyMessage, delay: float) -> quivermq.Message:
    if isinstance(message, bytes):
        return quivermq.Message(message, delay=delay)
    return message._replace(delay=delay)


def _parts(number: int) -> Iterator[list[tuple[bytes, float]]]:
    messages = _messages(number)
    while part := list(islice(messages, _BATCH)):
        yield part


def _messages(number: int) -> Iterator[tuple[bytes, float]]:
    random = Random(_SEED)
    for place in range(number):
        value = place.to_bytes(8, "big") + random.randbytes(MESSAGE_BYTES - 8)
        yield value, random.uniform(_EARLIEST_S, _LATEST_S)


def _check_next(queue: quivermq.Queue, number: int) -> None:
    """The first to come are those of the shortest delays."""
    first = {message.value for message in queue.scheduled(_SAMPLE)}
    by_delay = sorted(_messages(number), key=itemgetter(1))
    # A message that was put later is due later, so the order of the delays is not quite theirs.
    expected = {value for value, _ in by_delay[: 10 * _SAMPLE]}
    if len(first) != min(_SAMPLE, number) or not first <= expected:
        raise RuntimeError("what is scheduled next is not what had the shortest delays")


def _tell(before: Usage) -> None:
    fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    print(json.dumps({"resident": 1024 * int(fields["VmHWM"].split()[0]), "usage": asdict(now() - before)}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
