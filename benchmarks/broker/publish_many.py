"""Batches from one connection: our frames, beside single messages that do not wait for each other."""

from collections.abc import Iterable
from functools import partial

from benchmarks.broker.load import Contender, Round, in_turns, publishing
from benchmarks.broker.quiver import BARE, QUIVER
from benchmarks.broker.server import Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.race import Race, Subject, itself
from benchmarks.row import Goal, Skipped
from benchmarks.shape import Shape
from benchmarks.workload import Bench

_GOAL = Goal("at least", 2e6)


def publish_many(bench: Bench) -> Iterable[Race | Skipped]:
    """A frame is encoded once, and the next one sent when the last is answered."""
    for durability in DURABILITIES:
        name = f"frames of {bench.scale.broker_batch} at {durability}"
        subject = Subject(name, QUIVER.name, _GOAL, figure=itself)
        with started(bench, durability, (QUIVER, BARE, *PEERS)) as servers:
            yield Race(partial(_contenders, bench, servers), [subject], in_turns(bench.scale.broker_rounds))
    yield from missing_peers(bench)


def _contenders(bench: Bench, servers: dict[str, Server], shape: Shape) -> dict[str, Contender]:
    return {name: partial(frames_round, bench, server, shape) for name, server in servers.items()}


def frames_round(bench: Bench, server: Server, shape: Shape) -> Round:
    """Half a round is enough: a second of it writes 200 MB or more."""
    return publishing(
        server,
        lambda topic: server.publish_many(topic, bench.scale.broker_batch, shape),
        connections=1,
        seconds=bench.scale.broker_s / 2,
    )
