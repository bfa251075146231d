"""Receive and ack in batches of 100, by the library's consumer and by plain ones of the peers."""

from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter, process_time
from typing import cast

from benchmarks import stores
from benchmarks.broker.load import Contender, Round, fill, fresh_topic, in_turns, round_of, timed_here
from benchmarks.broker.quiver import QUIVER, Quiver, StreamConsumer
from benchmarks.broker.server import Consumer, Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.messages import random_messages
from benchmarks.race import Race, Subject, itself
from benchmarks.row import Goal, Skipped
from benchmarks.shape import Shape
from benchmarks.workload import Bench, fresh_directory
from quivermq.settings import Durability

_BATCH = 100
_WHOLE, _STREAM = f"get_many({_BATCH}) + ack", f"stream(prefetch={_BATCH})"
_EMBEDDED = "the same without a broker"
_GOALS = {"os": Goal("at least", 200e3), "fsync": None}

# Becomes a member of the group of a topic.
_Opens = Callable[[str, Shape], Consumer]


def consuming(bench: Bench) -> Iterable[Race | Skipped]:
    """All messages of a topic, that were put in batches as large, or ten times as large."""
    for durability in DURABILITIES:
        with started(bench, durability, (QUIVER, *PEERS)) as servers:
            goal = _GOALS[durability]
            subjects = [
                Subject(f"{name} at {durability}", name, goal, figure=itself)
                for name in (_WHOLE, _parts(bench), _STREAM)
            ]
            run = in_turns(bench.scale.broker_rounds)
            yield Race(partial(_contenders, bench, durability, servers), subjects, run)
    yield from missing_peers(bench)


def _parts(bench: Bench) -> str:
    return f"get_many({_BATCH}) of {bench.scale.broker_batch}s"


def _contenders(
    bench: Bench, durability: Durability, servers: dict[str, Server], shape: Shape
) -> dict[str, Contender]:
    put = bench.scale.broker_batch
    quiver = cast(Quiver, servers[QUIVER.name])
    # Before they are taken they have to be put, and a peer that syncs each takes long over that.
    count = bench.scale.broker_taken // (10 if durability == "fsync" else 1)

    def taking(server: Server, opens: _Opens, put: int) -> Contender:
        return partial(_round, bench, server, opens, count, put, shape)

    return {
        _WHOLE: taking(quiver, quiver.consumer, _BATCH),
        _parts(bench): taking(quiver, quiver.consumer, put),
        _STREAM: taking(quiver, partial(_streaming, quiver), put),
        _EMBEDDED: partial(_embedded, bench, durability, count, shape),
        **{name: taking(each, each.consumer, put) for name, each in servers.items() if each is not quiver},
    }


def _round(bench: Bench, server: Server, opens: _Opens, count: int, put: int, shape: Shape) -> Round:
    with fresh_topic(server) as topic:
        fill(server, topic, count, put, shape)
        server.add_group(topic)
        consumer = opens(topic, shape)
        try:
            until = perf_counter() + bench.scale.broker_s
            seen = timed_here(server, lambda: consumer.take(count, _BATCH, until))
        finally:
            consumer.close()
        settled = server.settled(topic)
        if settled != seen.messages:
            raise RuntimeError(f"{seen.messages} were acked, and {server.name} knows of {settled}")
    return seen


def _streaming(quiver: Quiver, topic: str, shape: Shape) -> Consumer:
    return StreamConsumer(quiver.url, topic, shape)


def _embedded(bench: Bench, durability: Durability, count: int, shape: Shape) -> Round:
    """What the queue does for it, in this process."""
    batch = random_messages(bench.scale.broker_batch, shape)
    with fresh_directory(bench.place) as path:
        store = stores.Quiver(path, durability, shape)
        store.put_batches([batch] * (count // len(batch)))
        start, used = perf_counter(), process_time()
        taken = store.take_batches(count, _BATCH)
        seconds, load_s = perf_counter() - start, process_time() - used
        store.close()
    return round_of(len(taken), seconds, server_s=0, load_s=load_s, is_load_ours=True)
