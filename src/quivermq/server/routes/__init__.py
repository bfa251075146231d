"""The calls of the broker, a file for each kind. Each file has a list ROUTES."""

from quivermq.server.routes import (
    dead_letters,
    groups,
    members,
    operations,
    publish,
    reading,
    receive,
    settle,
    topics,
)
from quivermq.server.routing import Route


def all_routes() -> list[Route]:
    """Every call that the broker answers, in the order in which the OpenAPI document shows them."""
    modules = (topics, publish, receive, settle, groups, reading, dead_letters, members, operations)
    return [route for module in modules for route in module.ROUTES]
