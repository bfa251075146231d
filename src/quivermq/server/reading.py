"""From the bytes of a connection to requests, and to the one answer for what is none. No sockets here.

Every request passes through here, so the code is lean rather than pretty.
"""

import re
from collections.abc import Callable
from typing import NoReturn

import httptools

from quivermq.errors import InvalidRequest, MessageTooLarge, QuiverError
from quivermq.server.http import KEEP_ALIVE, Request, Response, error_response, problem
from quivermq.settings import ServerSettings

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}

# Headers as most clients spell them: looking one up costs less than decoding it.
_NAMES = {
    spelling.encode(): name
    for name in (
        *("accept", "accept-encoding", "accept-language", "authorization", "cache-control", "connection"),
        *("content-length", "content-type", "expect", "host", "quiver-request-id", "transfer-encoding"),
        *("user-agent",),
    )
    for spelling in (name, name.title())
}

# With two of these, two servers in a row may understand one request in two ways.
_ONCE = frozenset(
    {"authorization", "content-length", "content-type", "expect", "host", "transfer-encoding"}
)

# A body that is larger is only read when the request is admitted.
UNASKED_BYTES = 16 * 1024
# A header takes far more memory than it has bytes, so their number has an end, too.
_HEADERS_MAX = 200
# So many parts of a body are held one by one: tiny ones take more memory than what they carry.
_PARTS_MAX = 1024


_LONG_HEAD = "head_too_large"


class _Stopped(Exception):
    """Leaves the parser: the answer to what it read is known."""


