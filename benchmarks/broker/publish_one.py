"""Single publishes over many connections, each answered before the next one on its connection."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from benchmarks.broker import wrk
from benchmarks.broker.load import Contender, in_turns, publishing
from benchmarks.broker.quiver import BARE, QUIVER, Quiver
from benchmarks.broker.request import Request
from benchmarks.broker.server import Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.race import Race, Subject, itself
from benchmarks.row import Goal, Skipped
from benchmarks.shape import Shape
from benchmarks.workload import Bench
from quivermq.settings import Durability

_GOALS = {"os": Goal("at least", 30e3), "fsync": Goal("at least", 15e3)}
_JSON = "JSON"
_WRK, _WRK_BARE = "wrk", f"{BARE.name}, wrk"


def publish_one(bench: Bench) -> Iterable[Race | Skipped]:
    """Raw and as JSON, beside our HTTP alone and the peers; and raw with `wrk` for a generator."""
    for durability in DURABILITIES:
        with started(bench, durability, (QUIVER, BARE, *PEERS)) as servers:
            subjects = _subjects(bench, durability)
            yield Race(partial(_contenders, bench, servers), subjects, in_turns(bench.scale.broker_rounds))
    yield from missing_peers(bench)
    if reason := wrk.obstacle():
        yield Skipped("raw, wrk", reason)


def _subjects(bench: Bench, durability: Durability) -> list[Subject]:
    name = f"at {durability}, {bench.scale.broker_connections} connections"
    goal, others = _GOALS[durability], [BARE.name, *(kind.name for kind in PEERS)]
    subjects = [
        Subject(f"raw {name}", QUIVER.name, goal, limits=others, figure=itself),
        Subject(f"JSON {name}", _JSON, goal, limits=others, figure=itself),
    ]
    if wrk.obstacle() is None:
        subjects.append(Subject(f"raw {name}, wrk", _WRK, goal, limits=[_WRK_BARE], figure=itself))
    return subjects


def _contenders(bench: Bench, servers: dict[str, Server], shape: Shape) -> dict[str, Contender]:
    quiver = cast(Quiver, servers[QUIVER.name])

    def load(server: Server, request_of: Callable[[str, Shape], Request]) -> Contender:
        return partial(
            publishing,
            server,
            lambda topic: request_of(topic, shape),
            connections=bench.scale.broker_connections,
            seconds=bench.scale.broker_s,
        )

    contenders = {name: load(server, server.publish) for name, server in servers.items()}
    contenders[_JSON] = load(quiver, quiver.publish_json)
    if wrk.obstacle() is None:
        contenders[_WRK] = partial(wrk.publishing, bench, quiver, shape)
        if BARE.name in servers:
            contenders[_WRK_BARE] = partial(wrk.publishing, bench, cast(Quiver, servers[BARE.name]), shape)
    return contenders
