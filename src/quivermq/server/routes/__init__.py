"""The calls of the broker, a file for each kind. Each has a table ROUTES, in the order of its handlers."""

from quivermq.server.dashboard import routes as dashboard
from quivermq.server.routes import (
    backups,
    dead_letters,
    groups,
    members,
    operations,
    publish,
    reading,
    receive,
    settle,
    tending,
    topics,
)
from quivermq.server.routing import Route


def all_routes() -> list[Route]:
    """Every call that the broker answers, in the order in which the OpenAPI document shows them."""
    of_messages = (topics, publish, receive, settle, groups, reading, dead_letters, members)
    return [
        route for each in (*of_messages, tending, backups, operations, dashboard) for route in each.ROUTES
    ]
