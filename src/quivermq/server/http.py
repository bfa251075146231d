"""A request and its answer, as handlers see them; errors as answers; the head of an answer as bytes."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from quivermq.disk import real_path
from quivermq.errors import InvalidRequest, QuiverError, Unauthenticated, Unavailable, error_json
from quivermq.model.json import JSON
from quivermq.model.names import usual_origin

if TYPE_CHECKING:
    from quivermq.server.access import ApiKey
    from quivermq.server.memory import Portion

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"

_PARAMETERS_MAX = 100

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

CLOSE = "Connection: close\r\n"
KEEP_ALIVE = "Connection: keep-alive\r\n"

# A browser is not to take a message for a page or a script, whatever is in it.
_NO_SNIFFING = "X-Content-Type-Options: nosniff\r\n"
# An answer may have messages in it, and is old as soon as it is made.
_CACHE = "Cache-Control"
_NO_STORE = f"{_CACHE}: no-store\r\n"

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_WITHOUT_BODY = frozenset({204, 304})

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


class ResponseStream(Protocol):
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


class LiveStream:
    """A `ResponseStream` on a transport. The connection says when it is paused and when it ends."""

    __slots__ = ("_calls", "_task", "_transport", "is_closed", "is_paused")

    def __init__(self, transport: asyncio.Transport, *, is_paused: bool) -> None:
        self._transport = transport
        self._calls: list[Callable[[], None]] = []
        self._task: asyncio.Future[None] | None = None
        self.is_paused = is_paused
        self.is_closed = False

    def begin(self, start: Callable[[ResponseStream], Awaitable[None] | None]) -> None:
        """Let the writer begin."""
        try:
            going = start(self)
        except Exception:
            logger.exception("a stream could not begin")
            self.close()
            return
        if going is not None:
            self._task = asyncio.ensure_future(going)
            self._task.add_done_callback(self._on_done)

    def write(self, data: bytes) -> bool:
        if self.is_paused or self.is_closed:
            return False
        self._transport.write(data)
        return True

    def on_close(self, call: Callable[[], None]) -> None:
        if self.is_closed:
            call()
        else:
            self._calls.append(call)

    def close(self) -> None:
        self._transport.close()

    def end(self) -> None:
        """Tell the writer that nobody reads any more. For the connection; calling twice is allowed."""
        self.is_closed = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, task: "asyncio.Future[None]") -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a stream failed", exc_info=error)
        self.close()


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
        self.stream: Callable[[ResponseStream], Awaitable[None] | None] | None = None
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


def answered(value: object) -> Response:
    """What a handler returned as an answer: bytes are JSON already, and None has nothing to say."""
    if isinstance(value, Response):
        return value
    if isinstance(value, bytes):
        return Response(200, value)
    return Response(204) if value is None else json_response(value)


# Errors.


class Hiding:
    """Takes the paths of this machine out of what is told over the network.

    Errors and problems name files, which helps whoever has the machine. Over HTTP a file of the queue is
    named by where it lies below the data directory, and any other by its last name alone.
    """

    def __init__(self, root: Path) -> None:
        self._roots = sorted({root.absolute(), real_path(root), root}, key=lambda path: -len(str(path)))
        names = "|".join(re.escape(str(path)) for path in self._roots)
        # Not in the middle of another name: a data directory may be called "data".
        self._below = re.compile(rf"(?<![\w./-])(?:{names})/")
        self._itself = re.compile(rf"(?<![\w./-])(?:{names})(?![\w-])")

    def text(self, text: str) -> str:
        """The same, without the place of the data directory."""
        return self._itself.sub("the data directory", self._below.sub("", text))

    def path(self, path: Path) -> str:
        """What a path may be called."""
        for root in self._roots:
            if path.is_relative_to(root):
                return str(path.relative_to(root))
        return path.name

    def message(self, error: QuiverError) -> str:
        """What an error says."""
        text, path = str(error), getattr(error, "path", None)
        if isinstance(path, Path):
            shown = self.path(path)
            text = text.replace(str(path), "the data directory" if shown == "." else shown)
        return self.text(text)


def error_response(error: QuiverError, hiding: Hiding | None = None) -> Response:
    """An error in JSON, with the fields it was raised with. One that may name files needs `hiding`."""
    message = None if hiding is None else hiding.message(error)
    fields = {name: _plain(value, hiding) for name, value in vars(error).items() if name[:1] != "_"}
    response = json_response({"error": {**fields, **error_json(error, message)}}, error.http_status)
    if isinstance(error, Unavailable):
        response.headers = {"Retry-After": "1"}
    elif isinstance(error, Unauthenticated):
        response.headers = {"WWW-Authenticate": "Bearer"}
    return response


def _plain(value: object, hiding: Hiding | None) -> object:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, hiding) for item in value]
    if isinstance(value, Path) and hiding is not None:
        return hiding.path(value)
    return str(value) if hiding is None else hiding.text(str(value))


def problem(status: int, code: str, message: str, *, retryable: bool = False) -> Response:
    """An error that only HTTP knows, in the form of all others."""
    return json_response({"error": {"code": code, "message": message, "retryable": retryable}}, status)


# The head of an answer. Made for each answer, so it is lean.


def date_line(unix_s: float) -> str:
    """The header that says when an answer was made. Good for a second."""
    return f"Date: {formatdate(unix_s, usegmt=True)}\r\n"


def head(response: Response, request_id: str, date: str, connection: str = "") -> bytes:
    """The head of an answer. `date` and `connection` are whole lines."""
    status = response.status
    line = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n"
    more = _NO_STORE if response.headers is None else _lines(response)
    if status in _WITHOUT_BODY:
        described = ""
    elif response.stream is not None:
        described = f"Content-Type: {response.content_type}\r\n"
    else:
        described = f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n"
    text = f"{line}{date}{described}{connection}{more}{_NO_SNIFFING}Quiver-Request-Id: {request_id}\r\n\r\n"
    return text.encode("latin-1", "replace")


def has_body(response: Response) -> bool:
    """Whether bytes follow the head, unless only the head was asked for."""
    return response.status not in _WITHOUT_BODY


def _lines(response: Response) -> str:
    assert response.headers is not None
    first = "" if _CACHE in response.headers else _NO_STORE
    return first + "".join(f"{name}: {_one_line(value)}\r\n" for name, value in response.headers.items())


def _one_line(value: str) -> str:
    # A line break in a value would let whoever chose the value write headers, or a whole answer.
    return value.replace("\r", " ").replace("\n", " ")
