"""Which handler answers which call, and what it says about itself for the OpenAPI document."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from quivermq.errors import InvalidRequest
from quivermq.server.broker import Broker
from quivermq.server.http import JSON, Later, Request, Response
from quivermq.server.permissions import Permission, Scope, permission_of

# What a call takes that is told what to do, and gets no messages.
JSON_BODY_BYTES = 1024 * 1024
# What any call may take at most, where the settings allow it.
WHOLE_BODY = 2**31

_KEPT_PATHS_MAX = 4096
_KEPT_PATH_MAX = 600

Answer = Response | Later | Awaitable[Response]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or a query: how it is called, what it is, as JSON schema."""

    name: str
    schema: dict[str, Any]
    doc: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One call. `handler(broker, request)` or, with a body type, `handler(broker, request, body)`."""

    method: str
    path: str
    """With the open parts in braces: /v1/topics/{topic}."""
    handler: Callable[..., Answer]
    summary: str
    tag: str
    body: Any = None
    """A msgspec.Struct that forbids unknown fields; the body has to be JSON of it."""
    is_body_optional: bool = False
    returns: dict[int, Any] = field(default_factory=dict)
    """By status: a type that is answered as JSON, a media type as text, a tuple of these, or None."""
    query: tuple[Parameter, ...] = ()
    consumes: tuple[str, ...] = ("application/json",)
    request_schemas: dict[str, type] = field(default_factory=dict)
    """For a handler that reads the body itself: by media type, what it takes."""
    errors: tuple[int, ...] = ()
    """The statuses of the errors that this call may answer beside those that every call may."""
    body_bytes_max: int | None = None
    """How large a body may be, of a call that takes more or less than others of its kind."""
    permission: Permission = None  # type: ignore[assignment]
    """What a key has to be for: as the table of all calls has it, unless a test says otherwise."""

    def __post_init__(self) -> None:
        if self.permission is None:
            object.__setattr__(self, "permission", permission_of(self.method, self.path))

    @property
    def scope(self) -> Scope:
        """The least scope of a key for this call."""
        return self.permission.scope

    @property
    def parameters(self) -> set[str]:
        """The names of the parameters behind the question mark."""
        return {parameter.name for parameter in self.query}

    @property
    def takes_body(self) -> bool:
        """Whether a request has a body, in JSON or in whatever else the route consumes."""
        return self.body is not None or bool(self.request_schemas) or JSON not in self.consumes

    @property
    def body_limit(self) -> int | None:
        """How large a body may be; None stands for what the settings allow, where messages come in."""
        if self.body_bytes_max is not None:
            return self.body_bytes_max
        if self.body is not None:
            return JSON_BODY_BYTES
        return None if self.takes_body else 0

    def call(self, broker: Broker, request: Request) -> Answer:
        """Check the query and the body, then hand over. Raises InvalidRequest."""
        if request.query_string and (unknown := request.query.keys() - (known := self.parameters)):
            raise InvalidRequest(
                f"{', '.join(sorted(unknown))!r} is no parameter of this call:"
                f" it takes {', '.join(sorted(known)) or 'none'}"
            )
        if self.body is None:
            return self.handler(broker, request)
        return self.handler(broker, request, self._decoded(request.body))

    def _decoded(self, body: bytes) -> Any:
        assert self.body is not None
        if not body and self.is_body_optional:
            return self.body()
        try:
            return msgspec.json.decode(body, type=self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the body is not what this call takes: {error}") from None


class Router:
    """Finds the route of a request by looking up one part of the path after the other."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._root = _Node()
        self._found: dict[str, tuple[dict[str, Route], dict[str, str]]] = {}
        for route in routes:
            node = self._root
            for part in route.path.strip("/").split("/"):
                node = node.open_child(part[1:-1]) if part.startswith("{") else node.child(part)
            assert route.method not in node.routes, f"two routes for {route.method} {route.path}"
            node.routes[route.method] = route

    def find(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes of a path by method, none when there are none, and the open parts of the path.

        Nobody changes what it returns: clients ask for the same few paths again and again.
        """
        found = self._found.get(path)
        if found is None:
            found = self._find(path)
            if found[0] and len(path) <= _KEPT_PATH_MAX:
                if len(self._found) >= _KEPT_PATHS_MAX:
                    self._found.clear()
                self._found[path] = found
        return found

    def _find(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        node = self._root
        params: dict[str, str] = {}
        for part in path.strip("/").split("/"):
            found = node.children.get(part)
            if found is None and node.wildcard is not None:
                name, found = node.wildcard
                params[name] = unquote(part, errors="replace")
            if found is None:
                return {}, {}
            node = found
        return node.routes, params


class _Node:
    __slots__ = ("children", "routes", "wildcard")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.wildcard: tuple[str, _Node] | None = None
        self.routes: dict[str, Route] = {}

    def child(self, part: str) -> "_Node":
        return self.children.setdefault(part, _Node())

    def open_child(self, name: str) -> "_Node":
        if self.wildcard is None:
            self.wildcard = (name, _Node())
        assert self.wildcard[0] == name, f"{{{name}}} is called {{{self.wildcard[0]}}} elsewhere"
        return self.wildcard[1]
