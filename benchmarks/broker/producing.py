"""The library's producer, one `send` for each message, beside batches that somebody else has made."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import quivermq
from benchmarks.broker.load import Contender, Round, fresh_topic, in_turns, timed_here
from benchmarks.broker.publish_many import frames_round
from benchmarks.broker.quiver import QUIVER, Quiver
from benchmarks.broker.servers import DURABILITIES, started
from benchmarks.messages import AnyMessage, batches_of
from benchmarks.race import Race, Subject, itself
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.workload import Bench

_GOALS = {"os": Goal("at least", 300e3), "fsync": Goal("at least", 300e3)}
_PRODUCER = "producer"


def producing(bench: Bench) -> Iterable[Race]:
    """From the first `send` to the end of `flush`: everything is stored then."""
    for durability in DURABILITIES:
        subject = Subject(f"producer.send at {durability}", _PRODUCER, _GOALS[durability], figure=itself)
        with started(bench, durability, (QUIVER,)) as servers:
            contenders = partial(_contenders, bench, cast(Quiver, servers[QUIVER.name]))
            yield Race(contenders, [subject], in_turns(bench.scale.broker_rounds))


def _contenders(bench: Bench, quiver: Quiver, shape: Shape) -> dict[str, Contender]:
    size = bench.scale.broker_batch
    batches = batches_of(size, bench.scale.broker_sent, shape)
    return {
        _PRODUCER: partial(_sending, quiver, [message for batch in batches for message in batch]),
        f"put_many({size}) of the library": partial(_putting, quiver, batches),
        f"frames of {size}, ready-made": partial(frames_round, bench, quiver, shape),
    }


def _sending(quiver: Quiver, messages: Sequence[AnyMessage]) -> Round:
    with fresh_topic(quiver) as topic, quivermq.connect(quiver.url) as connection:
        producer = connection.producer(topic)

        def work() -> int:
            send = producer.send
            for message in messages:
                if isinstance(message, bytes):
                    send(message)
                else:
                    # A producer stamps messages itself.
                    send(message.value, message.key, message.headers)
            producer.flush()
            return len(messages)

        seen = timed_here(quiver, work)
        quiver.check(topic, len(messages), b"")
    return seen


def _putting(quiver: Quiver, batches: Sequence[list[AnyMessage]]) -> Round:
    with fresh_topic(quiver) as topic, quivermq.connect(quiver.url) as connection:
        queue = connection.queue(topic)

        def work() -> int:
            for batch in batches:
                queue.put_many(batch)
            return sum(map(len, batches))

        seen = timed_here(quiver, work)
        quiver.check(topic, sum(map(len, batches)), b"")
    return seen
