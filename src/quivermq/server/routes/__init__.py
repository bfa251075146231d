"""The calls of the broker, a file for each kind. Each file has a list ROUTES."""

from quivermq.server.dashboard import routes as dashboard
from quivermq.server.routes import (
    adopting,
    archive,
    dead_letters,
    groups,
    inspecting,
    members,
    operations,
    producers,
    publish,
    reading,
    receive,
    replacing,
    settle,
    tending,
    topics,
)
from quivermq.server.routing import Route


def all_routes() -> list[Route]:
    """Every call that the broker answers, in the order in which the OpenAPI document shows them."""
    modules = (
        *(topics, publish, producers, receive, settle, groups, inspecting, reading, dead_letters, members),
        adopting,
        replacing,
        tending,
        archive,
        operations,
        dashboard,
    )
    return [route for module in modules for route in module.ROUTES]
