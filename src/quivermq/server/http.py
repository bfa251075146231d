"""A request and its answer, as handlers see them. Nothing here knows a socket."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    from quivermq.server.keys import ApiKey

JSON = "application/json"
FRAME = "application/vnd.quiver.frame"
DELIVERY = "application/vnd.quiver.delivery"
OCTETS = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"

_encode_json = msgspec.json.Encoder().encode


class Request:
    """What a client asks for, its body complete. Header names are in lower case."""

    def __init__(
        self,
        method: str,
        path: str,
        query_string: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        client: str = "",
        id: str = "",  # noqa: A002 - What everybody calls it.
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers: Mapping[str, str] = headers or {}
        self.body = body
        self.client = client
        self.id = id
        self.params: dict[str, str] = {}
        """The parts of the path that the route leaves open, decoded."""
        self.key: ApiKey | None = None
        """Who asks, where the broker wants to know."""

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters behind the question mark. Raises InvalidRequest when one comes twice."""
        found: dict[str, str] = {}
        for name, value in parse_qsl(self.query_string, keep_blank_values=True, max_num_fields=100):
            if name in found:
                raise InvalidRequest(f"the parameter {name!r} is there twice")
            found[name] = value
        return found

    @property
    def content_type(self) -> str:
        """The type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def accepts(self, media_type: str) -> bool:
        """Whether the client asked for this type by name."""
        return media_type in self.headers.get("accept", "")


class Response:
    """An answer. `headers` come in addition to those that every answer has."""

    __slots__ = ("body", "content_type", "headers", "status", "stream")

    def __init__(
        self,
        status: int = 200,
        body: bytes = b"",
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers
        self.stream: Callable[[Any], Any] | None = None
        """For an answer without an end: called with the connection once the head is sent."""


def json_response(value: object, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(status, _encode_json(value))
