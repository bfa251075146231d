"""What an API key allows, and what each call needs: the one table of calls and scopes.

The gate, the OpenAPI document and the page of calls all go by the table, and a call that is not in it
cannot be a route. A call stands where it does for what it changes: nothing (`read`), what a group has had
(`consume`), the messages that there are (`write`), or what others rely on and cannot get back (`admin`).
Which keys there are is the business of `keys`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from quivermq.errors import Denied
from quivermq.server.http import Request

KeyScope = Literal["read", "consume", "write", "admin"]
Scope = Literal["none", "read", "consume", "write", "admin"]
Topics = Literal["named", "each", "all"]

ALL_TOPICS = ">"
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
    "POST /v1/topics/{topic}/groups/{group}/wait": _CONSUME,
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
    "POST /v1/backups": _ADMIN_ALL,
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
    assert call in PERMISSIONS, f"{call} is not in the table of quivermq.server.access"
    return PERMISSIONS[call]


def calls_of(scope: Scope) -> Iterator[str]:
    """The calls for which a scope is the least that a key needs."""
    return (call for call, permission in PERMISSIONS.items() if permission.scope == scope)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as the broker knows it."""

    id: str
    scope: KeyScope
    topics: tuple[str, ...]
    """Names or patterns; `>` stands for all topics."""
    created_us: int = 0

    def has_scope(self, scope: str) -> bool:
        """Whether the key may make calls of this scope."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    @property
    def is_for_all_topics(self) -> bool:
        return ALL_TOPICS in self.topics

    def allows(self, topic: str, origin: str | None) -> bool:
        """Whether the key is for a topic, or for every topic that a pattern stands for.

        `origin` is the topic whose dead letters it has, if any. A key for a topic is for its dead letters
        too: they are its messages.
        """
        if self.is_for_all_topics:
            return True
        if origin is None:
            return _any_covers(self.topics, topic)
        # Otherwise `orders.*` would be taken for the dead letters of `orders`.
        own = [allowed for allowed in self.topics if allowed.endswith(topic.removeprefix(origin))]
        return _any_covers(own, topic) or _any_covers(self.topics, origin)


def may_see(request: Request, topic: str) -> bool:
    """Whether who asks may know of a topic: for calls that list topics, and leave out the others."""
    return request.key is None or request.key.allows(topic, request.origin_of(topic))


def check_topics(request: Request, topics: Iterable[str]) -> None:
    """Raise Denied unless who asks may use all of these topics and patterns.

    The gate does this for a topic in the path. A call that takes topics in its body does it itself.
    """
    if request.key is None:
        return
    for topic in topics:
        if not request.key.allows(topic, request.origin_of(topic)):
            raise Denied(f"this key is not for {topic[:300]}: ask for one whose topics include it")


def _any_covers(patterns: Iterable[str], topic: str) -> bool:
    asked = topic.split(".")
    return any(_covers(pattern.split("."), asked) for pattern in patterns)


def _covers(allowed: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether every name that looks like `asked` also looks like `allowed`."""
    for index, level in enumerate(allowed):
        if index == len(asked):
            return False
        if level == ">":
            return True
        # One level of any name is less than the rest of any length.
        if asked[index] == ">" or level not in ("*", asked[index]):
            return False
    return len(allowed) == len(asked)
