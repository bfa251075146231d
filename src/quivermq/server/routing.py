"""Which handler answers which call, what it says of itself for the OpenAPI document, and its parameters.

What stands behind the question mark, and the numbers in a path, are checked against what is documented.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from quivermq.engine.looking import Place
from quivermq.errors import InvalidRequest, NotFound
from quivermq.frame import OFFSET_MAX
from quivermq.model.json import JSON, base64_bytes
from quivermq.model.lanes import PRIORITIES
from quivermq.server.access import Permission, Scope, permission_of
from quivermq.server.http import Later, Request, Response

# What a call takes that is told what to do, and gets no messages.
JSON_BODY_BYTES = 1024 * 1024
# What any call may take at most, where the settings allow it.
WHOLE_BODY = 2**31

# No sign but a minus, no underscores, no digits of other scripts: all of which int() would take.
NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)

PLACE_PATTERN = "^[0-9]{1,4}-[0-2]-[0-9]{1,19}$"
_PLACE = re.compile(r"([0-9]{1,4})-([0-2])-([0-9]{1,19})", re.ASCII)

_KEPT_PATHS_MAX = 4096
_KEPT_PATH_MAX = 600

# What is awaited is a response, or what goes into one: see `http.answered`.
Answer = Response | Later | Awaitable[Any]
Handler = TypeVar("Handler", bound=Callable[..., Answer])
_ANNOTATED = object()


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
    consumes: tuple[str, ...] = (JSON,)
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

    def call(self, broker: Any, request: Request) -> Answer:
        """Check the query and the body, then hand over. Raises InvalidRequest.

        `broker` is whatever the handlers of its table take: a `Broker`, but for those of a cluster.
        """
        check_query(request, self.query)
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


class Calls:
    """Adds the calls below a path to a table of routes: `@topic("GET", "/segments", "List segments")`."""

    def __init__(self, table: list[Route], path: str, tag: str, errors: tuple[int, ...] = (404,)) -> None:
        self._table = table
        self._path = path
        self._defaults: dict[str, Any] = {"tag": tag, "errors": errors}

    def __call__(
        self, method: str, path: str, summary: str, returns: Any = _ANNOTATED, **more: Any
    ) -> Callable[[Handler], Handler]:
        """Let the function below answer a call. `more` are fields of `Route`.

        `returns` is what a success is answered with, or a dict of that by status; where it is left out, the
        function returns it, and None for a success that has nothing to say. Where the function takes a
        `body`, that is what the body has to be.
        """

        def add(handler: Handler) -> Handler:
            shape = handler.__annotations__["return"] if returns is _ANNOTATED else returns
            by_status = shape if isinstance(shape, dict) else {204 if shape is None else 200: shape}
            body = handler.__annotations__.get("body")
            fields = {**self._defaults, **more, "body": body, "returns": by_status}
            self._table.append(Route(method, self._path + path, handler, summary, **fields))
            return handler

        return add


class RouteTable:
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


# Parameters.


PRIORITY = Parameter(
    "priority", {"enum": list(PRIORITIES), "default": "normal"}, "Which lane of the partition."
)
AFTER = Parameter(
    "after",
    {"type": "string", "pattern": PLACE_PATTERN},
    "PARTITION-LANE-OFFSET of the last one you have: those behind it. Lanes are 0 to 2, high to low.",
)


def check_query(request: Request, known: tuple[Parameter, ...]) -> None:
    """Raise InvalidRequest for a parameter that nobody would look at."""
    if not request.query_string:
        return
    names = {parameter.name for parameter in known}
    if unknown := request.query.keys() - names:
        raise InvalidRequest(
            f"{', '.join(sorted(unknown))!r} is no parameter of this call:"
            f" it takes {', '.join(sorted(names)) or 'none'}"
        )


def number_parameter(
    name: str, doc: str, lowest: int, highest: int, default: int | None = None
) -> Parameter:
    """A whole number."""
    schema: dict[str, Any] = {"type": "integer", "minimum": lowest, "maximum": highest}
    if default is not None:
        schema["default"] = default
    return Parameter(name, schema, doc)


def number_given(request: Request, parameter: Parameter) -> int | None:
    """What was given for it; its default, if it has one, when nothing was. Raises InvalidRequest."""
    text, schema = request.query.get(parameter.name), parameter.schema
    if text is None:
        default: int | None = schema.get("default")
        return default
    lowest, highest = schema["minimum"], schema["maximum"]
    if not NUMBER.fullmatch(text) or not lowest <= int(text) <= highest:
        raise InvalidRequest(
            f"{parameter.name} is a whole number from {lowest} to {highest}, not {text[:80]!r}"
        )
    return int(text)


def number_of(request: Request, parameter: Parameter) -> int:
    """The same, of a parameter that has a default."""
    number = number_given(request, parameter)
    assert number is not None, f"{parameter.name} has no default"
    return number


def bytes_parameters(name: str, doc: str) -> tuple[Parameter, Parameter]:
    """A text, and the same in base64, for bytes that are no text."""
    return (
        Parameter(name, {"type": "string"}, doc),
        Parameter(
            f"{name}_base64", {"type": "string", "format": "byte"}, f"In place of `{name}`: any bytes."
        ),
    )


def bytes_given(request: Request, name: str) -> bytes | None:
    """What was given in one of the two ways. Raises InvalidRequest."""
    text, base64 = request.query.get(name), request.query.get(f"{name}_base64")
    if base64 is None:
        return None if text is None else text.encode()
    if text is not None:
        raise InvalidRequest(f"there is a {name} or a {name}_base64, not both")
    return base64_bytes(f"{name}_base64", base64)


def flag_of(request: Request, parameter: Parameter) -> bool:
    """A parameter that is true or false. Raises InvalidRequest."""
    text = request.query.get(parameter.name, "true" if parameter.schema["default"] else "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"{parameter.name} is true or false, not {text[:80]!r}")
    return text == "true"


def choice_of(request: Request, parameter: Parameter) -> str:
    """One of some words. Raises InvalidRequest."""
    choices: list[str] = parameter.schema["enum"]
    word: str = request.query.get(parameter.name, parameter.schema["default"])
    if word not in choices:
        raise InvalidRequest(f"{parameter.name} is one of {', '.join(choices)}, not {word[:80]!r}")
    return word


def offset_of(text: str) -> int | None:
    """The offset that a text says, None for one that says none."""
    if text.startswith("-") or not NUMBER.fullmatch(text) or int(text) > OFFSET_MAX:
        return None
    return int(text)


def partition_of(request: Request, partitions: int) -> int:
    """The partition in the path. Raises NotFound when the topic does not have it."""
    text = request.params["partition"]
    if not NUMBER.fullmatch(text) or not 0 <= int(text) < partitions:
        raise NotFound(f"there is no partition {text[:20]}: the topic has {partitions}, the first one is 0")
    return int(text)


def place_after(request: Request) -> Place | None:
    """Behind which message a list goes on, given as PARTITION-LANE-OFFSET. Raises InvalidRequest."""
    text = request.query.get("after")
    if text is None:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"after is PARTITION-LANE-OFFSET of a message, like 0-1-17, not {text[:80]!r}")
    partition, lane, offset = map(int, found.groups())
    return partition, lane, offset
