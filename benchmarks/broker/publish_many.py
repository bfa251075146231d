"""Batches from one connection: our frames, beside single messages that do not wait for each other."""

from collections.abc import Iterable
from functools import partial

from benchmarks.broker.load import Round, in_turns, publishing
from benchmarks.broker.quiver import BARE, QUIVER
from benchmarks.broker.server import Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.row import Goal, Row, Skipped
from benchmarks.workload import Bench

# Half a round is enough: a second of it writes 200 MB or more.
_GOAL = Goal("at least", 2e6)


def publish_many(bench: Bench) -> Iterable[Row | Skipped]:
    """A frame is encoded once, and the next one sent when the last is answered."""
    for durability in DURABILITIES:
        with started(bench, durability, (QUIVER, BARE, *PEERS)) as servers:
            contenders = {name: partial(_round, bench, server) for name, server in servers.items()}
            best = in_turns(contenders, bench.scale.broker_rounds)
        ours = best.pop(QUIVER.name)
        limits = {name: each.rate for name, each in best.items()}
        name = f"frames of {bench.scale.broker_batch} at {durability}"
        yield Row(name, "messages/s", ours.rate, limits, _GOAL, ours.held_up_by)
    yield from missing_peers()


def _round(bench: Bench, server: Server) -> Round:
    return publishing(
        server,
        lambda topic: server.publish_many(topic, bench.scale.broker_batch),
        connections=1,
        seconds=bench.scale.broker_s / 2,
    )
