"""HTTP/1.1 as bytes: a request to send, and a parser that takes a response in any pieces."""

from urllib.parse import urlencode

from quivermq.client.core.call import Answer, Call
from quivermq.errors import Unreachable

_HEAD_BYTES_MAX = 64 * 1024
_BODY_BYTES_MAX = 512 * 1024 * 1024
_CHUNK_LINE_BYTES_MAX = 1024
_END_OF_HEAD = b"\r\n\r\n"
_METHODS_WITH_BODY = ("POST", "PUT", "PATCH")


class BadResponse(Unreachable):
    """What came back is not HTTP, or larger than anything a broker sends."""


def request_bytes(call: Call, common: str, prefix: str = "") -> bytes:
    """The head of a request, and its body. `common` is the header lines that every request has."""
    path = prefix + (f"{call.path}?{urlencode(call.query)}" if call.query else call.path)
    lines = f"{call.method} {path} HTTP/1.1\r\n{common}"
    if call.accept is not None:
        lines += f"Accept: {call.accept}\r\n"
    for name, value in call.headers.items():
        lines += f"{name}: {value}\r\n"
    if call.body:
        lines += f"Content-Type: {call.content_type}\r\n"
    if call.body or call.method in _METHODS_WITH_BODY:
        lines += f"Content-Length: {len(call.body)}\r\n"
    return f"{lines}\r\n".encode("latin-1") + call.body


class ResponseParser:
    """Takes one response apart. `feed` it what comes; at the end of the connection call `end`.

    Both return the answer once it is whole. Bytes behind it are kept in `rest`. Raises BadResponse.
    """

    def __init__(self, *, is_head: bool = False, body_bytes_max: int = _BODY_BYTES_MAX) -> None:
        self._is_head = is_head
        self._body_bytes_max = body_bytes_max
        self._buffer = bytearray()
        self._head: tuple[int, dict[str, str], bool] | None = None
        self._length: int | None = None
        self._chunks: _Chunks | None = None

    @property
    def rest(self) -> bytes:
        """What came behind the answer: nothing, from an honest server that nobody asked for more."""
        return bytes(self._buffer)

    @property
    def has_begun(self) -> bool:
        return self._head is not None or bool(self._buffer)

    @property
    def wanted_bytes(self) -> int:
        """How much is missing for certain: worth reading at once."""
        return 0 if self._length is None else max(0, self._length - len(self._buffer))

    def feed(self, data: bytes) -> Answer | None:
        """The answer, if these bytes complete it."""
        self._buffer += data
        while self._head is None:
            if not self._take_head():
                return None
        return self._take_body()

    def end(self) -> Answer:
        """The answer whose body ends with the connection."""
        if self._head is None or self._length is not None or self._chunks is not None:
            raise BadResponse("the connection ended in the middle of an answer")
        return self._answer(self._taken(len(self._buffer)), keeps_alive=False)

    def _take_head(self) -> bool:
        end = self._buffer.find(_END_OF_HEAD)
        if end < 0 or end > _HEAD_BYTES_MAX:
            if len(self._buffer) > _HEAD_BYTES_MAX:
                raise BadResponse(f"the head of an answer is longer than {_HEAD_BYTES_MAX} bytes")
            return False
        lines = self._taken(end).decode("latin-1").split("\r\n")
        del self._buffer[: len(_END_OF_HEAD)]
        version, status = _status_line(lines[0])
        headers = _headers(lines[1:])
        if 100 <= status < 200:
            # An interim answer; the real one follows.
            return bool(self._buffer)
        connection = headers.get("connection", "").lower()
        keeps = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        self._head = (status, headers, keeps)
        self._frame_body(status, headers)
        return True

    def _frame_body(self, status: int, headers: dict[str, str]) -> None:
        """Find out where the body ends, as RFC 9112 has it."""
        if self._is_head or status in (204, 304):
            self._length = 0
        elif "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != "chunked":
                raise BadResponse(f"cannot read an answer in {headers['transfer-encoding']!r:.40}")
            self._chunks = _Chunks(self._body_bytes_max)
        elif "content-length" in headers:
            text = headers["content-length"]
            if not (text.isascii() and text.isdigit()):
                raise BadResponse(f"an answer has the length {text!r:.40}")
            self._length = int(text[:20])
            self._check_size(self._length)

    def _take_body(self) -> Answer | None:
        assert self._head is not None
        if self._chunks is not None:
            if not self._chunks.take(self._buffer):
                return None
            return self._answer(bytes(self._chunks.body), keeps_alive=self._head[2])
        if self._length is None:
            self._check_size(len(self._buffer))
            return None
        if len(self._buffer) < self._length:
            return None
        return self._answer(self._taken(self._length), keeps_alive=self._head[2])

    def _answer(self, body: bytes, *, keeps_alive: bool) -> Answer:
        assert self._head is not None
        # A connection on which more comes than was asked for cannot be trusted any more.
        return Answer(self._head[0], self._head[1], body, keeps_alive and not self._buffer)

    def _taken(self, count: int) -> bytes:
        with memoryview(self._buffer) as view:
            taken = bytes(view[:count])
        del self._buffer[:count]
        return taken

    def _check_size(self, size: int) -> None:
        if size > self._body_bytes_max:
            raise BadResponse(f"an answer is larger than {self._body_bytes_max} bytes")


class _Chunks:
    """A body in chunks, each behind a line with its length."""

    def __init__(self, body_bytes_max: int) -> None:
        self.body = bytearray()
        self._body_bytes_max = body_bytes_max
        # How much of this chunk is missing, its line end included; None while a line is awaited.
        self._missing: int | None = None
        self._is_last = False

    def take(self, buffer: bytearray) -> bool:
        """Take from the buffer what is there. True once the last chunk and its trailers are gone."""
        while True:
            if self._missing is not None:
                if len(buffer) < self._missing:
                    return False
                if buffer[self._missing - 2 : self._missing] != b"\r\n":
                    raise BadResponse("a chunk does not end where it should")
                self.body += buffer[: self._missing - 2]
                del buffer[: self._missing]
                self._missing = None
            end = buffer.find(b"\r\n")
            if end < 0 or end > _CHUNK_LINE_BYTES_MAX:
                if len(buffer) > _CHUNK_LINE_BYTES_MAX:
                    raise BadResponse("the line of a chunk is too long")
                return False
            line = bytes(buffer[:end])
            del buffer[: end + 2]
            if self._is_last:
                # Trailers say nothing that is needed here; an empty line ends them.
                if not line:
                    return True
                continue
            self._begin(line)

    def _begin(self, line: bytes) -> None:
        text = line.partition(b";")[0].strip()
        if not text or text.strip(b"0123456789abcdefABCDEF"):
            raise BadResponse(f"a chunk has the length {text!r:.40}")
        size = int(text, 16)
        if size + len(self.body) > self._body_bytes_max:
            raise BadResponse(f"an answer is larger than {self._body_bytes_max} bytes")
        if size:
            self._missing = size + 2
        else:
            self._is_last = True


def _status_line(line: str) -> tuple[str, int]:
    version, _, rest = line.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or len(status) < 3 or not (status.isascii() and status.isdigit()):
        raise BadResponse(f"this is not HTTP: {line!r:.80}")
    return version, int(status)


def _headers(lines: list[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadResponse(f"this is not a header: {line!r:.80}")
        headers[name.lower()] = value.strip()
    return headers
