"""How long a publish takes at a steady rate. A server that cannot keep up with it is later and later."""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from benchmarks.broker.load import fresh_topic, run_generator, run_pacer
from benchmarks.broker.plan import PacedDone, PacedPlan, Plan
from benchmarks.broker.processes import cpu_s
from benchmarks.broker.quiver import BARE, QUIVER
from benchmarks.broker.server import Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.race import Entry, Race, Run, Subject
from benchmarks.row import Figure, Goal, Skipped
from benchmarks.shape import Shape
from benchmarks.workload import Bench, short_number

# Out of a thousand.
_PLACES = {"p50": 500, "p99": 990}
_GOALS = {("os", "p99"): Goal("below", 0.005)}

# What came of a round, and what a request of it took of the server's CPU.
_Round = tuple[PacedDone, float]


def latency(bench: Bench) -> Iterable[Race | Skipped]:
    """Counted from the moment at which a request was due, and the round with the best p99 of each."""
    name = f"{short_number(bench.scale.broker_per_second)}/s"
    for durability in DURABILITIES:
        subjects = [
            Subject(
                f"publish at {durability}, {name}: {place}",
                QUIVER.name,
                _GOALS.get((durability, place)),
                figure=partial(_figure, place),
            )
            for place in _PLACES
        ]
        with started(bench, durability, (QUIVER, BARE, *PEERS)) as servers:
            contenders = partial(_contenders, bench, servers)
            yield Race(contenders, subjects, _in_turns(bench.scale.broker_rounds), unit="seconds")
    yield from missing_peers(bench)


def _contenders(bench: Bench, servers: dict[str, Server], shape: Shape) -> dict[str, Callable[[], _Round]]:
    return {name: partial(_round, bench, server, shape) for name, server in servers.items()}


def _in_turns(rounds: int) -> Run:
    def run(entered: Mapping[Entry, Callable[[], _Round]]) -> dict[Entry, _Round]:
        best: dict[Entry, _Round] = {}
        for _ in range(rounds):
            for entry, contender in entered.items():
                # What the one before has left in the page cache is not for this one to write.
                os.sync()
                seen = contender()
                if entry not in best or _at(seen[0], "p99") < _at(best[entry][0], "p99"):
                    best[entry] = seen
        return best

    return run


def _round(bench: Bench, server: Server, shape: Shape) -> _Round:
    scale = bench.scale
    with fresh_topic(server) as topic:
        request = server.publish(topic, shape)
        # Its files are there before the time runs.
        run_generator(Plan(server.port, request, 1, requests=1))
        plan = PacedPlan(
            server.port,
            request,
            scale.broker_connections,
            per_second=scale.broker_per_second,
            seconds=scale.broker_s,
        )
        before = cpu_s(server.pid)
        done = run_pacer(plan)
        used = cpu_s(server.pid) - before
        server.check(topic, done.answers + 1, done.last)
    return done, used / done.answers


def _figure(place: str, seen: _Round) -> Figure:
    done, used_s = seen
    late_ms = 1000 * done.sent_s[_PLACES["p99"] - 1]
    return Figure(_at(done, place), used_s, f"load late by {late_ms:.2f} ms at p99")


def _at(done: PacedDone, place: str) -> float:
    return done.answered_s[_PLACES[place] - 1]
