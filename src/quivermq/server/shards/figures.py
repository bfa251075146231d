"""What every shard does with its store, asked of all brokers of the cluster at once."""

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quivermq.server.http import Request
from quivermq.shared.cost import dollars_a_month
from quivermq.shared.figures import SharedFigures

if TYPE_CHECKING:
    from quivermq.server.shards.app import ClusterApp

FIGURES = "/v1/cluster/figures"


async def figures_of_all(app: "ClusterApp", request: Request) -> dict[str, Any]:
    """The figures of all shards. A broker that does not answer is named, and what it has is not there."""
    others = [each for each in app.view.brokers.values() if each.id != app.node.id]
    answers = await asyncio.gather(*(_asked(app, each.url, request) for each in others))
    shards = figures_of_own(app)
    silent = []
    for broker, found in zip(others, answers, strict=True):
        if found is None:
            silent.append(broker.id)
        else:
            shards.update(found)
    return {"time": app.clock.now_us(), "shards": shards, "silent": silent}


def figures_of_own(app: "ClusterApp") -> dict[str, Any]:
    """By number: the figures of the shards that this broker serves."""
    return {
        str(number): _figures_json(app.node.id, served.shard.disk.figures())
        for number, served in sorted(app.served.copy().items())
    }


async def _asked(app: "ClusterApp", url: str, request: Request) -> dict[str, Any] | None:
    part = Request("GET", FIGURES, "own=true", request.headers, client=request.client)
    response = await app.forwarder.forward(url, FIGURES, part)
    if response.status != 200:
        return None
    shards: dict[str, Any] = json.loads(response.body)["shards"]
    return shards


def _figures_json(broker: str, figures: SharedFigures) -> dict[str, Any]:
    dollars = dollars_a_month(figures.requests, figures.seconds)
    return {"broker": broker, **asdict(figures), "estimated_dollars_a_month": dollars}
