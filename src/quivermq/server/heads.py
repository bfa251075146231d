"""The head of an answer as bytes: everything before its body. Called for each answer, so it is lean."""

from email.utils import formatdate
from http import HTTPStatus

from quivermq.server.http import Response

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
