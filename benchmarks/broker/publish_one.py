"""Single publishes over many connections, each answered before the next one on its connection."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from benchmarks.broker import wrk
from benchmarks.broker.load import Contender, Round, in_turns, publishing
from benchmarks.broker.quiver import BARE, QUIVER, Quiver
from benchmarks.broker.request import Request
from benchmarks.broker.server import Server
from benchmarks.broker.servers import DURABILITIES, PEERS, missing_peers, started
from benchmarks.row import Goal, Row, Skipped
from benchmarks.workload import Bench
from quivermq.settings import Durability

_GOALS = {"os": Goal("at least", 30e3), "fsync": Goal("at least", 15e3)}
_JSON = "JSON"
_WRK, _WRK_BARE = "wrk", f"{BARE.name}, wrk"


def publish_one(bench: Bench) -> Iterable[Row | Skipped]:
    """Raw and as JSON, beside our HTTP alone and the peers; and raw with `wrk` for a generator."""
    for durability in DURABILITIES:
        yield from _rows(bench, durability)
    yield from missing_peers()
    if reason := wrk.obstacle():
        yield Skipped("raw, wrk", reason)


def _rows(bench: Bench, durability: Durability) -> Iterable[Row]:
    with started(bench, durability, (QUIVER, BARE, *PEERS)) as servers:
        best = in_turns(_contenders(bench, servers), bench.scale.broker_rounds)
    name = f"at {durability}, {bench.scale.broker_connections} connections"
    goal = _GOALS[durability]
    yield _row(f"raw {name}", QUIVER.name, best, [BARE.name, *_peers(best)], goal)
    yield _row(f"JSON {name}", _JSON, best, [BARE.name, *_peers(best)], goal)
    if _WRK in best:
        yield _row(f"raw {name}, wrk", _WRK, best, [_WRK_BARE], goal)


def _row(name: str, subject: str, best: dict[str, Round], limits: list[str], goal: Goal) -> Row:
    beside = {limit: best[limit].rate for limit in limits}
    return Row(name, "messages/s", best[subject].rate, beside, goal, best[subject].held_up_by)


def _peers(best: dict[str, Round]) -> list[str]:
    return [kind.name for kind in PEERS if kind.name in best]


def _contenders(bench: Bench, servers: dict[str, Server]) -> dict[str, Contender]:
    quiver, bare = cast(Quiver, servers[QUIVER.name]), cast(Quiver, servers[BARE.name])

    def load(server: Server, request_of: Callable[[str], Request]) -> Contender:
        return partial(
            publishing,
            server,
            request_of,
            connections=bench.scale.broker_connections,
            seconds=bench.scale.broker_s,
        )

    contenders = {name: load(server, server.publish) for name, server in servers.items()}
    contenders[_JSON] = load(quiver, quiver.publish_json)
    if wrk.obstacle() is None:
        contenders[_WRK] = partial(wrk.publishing, bench, quiver)
        contenders[_WRK_BARE] = partial(wrk.publishing, bench, bare)
    return contenders
