"""The OpenAPI document: complete, true to the routes, and readable by others."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from quivermq.model.json import FRAME, JSON
from quivermq.model.topic_settings import TopicSettings
from quivermq.server.access import Permission
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response
from quivermq.server.openapi import openapi_document
from quivermq.server.routes import all_routes
from quivermq.server.routing import Parameter, Route

DOCUMENT: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(openapi_document(all_routes())))
CALLS = {
    f"{method.upper()} {path}": call
    for path, calls in DOCUMENT["paths"].items()
    for method, call in calls.items()
}


def every_part(node: object) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(node, dict):
        yield node
        for item in node.values():
            yield from every_part(item)
    elif isinstance(node, list):
        for item in node:
            yield from every_part(item)


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        found: Any = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


def test_every_route_is_a_call_with_a_name_of_its_own() -> None:
    assert set(CALLS) == {f"{route.method} {route.path}" for route in all_routes()}
    names = [call["operationId"] for call in CALLS.values()]
    assert len(set(names)) == len(names)


def test_every_reference_leads_somewhere() -> None:
    references = [part for part in every_part(DOCUMENT) if "$ref" in part]
    assert references
    assert all(resolved(part) for part in references)


def test_every_component_is_referred_to() -> None:
    referred = {part["$ref"] for part in every_part(DOCUMENT) if "$ref" in part}
    for kind in ("schemas", "responses"):
        for name in DOCUMENT["components"][kind]:
            assert f"#/components/{kind}/{name}" in referred


@pytest.mark.parametrize("name", CALLS)
def test_a_call_says_what_it_is_and_what_it_answers(name: str) -> None:
    call = CALLS[name]
    assert call["summary"]
    assert call["description"]
    assert any(status.startswith("2") for status in call["responses"])
    assert {"400", "500", "503"} <= set(call["responses"])
    for response in map(resolved, call["responses"].values()):
        assert response["description"]


@pytest.mark.parametrize("name", CALLS)
def test_the_open_parts_of_a_path_are_parameters(name: str) -> None:
    given = [p["name"] for p in CALLS[name].get("parameters", ()) if p["in"] == "path"]
    assert given == re.findall(r"\{(\w+)\}", name)


def test_a_call_that_needs_a_key_says_so() -> None:
    for route in all_routes():
        call = CALLS[f"{route.method} {route.path}"]
        assert ("security" in call) == (route.scope != "none")
        assert ("401" in call["responses"]) == (route.scope != "none")
        if route.scope != "none":
            assert f"`{route.scope}`" in call["description"]


def test_errors_have_their_codes_and_say_when_to_come_back() -> None:
    responses = DOCUMENT["components"]["responses"]
    assert "topic_not_found" in responses["Error404"]["description"]
    assert "Retry-After" in responses["Error429"]["headers"]
    assert responses["Error404"]["content"][JSON]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_the_settings_of_a_topic_are_all_there_and_have_their_doc() -> None:
    schema = CALLS["PATCH /v1/topics/{topic}"]["requestBody"]["content"][JSON]["schema"]
    assert list(schema["properties"]) == list(TopicSettings().to_json())
    assert schema["additionalProperties"] is False
    assert all(setting["description"] for setting in schema["properties"].values())


def test_both_forms_of_the_log_are_there() -> None:
    call = CALLS["GET /v1/topics/{topic}/partitions/{partition}/messages"]
    assert set(call["responses"]["200"]["content"]) == {JSON, FRAME}
    published = CALLS["POST /v1/topics/{topic}/messages"]["requestBody"]["content"]
    assert {JSON, FRAME} <= set(published)


def test_base64_is_described_and_so_is_what_types_cannot_say() -> None:
    message = DOCUMENT["components"]["schemas"]["MessageIn"]
    assert re.fullmatch(message["properties"]["value_base64"]["pattern"], "AP8=")
    assert not re.fullmatch(message["properties"]["value_base64"]["pattern"], "AP8")
    assert [one["required"] for one in message["oneOf"]] == [["value"], ["value_base64"]]


class Tea(msgspec.Struct):
    """A kind of tea."""

    leaves: int


class Coffee(msgspec.Struct):
    """A kind of coffee."""

    beans: int


def brew(_: Broker, __: Request) -> Response:
    """Make something to drink."""
    return Response()


def test_a_route_is_described_by_what_it_says_of_itself() -> None:
    route = Route(
        "PUT",
        "/v1/topics/{topic}/cup",
        brew,
        summary="Brew",
        permission=Permission("write"),
        tag="drinks",
        request_schemas={JSON: Tea},
        consumes=(JSON, FRAME),
        returns={200: (Tea | Coffee, "text/plain"), 204: None},
        query=(Parameter("size", {"type": "integer"}, "How much.", required=True),),
        errors=(416,),
    )
    document = openapi_document([route])
    call = document["paths"]["/v1/topics/{topic}/cup"]["put"]
    tea, coffee = ({"$ref": f"#/components/schemas/{name}"} for name in ("Tea", "Coffee"))
    assert call["requestBody"] == {"content": {JSON: {"schema": tea}, FRAME: {}}, "required": True}
    assert call["responses"]["200"]["content"] == {
        JSON: {"schema": {"anyOf": [tea, coffee]}},
        "text/plain": {},
    }
    assert "content" not in call["responses"]["204"]
    assert {"413", "416"} <= set(call["responses"])
    assert [parameter["required"] for parameter in call["parameters"]] == [True, True]
    assert document["tags"] == [{"name": "drinks"}]
