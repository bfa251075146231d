"""The OpenAPI document, made from the table of routes and the types that they take and return.

Nothing is written down twice, so what the document says is what the broker does; tests hold it to that.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from quivermq.errors import QuiverError
from quivermq.frame import OFFSET_MAX
from quivermq.model.json import JSON
from quivermq.model.messages import PRODUCER_ID_MAX
from quivermq.model.topic_settings import PARTITIONS_MAX
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import NAME_SCHEMA, Error

_REFERENCE = "#/components/schemas/{name}"
_OPEN_PART = re.compile(r"\{([a-z_]+)\}")
# What msgspec reads as base64: whole groups of four, the last of them filled up.
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

_PATH_PARAMETERS = {
    "topic": Parameter("topic", NAME_SCHEMA, "The name of a topic."),
    "group": Parameter("group", NAME_SCHEMA, "The name of a group of consumers."),
    "partition": Parameter(
        "partition",
        {"type": "integer", "minimum": 0, "maximum": PARTITIONS_MAX - 1},
        "The number of a partition; the first one is 0.",
    ),
    "producer_id": Parameter(
        "producer_id",
        {"type": "integer", "minimum": 1, "maximum": PRODUCER_ID_MAX},
        "What the producer is known by, in the headers of its frames.",
    ),
    "base_offset": Parameter(
        "base_offset",
        {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
        "The first offset of a segment.",
    ),
    "file": Parameter(
        "file",
        {"type": "string", "pattern": "^[a-z0-9_-]{1,40}[.](html|js|css|svg)$"},
        "The name of a file.",
    ),
    "id": Parameter(
        "id",
        {"type": "string", "pattern": "^[0-9a-f]{1,16}-[0-9a-f]{1,8}-[0-9a-f]{1,16}$"},
        "What a put of a delayed message returned as `scheduled_id`.",
    ),
}

# Calls that take a pattern where others take a topic.
_OF_MANY_TOPICS = ("/receive", "/wait", "/ack", "/nack", "/release", "/reject", "/extend")
_TOPIC_OR_PATTERN = Parameter(
    "topic",
    {
        "type": "string",
        "pattern": "^[.]*(>|([*]|[A-Za-z0-9_-]+)([.]([*]|[A-Za-z0-9_-]*))*([.]>)?)$",
        "maxLength": 249,
    },
    "The name of a topic, or a pattern: `*` stands for one level, `>` for the rest.",
)

# What every call may answer, and every call that has a body or a key.
_ERRORS = (400, 408, 429, 431, 500, 503)
_ERRORS_WITH_BODY = (411, 413, 415)
_ERRORS_WITH_KEY = (401, 403)

_MEANINGS = {
    200: "Done.",
    201: "Created.",
    204: "Done; there is nothing to say.",
    304: "It is the same as the one that the client has.",
    400: "The call is wrong as it stands; the message says what to change.",
    401: "The broker wants a key, and there was none, or not a valid one.",
    403: "The key does not allow this.",
    404: "What was asked for is not there, or no longer.",
    408: "The request took too long to arrive.",
    409: "Somebody else was first.",
    411: "The broker wants to know the length of the body.",
    413: "The body, or a message in it, is over a limit.",
    415: "The body has a content coding, which the broker does not undo.",
    416: "The offset is not in the log.",
    429: "Too much for now: the backlog or a rate is at its limit. Nothing was done.",
    431: "The head of the request is too long, or has too many headers.",
    500: "The broker failed, or its disk did.",
    503: "Not now: the same call may succeed later.",
    507: "The disk has no room. Nothing was stored.",
}
_RETRY_AFTER = {
    "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait before another try."}
}


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """OpenAPI 3.1, as JSON has it."""
    schemas = _Schemas(_types_of(routes))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quiver",
            "version": version("quivermq"),
            "summary": "A durable message queue.",
            "description": "Times are unix microseconds; those whose name ends in `_ms` are milliseconds.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {
                _error_name(status): _error_response(status, schemas) for status in _statuses(routes)
            },
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Where the broker asks for keys.",
                }
            },
        },
    }


# Operations.


def _operation(route: Route, schemas: "_Schemas") -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "description": f"{(route.handler.__doc__ or '').strip()}\n\n{_scope_text(route)}".strip(),
        "tags": [route.tag],
        "responses": {str(status): response for status, response in _responses(route, schemas)},
    }
    parameters = [*_path_parameters(route), *(_parameter(given, "query") for given in route.query)]
    if parameters:
        operation["parameters"] = parameters
    if content := _request_content(route, schemas):
        operation["requestBody"] = {"content": content, "required": not route.is_body_optional}
    if route.scope != "none":
        # A broker on the loopback address may do without keys.
        operation["security"] = [{"key": []}, {}]
    return operation


def _scope_text(route: Route) -> str:
    return "" if route.scope == "none" else f"A key needs the scope `{route.scope}`."


def _path_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for name in _OPEN_PART.findall(route.path):
        is_pattern = name == "topic" and route.path.endswith(_OF_MANY_TOPICS)
        known = _TOPIC_OR_PATTERN if is_pattern else _PATH_PARAMETERS[name]
        yield {**_parameter(known, "path"), "required": True}


def _parameter(given: Parameter, place: str) -> dict[str, Any]:
    described = {"name": given.name, "in": place, "description": given.doc, "schema": given.schema}
    return {**described, "required": True} if given.required else described


def _request_content(route: Route, schemas: "_Schemas") -> dict[str, Any]:
    if route.body is not None:
        return {JSON: {"schema": schemas.of(route.body)}}
    if not route.takes_body:
        return {}
    return {
        media_type: {"schema": schemas.of(route.request_schemas[media_type])}
        if media_type in route.request_schemas
        else {}
        for media_type in route.consumes
    }


def _responses(route: Route, schemas: "_Schemas") -> Iterator[tuple[int, dict[str, Any]]]:
    for status, returned in route.returns.items():
        response: dict[str, Any] = {"description": _MEANINGS[status]}
        content = dict(_response_content(returned, schemas))
        yield status, {**response, "content": content} if content else response
    for status in _errors_of(route):
        if status not in route.returns:
            yield status, {"$ref": f"#/components/responses/{_error_name(status)}"}


def _response_content(returned: Any, schemas: "_Schemas") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(returned, tuple):
        for each in returned:
            yield from _response_content(each, schemas)
    elif isinstance(returned, str):
        yield returned, {}
    elif returned is not None:
        yield JSON, {"schema": schemas.of(returned)}


# Errors.


def _errors_of(route: Route) -> list[int]:
    found = {*_ERRORS, *route.errors}
    found.update(_ERRORS_WITH_BODY if route.takes_body else ())
    found.update(_ERRORS_WITH_KEY if route.scope != "none" else ())
    return sorted(found)


def _statuses(routes: Iterable[Route]) -> list[int]:
    return sorted({status for route in routes for status in _errors_of(route)})


def _error_name(status: int) -> str:
    return f"Error{status}"


def _error_response(status: int, schemas: "_Schemas") -> dict[str, Any]:
    codes = sorted({error.code for error in _all_errors() if error.http_status == status})
    listed = f" Codes: {', '.join(codes)}." if codes else ""
    response = {
        "description": _MEANINGS[status] + listed,
        "content": {JSON: {"schema": schemas.of(Error)}},
    }
    return {**response, "headers": _RETRY_AFTER} if status in (429, 503) else response


def _all_errors() -> Iterator[type[QuiverError]]:
    pending: list[type[QuiverError]] = [QuiverError]
    while pending:
        error = pending.pop()
        yield error
        pending += error.__subclasses__()


# Types.


def _types_of(routes: Iterable[Route]) -> list[Any]:
    found: list[Any] = [Error]
    for route in routes:
        given = [route.body, *route.request_schemas.values(), *route.returns.values()]
        for one in given:
            for part in one if isinstance(one, tuple) else (one,):
                if part is not None and not isinstance(part, str):
                    found += _alternatives(part)
    return list({id(one): one for one in found}.values())


def _alternatives(given: Any) -> Sequence[Any]:
    return get_args(given) if get_origin(given) in (Union, UnionType) else (given,)


class _Schemas:
    """The JSON schemas of types: those of structs are components, and others refer to them."""

    def __init__(self, types: list[Any]) -> None:
        schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
        self._by_id = {id(one): _with_base64(schema) for one, schema in zip(types, schemas, strict=True)}
        self.components = {name: _with_base64(schema) for name, schema in sorted(components.items())}
        for struct in _structs(types):
            self.components[struct.__name__].update(getattr(struct, "schema_extra", {}))

    def of(self, given: Any) -> dict[str, Any]:
        """The schema of a type that was among those at the beginning."""
        found = [self._by_id[id(one)] for one in _alternatives(given)]
        return found[0] if len(found) == 1 else {"anyOf": found}


def _structs(types: Iterable[Any]) -> Iterator[type]:
    """Every struct that these types are made of."""
    seen: set[Any] = set()
    pending = [msgspec.inspect.type_info(one) for one in types]
    while pending:
        info = pending.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            yield info.cls
            pending += [field.type for field in info.fields]
        for name in ("type", "item_type", "value_type", "key_type"):
            if isinstance(inner := getattr(info, name, None), msgspec.inspect.Type):
                pending.append(inner)
        for name in ("types", "item_types"):
            pending += getattr(info, name, ())


def _with_base64(schema: Any) -> Any:
    """A schema in which also what base64 looks like is written down."""
    if isinstance(schema, list):
        return [_with_base64(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {name: _with_base64(item) for name, item in schema.items()}
    return {**whole, "pattern": _BASE64} if schema.get("contentEncoding") == "base64" else whole