class Reader:
    """Reads requests one after the other and hands each to `take` when it is complete."""

    __slots__ = (
        "_admit",
        "_allowed_bytes",
        "_begun_bytes",
        "_body",
        "_body_bytes",
        "_client",
        "_early_body",
        "_fed_bytes",
        "_has_progress",
        "_has_stopped",
        "_headers",
        "_is_asked",
        "_is_deaf",
        "_new_id",
        "_parser",
        "_request",
        "_settings",
        "_stalled_bytes",
        "_take",
        "_url",
        "begun",
        "is_last",
        "is_reading",
        "keep_alive",
        "refusal",
        "wants_continue",
    )

    def __init__(
        self,
        settings: ServerSettings,
        client: str,
        take: Callable[[Request], None],
        new_id: Callable[[], str],
        admit: Callable[[Request], Response | None] | None = None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._take = take
        self._new_id = new_id
        self._admit = admit
        self._allowed_bytes = UNASKED_BYTES
        self._is_asked = False
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._request: Request | None = None
        self._body: list[bytes] = []
        self._early_body = bytearray()
        self._body_bytes = 0
        self._fed_bytes = 0
        self._stalled_bytes = 0
        self._begun_bytes = 0
        self._has_progress = False
        self._has_stopped = False
        self._is_deaf = False
        self.begun = 0
        """How many requests have begun to arrive."""
        self.is_reading = False
        """Whether a request has begun to arrive and is not complete."""
        self.is_last = False
        """Whether the request that is being read, or was read last, ends the connection."""
        self.wants_continue = False
        """Whether the client waits to be told that it may send the body."""
        self.keep_alive = ""
        """The line for clients that have to be told that the connection stays open."""
        self.refusal: Response | None = None
        """What to answer in place of what is read, after which nothing more is read."""

    def feed(self, data: bytes) -> None:
        """Read on. May call `take` any number of times, and set `refusal`."""
        if self._is_deaf:
            return
        assert self._parser is not None
        self._fed_bytes = len(data)
        self._has_progress = self._has_stopped = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # It was answered as a request without an upgrade. What follows would be another protocol.
            self._is_deaf = True
        except httptools.HttpParserCallbackError:
            # A bug in here must not look as if the client had sent something wrong. What the parser's error
            # came from does not tell: that may be anything that is being handled further up.
            if not self._has_stopped:
                raise
        except httptools.HttpParserError as error:
            if not self._is_deaf:
                self.refuse(error_response(InvalidRequest(f"this is not HTTP/1.1: {error}")))
        if self.is_reading and not self._has_progress:
            self._look_at_progress()

    @property
    def held_bytes(self) -> int:
        """How much of a request that is not complete is held."""
        return self._body_bytes + self._stalled_bytes

    def refuse(self, response: Response) -> None:
        """Answer this in place of the request that is being read, and read nothing more."""
        self.refusal = response
        self._is_deaf = self.is_last = True
        self.is_reading = self.wants_continue = False
        self._forget()

    def stop(self) -> None:
        """Read nothing more. The parser and this would otherwise keep each other alive."""
        self._is_deaf = True
        self._parser = None
        self._forget()

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._is_deaf:
            self._halt()
        self._url = b""
        self._headers = {}
        self._stalled_bytes = 0
        self._begun_bytes = self._fed_bytes
        self._is_asked = False
        self._has_progress = self.is_reading = True
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = _NAMES.get(name) or name.lower().decode("latin-1")
        headers = self._headers
        if key not in headers:
            if len(headers) == _HEADERS_MAX:
                self._stop_with(
                    431,
                    _LONG_HEAD,
                    f"more than {_HEADERS_MAX} headers are too many: a message that has more goes as JSON",
                )
            headers[key] = value.decode("latin-1")
        elif key in _ONCE:
            self._stop(InvalidRequest(f"the header {key} is there twice"))
        else:
            headers[key] += ", " + value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        headers, settings = self._headers, self._settings
        # What came together with its first byte may have been the end of the request before it.
        if self._fed_bytes + self._stalled_bytes + self._begun_bytes > settings.head_bytes_max:
            self._check_head_length()
        self._stalled_bytes = 0
        self._has_progress = True
        if (version := self._parser.get_http_version()) == "1.1":
            if "host" not in headers:
                self._stop(InvalidRequest("the request has no Host header"))
        elif version != "1.0":
            self._stop(InvalidRequest("the request does not say that it is HTTP/1.1"))
        size = 0
        if "content-length" in headers:
            if (size := int(headers["content-length"])) > settings.body_bytes_max:
                self._stop_at_size(size)
        elif "transfer-encoding" in headers and headers["transfer-encoding"].lower() != "chunked":
            self._stop(InvalidRequest("a body needs a Content-Length, or Transfer-Encoding: chunked"))
        if "content-encoding" in headers and headers["content-encoding"].lower() != "identity":
            # Stored as it is, it would come out as bytes that nobody says how to read.
            self._stop_with(
                415,
                "unsupported_encoding",
                "a body goes as it is: a frame may have a codec, and a topic compresses by itself",
            )
        if "connection" in headers or "expect" in headers:
            self._look_at_connection()
        self._request = self._new_request()
        # What may follow the last chunk of a body looks like headers, and must not become any.
        self._headers = {}
        if not self._parser.should_keep_alive():
            self.is_last = True
        self._allowed_bytes = min(UNASKED_BYTES, settings.body_bytes_max)
        if size > UNASKED_BYTES:
            self._ask()
            if size > self._allowed_bytes:
                self._stop_at_size(size)

    def on_body(self, body: bytes) -> None:
        self._stalled_bytes = 0
        self._has_progress = True
        self._body_bytes += len(body)
        if self._body_bytes > self._allowed_bytes:
            if not self._is_asked:
                self._ask()
            if self._body_bytes > self._allowed_bytes:
                self._stop_at_size(self._body_bytes)
        self._body.append(body)
        if len(self._body) == _PARTS_MAX:
            self._early_body += b"".join(self._body)
            self._body = []

    def on_message_complete(self) -> None:
        request = self._request
        assert request is not None
        self._request = None
        self.is_reading = self.wants_continue = False
        if self._body_bytes:
            if self._early_body:
                request.body = b"".join((self._early_body, *self._body))
                self._early_body = bytearray()
            else:
                request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._body = []
            self._body_bytes = 0
        if self.is_last:
            self._is_deaf = True
        self._take(request)

    # The head.

    def _new_request(self) -> Request:
        assert self._parser is not None
        headers = self._headers
        raw_method = self._parser.get_method()
        url = self._url.decode("latin-1")
        if url[:1] != "/":
            url = self._without_origin(url)
        path, _, query = url.partition("?")
        request_id = headers.get("quiver-request-id")
        if request_id is None or _REQUEST_ID.fullmatch(request_id) is None:
            request_id = self._new_id()
        method = _METHODS.get(raw_method) or raw_method.decode("latin-1")
        return Request(method, path, query, headers, b"", self._client, request_id)

    def _without_origin(self, url: str) -> str:
        """The path of a URL that names its server as well, which clients send to proxies."""
        scheme, separator, rest = url.partition("://")
        if separator and scheme.lower() in ("http", "https"):
            return "/" + rest.partition("/")[2]
        if url != "*":
            self._stop(InvalidRequest("the broker is no proxy: ask it for a path"))
        return url

    def _look_at_connection(self) -> None:
        assert self._parser is not None
        headers = self._headers
        is_old = self._parser.get_http_version() == "1.0"
        self.keep_alive = KEEP_ALIVE if is_old else ""
        if self._parser.should_upgrade():
            # The parser would take the body for the other protocol.
            if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
                self._stop(InvalidRequest("the broker speaks HTTP/1.1: send this without an Upgrade"))
            self.is_last = True
        if "expect" in headers and not is_old:
            if headers["expect"].lower() != "100-continue":
                self._stop_with(417, "expectation_failed", "the broker knows 100-continue only")
            self.wants_continue = True

    # What is refused.

    def _ask(self) -> None:
        """Read on only if the request may be made at all."""
        assert self._request is not None
        self._is_asked = True
        if self._admit is not None and (response := self._admit(self._request)) is not None:
            self._end(response)
        most = self._settings.body_bytes_max
        limit = self._request.body_bytes_max
        self._allowed_bytes = most if limit is None else min(most, limit)

    def _check_head_length(self) -> None:
        length = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers.items())
        if length > self._settings.head_bytes_max:
            self._end(self._long_head())

    def _look_at_progress(self) -> None:
        """Count what is neither a whole head nor a part of a body, so that it ends some time."""
        self._stalled_bytes += self._fed_bytes
        if self._stalled_bytes > self._settings.head_bytes_max:
            self.refuse(self._long_head())

    def _stop_at_size(self, size: int) -> NoReturn:
        most = self._settings.body_bytes_max
        if size > most:
            self._stop(
                MessageTooLarge(
                    "the body", size_bytes=size, limit_bytes=most, setting="server.body_bytes_max"
                )
            )
        self._stop_with(
            413,
            MessageTooLarge.code,
            f"the body has {size} bytes or more, and this call takes {self._allowed_bytes}: send less",
        )

    def _stop_with(self, status: int, code: str, message: str) -> NoReturn:
        self._end(problem(status, code, message))

    def _end(self, response: Response) -> NoReturn:
        self.refuse(response)
        self._halt()

    def _halt(self) -> NoReturn:
        """Make the parser stop where it is."""
        self._has_stopped = True
        raise _Stopped

    def _stop(self, error: QuiverError) -> NoReturn:
        self._end(error_response(error))

    def _forget(self) -> None:
        """Let go of what has arrived of a request: the connection may stay for a while."""
        self._request = None
        self._body_bytes = self._stalled_bytes = 0
        self._body = []
        self._early_body = bytearray()

    def _long_head(self) -> Response:
        most = self._settings.head_bytes_max
        return problem(
            431,
            _LONG_HEAD,
            f"the line and the headers of a request have {most} bytes at most:"
            " send less or raise server.head_bytes_max",
        )
