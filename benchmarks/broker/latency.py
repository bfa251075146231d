"""How long a publish takes at a steady rate. A server that cannot keep up with it is later and later."""

import os
from collections.abc import Iterable

from benchmarks.broker.load import fresh_topic, run_generator, run_pacer
from benchmarks.broker.plan import PacedDone, PacedPlan, Plan
from benchmarks.broker.quiver import BARE, QUIVER
from benchmarks.broker.server import Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.row import Goal, Row, Skipped
from benchmarks.workload import Bench, short_number
from quivermq.settings import Durability

# Out of a thousand.
_PLACES = {"p50": 500, "p99": 990}
_GOALS = {("os", "p99"): Goal("below", 0.005)}


def latency(bench: Bench) -> Iterable[Row | Skipped]:
    """Counted from the moment at which a request was due, and the round with the best p99 of each."""
    for durability in DURABILITIES:
        yield from _rows(bench, durability)
    yield from missing_peers()


def _rows(bench: Bench, durability: Durability) -> Iterable[Row]:
    best: dict[str, PacedDone] = {}
    with started(bench, durability, (QUIVER, BARE, *PEERS)) as servers:
        for _ in range(bench.scale.broker_rounds):
            for name, server in servers.items():
                # What the one before has left in the page cache is not for this one to write.
                os.sync()
                seen = _round(bench, server)
                if name not in best or _at(seen, "p99") < _at(best[name], "p99"):
                    best[name] = seen
    ours = best.pop(QUIVER.name)
    late_ms = 1000 * ours.sent_s[_PLACES["p99"] - 1]
    word = f"load late by {late_ms:.2f} ms at p99"
    for place in _PLACES:
        limits = {name: _at(each, place) for name, each in best.items()}
        name = f"publish at {durability}, {short_number(bench.scale.broker_per_second)}/s: {place}"
        yield Row(name, "seconds", _at(ours, place), limits, _GOALS.get((durability, place)), word)


def _round(bench: Bench, server: Server) -> PacedDone:
    scale = bench.scale
    with fresh_topic(server) as topic:
        request = server.publish(topic)
        # Its files are there before the time runs.
        run_generator(Plan(server.port, request, 1, requests=1))
        plan = PacedPlan(
            server.port,
            request,
            scale.broker_connections,
            per_second=scale.broker_per_second,
            seconds=scale.broker_s,
        )
        done = run_pacer(plan)
        server.check(topic, done.answers + 1, done.last)
    return done


def _at(done: PacedDone, place: str) -> float:
    return done.answered_s[_PLACES[place] - 1]
