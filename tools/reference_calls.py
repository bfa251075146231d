"""docs/reference/calls.md: every call of the broker and every shape, out of its OpenAPI document."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from reference_tables import table

from quivermq.server.access import MEANINGS, PERMISSIONS, SCOPES, calls_of
from quivermq.server.openapi import openapi_document
from quivermq.server.routes import all_routes

_METHODS = ("get", "post", "put", "patch", "delete")
_JSON = "application/json"
# Of every call that there is, so they are told once.
_EVERYWHERE = {"400", "401", "403", "408", "411", "413", "415", "429", "431", "500", "503"}
# The files of the dashboard are no calls for programs.
_LEFT_OUT = ("dashboard",)


def calls_page() -> str:
    """The whole page."""
    document = openapi_document(all_routes())
    tags = [tag["name"] for tag in document["tags"] if tag["name"] not in _LEFT_OUT]
    calls = [
        (method, path, operations[method])
        for path, operations in document["paths"].items()
        for method in _METHODS
        if method in operations
    ]
    sections = "\n".join(
        f"## {tag[0].upper()}{tag[1:]}\n\n"
        + "\n".join(_call(*call) for call in calls if tag in call[2]["tags"])
        for tag in tags
    )
    schemas = document["components"]["schemas"]
    shapes = "\n".join(_shape(name, schema) for name, schema in sorted(schemas.items()))
    errors = table(
        ("status", "when"),
        (
            (name.removeprefix("Error"), _cell(response["description"]))
            for name, response in sorted(document["components"]["responses"].items())
        ),
    )
    return f"""\
# Every call

Made from the document that a broker serves at `/openapi.json`; [HTTP](http.md) says what a list cannot.
{document["info"]["description"]} A shape's name leads to
[its fields](#shapes); a `?` behind a field means that it may be left out.

## Scopes of keys

What a key of each scope may do; each scope includes those above it.

{_scopes()}
Where a key is for some topics only, a call with a topic in its path is about that topic, or about every
topic that a pattern there stands for. A call marked `each` looks at each topic it comes across: it leaves
others out of what it tells, and refuses others that it is given. A call marked `all` needs a key for all
topics. These need no key, nor do the files of the dashboard: {_open_calls()}.

{_scope_table()}
{sections}
## Errors

Every error is [`Error`](#error), with one of [these codes](errors.md). Each call may answer 400, 408, 429,
431, 500 and 503, one with a body also 411, 413 and 415, one that needs a key also 401 and 403; others stand
with their call.

{errors}
## Shapes

{shapes}"""


def _open_calls() -> str:
    return ", ".join(f"`{call}`" for call in calls_of("none") if "dashboard" not in call)


def _scopes() -> str:
    return table(("scope", "may"), ((f"`{scope}`", meaning) for scope, meaning in MEANINGS.items()))


def _scope_table() -> str:
    """Every call that needs a key, by the least scope."""
    rows = (
        (f"`{call}`", *("✓" if SCOPES.index(scope) <= rank else "" for rank in range(len(SCOPES))), topics)
        for scope in SCOPES
        for call in calls_of(scope)
        for topics in [PERMISSIONS[call].topics.replace("named", "in the path")]
    )
    return table(("call", *SCOPES, "topics"), rows)


def _call(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"### `{method.upper()} {path}`", f"{operation['summary']}."]
    # The first paragraph says the same as the summary, in the words of the code.
    _, *further = inspect.cleandoc(operation["description"]).split("\n\n")
    lines += further
    if parameters := operation.get("parameters"):
        header = ("parameter", "in", "is", "what it says")
        lines.append(table(header, (_parameter(each) for each in parameters)).rstrip())
    if body := operation.get("requestBody"):
        needed = "" if body.get("required") else ", which may be left out"
        lines.append(f"**Takes** {_contents(body['content'])}{needed}.")
    lines.append("**Answers** " + "; ".join(_answers(operation["responses"])) + ".")
    return "\n\n".join(lines) + "\n"


def _parameter(given: dict[str, Any]) -> tuple[str, str, str, str]:
    name = f"`{given['name']}`" if given.get("required") else f"`{given['name']}`?"
    return name, given["in"], type_of(given["schema"]), _cell(given["description"])


def _contents(content: dict[str, Any]) -> str:
    return " or ".join(
        type_of(told["schema"]) if media == _JSON and "schema" in told else f"`{media}`"
        for media, told in content.items()
    )


def _answers(responses: dict[str, Any]) -> Iterator[str]:
    for status, response in responses.items():
        if status.startswith("2"):
            content = response.get("content")
            yield f"{status} with {_contents(content)}" if content else status
        elif status not in _EVERYWHERE or "$ref" not in response:
            yield status


def _shape(name: str, schema: dict[str, Any]) -> str:
    """A component: its fields, or what it may be."""
    heading = f"### {name}\n\n{inspect.cleandoc(schema.get('description', ''))}\n"
    if "properties" not in schema:
        return f"{heading}\n{type_of(schema)}\n"
    required = {*schema.get("required", ())}
    rows = (
        (
            f"`{field}`" if field in required else f"`{field}`?",
            type_of(told),
            _default(told),
        )
        for field, told in schema["properties"].items()
    )
    return f"{heading}\n{table(('field', 'is', 'default'), rows)}"


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return (
        "" if value in (None, [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def type_of(schema: dict[str, Any]) -> str:
    """A schema in a few words, with links to the shapes in it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(type_of(one) for one in schema[word]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{'null' if value is None else value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items") or schema.get("prefixItems", [{}])[0]
        return f"list of {type_of(items)}" if items else "list"
    if kind == "object" and "lease_ms" in schema.get("properties", ()):
        settings = "[the settings of a topic](settings.md#settings-of-a-topic)"
        return f"`name` and {settings}" if "name" in schema["properties"] else settings
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"object of {type_of(values)}" if isinstance(values, dict) and values else "object"
    return f"{_WORDS.get(kind, kind)}{_bounds(schema)}"


_WORDS = {
    "string": "text",
    "integer": "integer",
    "boolean": "true or false",
    "null": "null",
    "number": "number",
}


def _bounds(schema: dict[str, Any]) -> str:
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if schema.get("contentEncoding") == "base64":
        return " in base64"
    if lowest is None and highest is None:
        return ""
    # Beyond this it is only how the number is stored.
    if highest is None or highest >= 2**53:
        return f" ≥ {lowest}" if lowest is not None else ""
    return f", {lowest} … {highest}"


def _cell(text: str) -> str:
    """A text for a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
