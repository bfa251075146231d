"""The broker's HTTP without a queue: `python -m benchmarks.broker.bare_server PATH PORT`.

Connections, parsing, routing and answers are those of the broker; a publish is answered with a constant.
"""

import asyncio
import signal
import sys

import uvloop

import quivermq
from benchmarks.broker.request import ANSWER
from quivermq.engine import engine_of
from quivermq.server.access import Permission
from quivermq.server.app import App
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response
from quivermq.server.routing import Parameter, Route
from quivermq.server.run import Server
from quivermq.settings import ServerSettings


def _constant(_broker: Broker, _request: Request) -> Response:
    return Response(200, ANSWER)


async def _serve(path: str, port: int) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    route = Route(
        "POST",
        "/v1/topics/{topic}/messages",
        _constant,
        summary="Nothing.",
        tag="bench",
        permission=Permission("none"),
        query=tuple(Parameter(name, {"type": "string"}, "Not looked at.") for name in ("key", "timestamp")),
        # As where messages come in.
        body_bytes_max=ServerSettings().body_bytes_max,
    )
    with quivermq.open(path) as engine:
        server = Server(App(Broker(engine_of(engine), ServerSettings()), [route]), "127.0.0.1", port)
        await server.start()
        await told.wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2])))
