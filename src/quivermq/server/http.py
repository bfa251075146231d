"""A request and its answer, as handlers see them. Nothing here knows a socket."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from quivermq.errors import InvalidRequest
from quivermq.topic.names import usual_origin

if TYPE_CHECKING:
    from quivermq.server.access import ApiKey
    from quivermq.server.making import Portion

JSON = "application/json"
FRAME = "application/vnd.quiver.frame"
DELIVERY = "application/vnd.quiver.delivery"
OCTETS = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"

_PARAMETERS_MAX = 100

encode_json = msgspec.json.Encoder().encode


class Request:
    """What a client asks for, its body complete.

    Header names are in lower case. Their values are decoded as Latin-1, so that no byte is lost.
    """

    __slots__ = (
        "_query",
        "body",
        "body_bytes_max",
        "client",
        "headers",
        "id",
        "is_admitted",
        "key",
        "method",
        "origin_of",
        "params",
        "path",
        "portion",
        "query_string",
    )

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
        self._query: dict[str, str] | None = None
        self.key: ApiKey | None = None
        """Who asks, where the broker wants to know."""
        self.origin_of: Callable[[str], str | None] = usual_origin
        """The topic whose dead letters a topic has, if it has any: a key for the one is for the other."""
        self.is_admitted = False
        """Whether the gate was asked already, before the body was read."""
        self.body_bytes_max: int | None = None
        """How large the body may be, once the gate was asked; None leaves it to the settings."""
        self.portion: Portion | None = None
        """The room in which its answer was made, until whoever takes the answer ends it."""

    @property
    def query(self) -> dict[str, str]:
        """The parameters behind the question mark. Raises InvalidRequest when one is there twice."""
        if self._query is not None:
            return self._query
        try:
            pairs = parse_qsl(self.query_string, keep_blank_values=True, max_num_fields=_PARAMETERS_MAX)
        except ValueError:
            raise InvalidRequest(f"more than {_PARAMETERS_MAX} parameters are too many") from None
        found: dict[str, str] = {}
        for name, value in pairs:
            if name in found:
                raise InvalidRequest(f"the parameter {name!r} is there twice")
            found[name] = value
        self._query = found
        return found

    @property
    def content_type(self) -> str:
        """The type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def accepts(self, media_type: str) -> bool:
        """Whether the client asked for this type by name."""
        return media_type in self.headers.get("accept", "")


class Stream(Protocol):
    """An answer that goes on. Ends with the connection."""

    is_paused: bool
    """Whether the client does not keep up: what is written then is dropped."""
    is_closed: bool

    def write(self, data: bytes) -> bool:
        """Send more. False when it was dropped, because the client does not keep up or is gone."""
        ...

    def on_close(self, call: Callable[[], None]) -> None:
        """Call this once the client is gone or the broker drains; at once when that is so already."""
        ...

    def close(self) -> None:
        """End the answer."""
        ...


class Response:
    """An answer. `headers` come in addition to those that every answer has."""

    __slots__ = ("body", "content_type", "headers", "status", "stream", "unsent")

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
        self.stream: Callable[[Stream], Awaitable[None] | None] | None = None
        """For an answer without an end: called with the stream once the head and `body` are sent.

        What it returns to be awaited is cancelled when the client goes, and ends the stream when it ends.
        """
        self.unsent: Callable[[], None] | None = None
        """Called, on the event loop, when the client has gone before all of it was sent."""


class Later:
    """An answer that comes later, on the event loop: a future without a turn of the loop, which costs.

    Whoever waits for it sets `then`; whoever counts it sets `before`, which is called first.
    """

    __slots__ = ("before", "then")

    def __init__(self) -> None:
        self.before: Callable[[Response], None] | None = None
        self.then: Callable[[Response], None] | None = None

    def set(self, response: Response) -> None:
        """Hand the answer over, unless nobody waits any more."""
        if self.then is not None:
            if self.before is not None:
                self.before(response)
            self.then(response)

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.then = None

    def __await__(self) -> Generator[Any, None, Response]:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.then = answer.set_result
        return answer.__await__()


def json_response(value: object, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(status, encode_json(value))
