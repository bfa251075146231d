"""The library's producer, one `send` for each message, beside batches that somebody else has made."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import quivermq
from benchmarks.broker.load import Contender, Round, fresh_topic, in_turns, publishing, timed_here
from benchmarks.broker.quiver import QUIVER, Quiver
from benchmarks.broker.servers import DURABILITIES, started
from benchmarks.row import Goal, Row
from benchmarks.workload import Bench, batches_of
from quivermq.settings import Durability

_GOALS = {"os": Goal("at least", 300e3), "fsync": Goal("at least", 300e3)}
_PRODUCER = "producer"


def producing(bench: Bench) -> Iterable[Row]:
    """From the first `send` to the end of `flush`: everything is stored then."""
    for durability in DURABILITIES:
        yield _row(bench, durability)


def _row(bench: Bench, durability: Durability) -> Row:
    size = bench.scale.broker_batch
    batches = batches_of(size, bench.scale.broker_sent)
    with started(bench, durability, (QUIVER,)) as servers:
        quiver = cast(Quiver, servers[QUIVER.name])
        contenders: dict[str, Contender] = {
            _PRODUCER: partial(_sending, quiver, [value for batch in batches for value in batch]),
            f"put_many({size}) of the library": partial(_putting, quiver, batches),
            f"frames of {size}, ready-made": partial(_frames, bench, quiver),
        }
        best = in_turns(contenders, bench.scale.broker_rounds)
    ours = best.pop(_PRODUCER)
    limits = {name: each.rate for name, each in best.items()}
    name = f"producer.send at {durability}"
    return Row(name, "messages/s", ours.rate, limits, _GOALS[durability], ours.held_up_by)


def _sending(quiver: Quiver, values: Sequence[bytes]) -> Round:
    with fresh_topic(quiver) as topic, quivermq.connect(quiver.url) as connection:
        producer = connection.producer(topic)

        def work() -> int:
            send = producer.send
            for value in values:
                send(value)
            producer.flush()
            return len(values)

        seen = timed_here(quiver, work)
        quiver.check(topic, len(values), b"")
    return seen


def _putting(quiver: Quiver, batches: Sequence[list[bytes]]) -> Round:
    with fresh_topic(quiver) as topic, quivermq.connect(quiver.url) as connection:
        queue = connection.queue(topic)

        def work() -> int:
            for batch in batches:
                queue.put_many(batch)
            return sum(map(len, batches))

        seen = timed_here(quiver, work)
        quiver.check(topic, sum(map(len, batches)), b"")
    return seen


def _frames(bench: Bench, quiver: Quiver) -> Round:
    return publishing(
        quiver,
        lambda topic: quiver.publish_many(topic, bench.scale.broker_batch),
        connections=1,
        seconds=bench.scale.broker_s / 2,
    )
