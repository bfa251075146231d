"""Receive and ack in batches of 100, by the library's consumer and by plain ones of the peers."""

from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import cast

from benchmarks import stores
from benchmarks.broker.load import Contender, Round, fill, fresh_topic, in_turns, round_of, timed_here
from benchmarks.broker.quiver import QUIVER, Quiver, StreamConsumer
from benchmarks.broker.server import Consumer, Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.row import Goal, Row, Skipped
from benchmarks.workload import Bench, fresh_directory, random_messages
from quivermq.settings import Durability

_BATCH = 100
_WHOLE, _STREAM = f"get_many({_BATCH}) + ack", f"stream(prefetch={_BATCH})"
_EMBEDDED = "the same without a broker"
_GOALS = {"os": Goal("at least", 200e3), "fsync": None}


def consuming(bench: Bench) -> Iterable[Row | Skipped]:
    """All messages of a topic, that were put in batches as large, or ten times as large."""
    for durability in DURABILITIES:
        yield from _rows(bench, durability)
    yield from missing_peers()


def _rows(bench: Bench, durability: Durability) -> Iterable[Row]:
    with started(bench, durability, (QUIVER, *PEERS)) as servers:
        put = bench.scale.broker_batch
        parts = f"get_many({_BATCH}) of {put}s"
        quiver = cast(Quiver, servers.pop(QUIVER.name))
        stream = partial(_streaming, quiver)
        # Before they are taken they have to be put, and a peer that syncs each takes long over that.
        count = bench.scale.broker_taken // (10 if durability == "fsync" else 1)
        contenders: dict[str, Contender] = {
            _WHOLE: partial(_round, bench, quiver, quiver.consumer, count, _BATCH),
            parts: partial(_round, bench, quiver, quiver.consumer, count, put),
            _STREAM: partial(_round, bench, quiver, stream, count, put),
            _EMBEDDED: partial(_embedded, bench, durability, count),
        }
        for name, server in servers.items():
            contenders[name] = partial(_round, bench, server, server.consumer, count, put)
        best = in_turns(contenders, bench.scale.broker_rounds)
    limits = {name: best[name].rate for name in (_EMBEDDED, *servers)}
    for name in (_WHOLE, parts, _STREAM):
        ours = best[name]
        goal = _GOALS[durability]
        yield Row(f"{name} at {durability}", "messages/s", ours.rate, limits, goal, ours.held_up_by)


def _round(bench: Bench, server: Server, opens: Callable[[str], Consumer], count: int, put: int) -> Round:
    with fresh_topic(server) as topic:
        fill(server, topic, count, put)
        server.add_group(topic)
        consumer = opens(topic)
        try:
            until = perf_counter() + bench.scale.broker_s
            seen = timed_here(server, lambda: consumer.take(count, _BATCH, until))
        finally:
            consumer.close()
        settled = server.settled(topic)
        if settled != seen.messages:
            raise RuntimeError(f"{seen.messages} were acked, and {server.name} knows of {settled}")
    return seen


def _streaming(quiver: Quiver, topic: str) -> Consumer:
    return StreamConsumer(quiver.url, topic)


def _embedded(bench: Bench, durability: Durability, count: int) -> Round:
    """What the queue does for it, in this process."""
    batch = random_messages(bench.scale.broker_batch)
    with fresh_directory(bench.place) as path:
        store = stores.Quiver(path, durability)
        store.put_batches([batch] * (count // len(batch)))
        start = perf_counter()
        values = store.take_batches(count, _BATCH)
        seconds = perf_counter() - start
        store.close()
    return round_of(len(values), seconds, server_s=0, load_s=0)
