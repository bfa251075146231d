"""What each call needs: the one table of calls and scopes.

The gate, the OpenAPI document and the page of calls all go by it, and a call that is not in it cannot be a
route. A call stands where it does for what it changes: nothing (`read`), what a group has had (`consume`),
the messages that there are (`write`), or what others rely on and cannot get back (`admin`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

KeyScope = Literal["read", "consume", "write", "admin"]
Scope = Literal["none", "read", "consume", "write", "admin"]
Topics = Literal["named", "each", "all"]

# Each includes those before it.
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)

MEANINGS: dict[KeyScope, str] = {
    "read": "Look at everything, change nothing.",
    "consume": "Also receive and settle, be a member of a group, move a group's position, pause it.",
    "write": "Also publish, cancel delayed messages or deliver them now, redrive dead letters.",
    "admin": "Also create, alter and delete topics, delete groups and dead letters, look after the broker.",
}


@dataclass(frozen=True, slots=True)
class Permission:
    """What a key has to be for."""

    scope: Scope
    topics: Topics = "all"
    """Which topics: the one that the path names; each that the handler comes across, of which it asks
    `may_see` or `check_topics`; or all there are."""


_OPEN = Permission("none")
_READ, _READ_EACH = Permission("read", "named"), Permission("read", "each")
_CONSUME, _CONSUME_EACH = Permission("consume", "named"), Permission("consume", "each")
_WRITE = Permission("write", "named")
_ADMIN, _ADMIN_EACH, _ADMIN_ALL = (
    Permission("admin", "named"),
    Permission("admin", "each"),
    Permission("admin", "all"),
)

PERMISSIONS: dict[str, Permission] = {
    # Nothing of the queue is told.
    "GET /": _OPEN,
    "GET /dashboard/{file}": _OPEN,
    "GET /dashboard/pages/{file}": _OPEN,
    "GET /docs": _OPEN,
    "GET /healthz": _OPEN,
    "GET /openapi.json": _OPEN,
    "GET /readyz": _OPEN,
    # Nothing changes.
    "GET /metrics": _READ_EACH,
    "GET /v1/events": _READ_EACH,
    "GET /v1/history": _READ_EACH,
    "GET /v1/groups": _READ_EACH,
    "GET /v1/groups/{group}": _READ_EACH,
    "GET /v1/groups/{group}/offsets": _READ_EACH,
    "GET /v1/key": _READ_EACH,
    "GET /v1/stats": _READ_EACH,
    "GET /v1/topics": _READ_EACH,
    "GET /v1/topics/{topic}": _READ,
    "GET /v1/topics/{topic}/dead-letters": _READ,
    "GET /v1/topics/{topic}/dead-letters/reasons": _READ,
    "GET /v1/topics/{topic}/groups/{group}": _READ,
    "GET /v1/topics/{topic}/groups/{group}/deliveries": _READ,
    "GET /v1/topics/{topic}/groups/{group}/peek": _READ,
    "GET /v1/topics/{topic}/partitions/{partition}/messages": _READ,
    "GET /v1/topics/{topic}/scheduled": _READ,
    "GET /v1/topics/{topic}/scheduled/timeline": _READ,
    "GET /v1/topics/{topic}/segments": _READ,
    # What a group has had.
    "POST /v1/topics/{topic}/groups/{group}/ack": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/extend": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/nack": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/release": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/pause": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/receive": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/reject": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/resume": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/retry": _CONSUME,
    "POST /v1/topics/{topic}/groups/{group}/seek": _CONSUME,
    "POST /v1/groups/{group}/heartbeat": _CONSUME_EACH,
    "POST /v1/groups/{group}/join": _CONSUME_EACH,
    "POST /v1/groups/{group}/leave": _CONSUME_EACH,
    "POST /v1/groups/{group}/sync": _CONSUME_EACH,
    "PUT /v1/groups/{group}/offsets": _CONSUME_EACH,
    # The messages that there are.
    "DELETE /v1/topics/{topic}/scheduled/{id}": _WRITE,
    "POST /v1/topics/{topic}/dedup_ids": _WRITE,
    "POST /v1/topics/{topic}/groups/{group}/adopt": _WRITE,
    "POST /v1/topics/{topic}/messages": _WRITE,
    "POST /v1/topics/{topic}/producers/{producer_id}": _WRITE,
    "POST /v1/topics/{topic}/redrive": _WRITE,
    "POST /v1/topics/{topic}/scheduled/cancel": _WRITE,
    "POST /v1/topics/{topic}/scheduled/{id}/deliver": _WRITE,
    "POST /v1/topics/{topic}/sync": _WRITE,
    # What others rely on.
    "DELETE /v1/topics/{topic}": _ADMIN,
    "DELETE /v1/topics/{topic}/groups/{group}": _ADMIN,
    "GET /v1/archive": _ADMIN_ALL,
    "PATCH /v1/topics/{topic}": _ADMIN,
    "POST /v1/archive": _ADMIN_ALL,
    "POST /v1/compact": _ADMIN_ALL,
    "POST /v1/sync": _ADMIN_ALL,
    "POST /v1/topics": _ADMIN_EACH,
    "POST /v1/topics/{topic}/dead-letters": _ADMIN,
    "POST /v1/topics/{topic}/discard": _ADMIN,
    "POST /v1/topics/{topic}/purge": _ADMIN,
    "POST /v1/verify": _ADMIN_ALL,
    "PUT /v1/topics/{topic}/partitions/{partition}/segments/{base_offset}": _ADMIN,
}


def permission_of(method: str, path: str) -> Permission:
    """What a call needs. A call without an entry is a mistake in the broker, not in a request."""
    call = f"{method} {path}"
    assert call in PERMISSIONS, f"{call} is not in the table of quivermq.server.permissions"
    return PERMISSIONS[call]


def calls_of(scope: Scope) -> Iterator[str]:
    """The calls for which a scope is the least that a key needs."""
    return (call for call, permission in PERMISSIONS.items() if permission.scope == scope)
