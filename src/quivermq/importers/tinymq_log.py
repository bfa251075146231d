"""The files of one TinyMQ topic, read as one run of lines."""

import re
from array import array
from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from quivermq.disk import File
from quivermq.errors import StorageFailed
from quivermq.importers.files import SourceFiles, Unreadable, parse_json, rfc3339_us

_CHUNK_BYTES = 1024 * 1024
# More than most lines have.
_LINE_BYTES = 4096
# TinyMQ itself reads lines of up to 4 MiB.
LINE_BYTES_MAX = 64 * 1024 * 1024


class Line(NamedTuple):
    """A line without its end, and where it lies: which of the files, and at which byte."""

    file: int
    position: int
    data: bytes


class LogFiles(ExitStack):
    """Files that stay open, and as long as they were at first: a queue that still runs may replace them."""

    def __init__(self, files: SourceFiles, paths: Sequence[Path]) -> None:
        super().__init__()
        self.files = files
        self._files: list[tuple[File, int]] = []
        for path in paths:
            try:
                file = self.enter_context(closing(files.disk.open(path)))
                self._files.append((file, file.size()))
            except (FileNotFoundError, StorageFailed) as error:
                files.report(path, None, f"it cannot be read: {error}")

    def report(self, line: Line, problem: str) -> None:
        """Report what is wrong with a line."""
        self.files.report(self._files[line.file][0].path, line.position, problem, length=len(line.data))

    def lines(self, files: SourceFiles) -> Iterator[Line]:
        """All lines that are not empty. One that is too long is reported, and passed over unread."""
        for number, (file, size) in enumerate(self._files):
            try:
                yield from _lines_of(number, file, size, files)
            except StorageFailed as error:
                files.report(file.path, None, f"the rest of it cannot be read: {error}")

    def line_at(self, file: int, position: int) -> bytes:
        """The line that begins there."""
        opened, size = self._files[file]
        length = _LINE_BYTES
        while True:
            data = opened.read(position, min(length, size - position))
            end = data.find(b"\n")
            if end >= 0 or position + length >= size or length > LINE_BYTES_MAX:
                return data if end < 0 else data[:end]
            length *= 16


def _lines_of(number: int, file: File, size: int, files: SourceFiles) -> Iterator[Line]:
    # In parts, and joined only once the line ends: a long one would be copied again and again.
    parts: list[bytes] = []
    start = length = read = 0
    while read < size:
        chunk = file.read(read, min(_CHUNK_BYTES, size - read))
        if not chunk:
            files.report(file.path, read, "the file was cut while it was read")
            return
        read += len(chunk)
        for index, part in enumerate(chunk.split(b"\n")):
            if index:
                # Only the first part of a chunk goes on with a line.
                if data := _line(file.path, start, length, parts, files):
                    yield Line(number, start, data)
                start, length, parts = start + length + 1, 0, []
            length += len(part)
            if length <= LINE_BYTES_MAX:
                parts.append(part)
            else:
                parts.clear()
    if data := _line(file.path, start, length, parts, files):
        yield Line(number, start, data)


def _line(path: Path, start: int, length: int, parts: list[bytes], files: SourceFiles) -> bytes | None:
    """A line of so many bytes; None when it is blank, or too long."""
    if length > LINE_BYTES_MAX:
        problem = f"a line has {length} bytes, the limit is {LINE_BYTES_MAX}"
        files.report(path, start, problem, length=length)
        return None
    data = b"".join(parts)
    return data if data.strip() else None


PUT, ACK = "PUT", "ACK"

_CHECKSUM = b',"checksum":'
_CHECKSUM_END = re.compile(rb',\s*"checksum"\s*:\s*([0-9]{1,10})\s*\}\s*')
# What TinyMQ itself writes begins so, and the rest of it needs no look when the checksum is right.
_BEGINNING = re.compile(
    rb'\{"type":"(?:PUT","message":\{"id":"([^"\\\x00-\x1f]*)"|ACK","message_id":"([^"\\\x00-\x1f]*)")'
)
_ATTEMPTS_MAX = 2**31 - 1


class Glance(NamedTuple):
    """What has to be known of a line to tell which messages live."""

    is_put: bool
    id: bytes


class PutMessage(NamedTuple):
    """What a PUT says."""

    id: str
    topic: str
    value: bytes
    headers: dict[str, bytes] | None
    timestamp_us: int
    expires_at_us: int | None
    deliver_at_us: int | None
    retry_count: int
    put_us: int


def glance(line: bytes) -> Glance:
    """Whether the line is a PUT or an ACK, and of which message. Raises Unreadable for damage."""
    match = _BEGINNING.match(line)
    if match is not None and _is_summed(line):
        put_id, ack_id = match.groups()
        return Glance(put_id is not None, ack_id if put_id is None else put_id)
    record = parse_record(line)
    is_put = record["type"] == PUT
    message_id = message_of(record).id if is_put else _text(record, "message_id")
    return Glance(is_put, message_id.encode(errors="surrogatepass"))


def _is_summed(line: bytes) -> bool:
    """Whether the line ends with a checksum, as TinyMQ writes it, and it is right."""
    at = line.rfind(_CHECKSUM)
    digits = line[at + len(_CHECKSUM) : -1]
    if at < 0 or not digits.isdigit() or line[-1:] != b"}" or not (checksum := int(digits)):
        return False
    return crc32(b"}", crc32(memoryview(line)[:at])) == checksum


def parse_record(line: bytes) -> dict[str, Any]:
    """The record that a line is. Raises Unreadable."""
    record = _parsed(line)
    _check_sum(line, record)
    if record.get("type") not in (PUT, ACK):
        raise Unreadable(f"the line is neither a PUT nor an ACK but {str(record.get('type'))[:40]!r}")
    return record


def parse_put(line: bytes) -> PutMessage:
    """The message of a line at which `glance` has looked. Raises Unreadable."""
    return message_of(_parsed(line))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise Unreadable(f"the line is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise Unreadable("the line is not a JSON object")
    return record


def _check_sum(line: bytes, record: dict[str, Any]) -> None:
    checksum = record.get("checksum")
    if checksum is None or (checksum == 0 and isinstance(checksum, int)):
        return
    # Only the last one: a message may have a header of that name.
    matches = list(_CHECKSUM_END.finditer(line))
    if not matches or not isinstance(checksum, int) or int(matches[-1][1]) != checksum:
        raise Unreadable("the checksum is not a number at the end of the line")
    if crc32(line[: matches[-1].start()] + b"}") != checksum:
        raise Unreadable("the checksum of the line does not match")


def message_of(record: dict[str, Any]) -> PutMessage:
    """The message of a PUT. Raises Unreadable."""
    message = record.get("message")
    if not isinstance(message, dict):
        raise Unreadable("the line is a PUT without a message")
    try:
        timestamp_us = rfc3339_us(message.get("timestamp"))
        put_us = _moment_us(record, "timestamp")
        return PutMessage(
            _text(message, "id"),
            _text(message, "topic"),
            _payload(message.get("payload")),
            _headers(message.get("headers")),
            timestamp_us,
            _moment_us(message, "expires_at"),
            _moment_us(message, "deliver_at"),
            _retry_count(message.get("retry_count")),
            timestamp_us if put_us is None else put_us,
        )
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"the message of the line cannot be read: {error}") from None


def _text(given: dict[str, Any], name: str) -> str:
    text = given.get(name, "")
    if not isinstance(text, str):
        raise Unreadable(f"its {name} is not a text")
    return text


def _payload(given: object) -> bytes:
    if given is None:
        return b""
    if not isinstance(given, str):
        raise Unreadable("its payload is not a text")
    try:
        return a2b_base64(given, strict_mode=True)
    except NotBase64 as error:
        raise Unreadable(f"its payload is not base64: {error}") from None


def _headers(given: object) -> dict[str, bytes] | None:
    if given is None:
        return None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise Unreadable("its headers are not texts")
    # What stands for no character, such as half of a surrogate pair, is written out.
    return {
        name.encode(errors="backslashreplace").decode(): value.encode(errors="backslashreplace")
        for name, value in given.items()
    } or None


def _moment_us(given: dict[str, Any], name: str) -> int | None:
    moment = given.get(name)
    return None if moment is None else rfc3339_us(moment)


def _retry_count(given: object) -> int:
    if given is None:
        return 0
    if not isinstance(given, int) or isinstance(given, bool):
        raise Unreadable("its retry_count is not a number")
    return min(max(given, 0), _ATTEMPTS_MAX)


_PARTS = 64
_DIGEST_BYTES = 16
_NOTHING, _LIVE, _CONSUMED = range(3)


class LineIndex:
    """One pass over all lines; what is damaged is reported here, and stands for nothing."""

    def __init__(self, logs: LogFiles) -> None:
        self._logs = logs
        self._digests = [bytearray() for _ in range(_PARTS)]
        # The number of a line, twice, and one more for an ACK.
        self._codes = [array("Q") for _ in range(_PARTS)]
        self._positions = array("Q")
        # By file, the number of its first line.
        self._starts: list[int] = []
        for number, line in enumerate(logs.lines(logs.files)):
            self._take(number, line)
        self._states = bytearray(len(self._positions))
        # Where the last PUT of an id is, when it is not the first.
        self._last: dict[int, int] = {}
        while self._digests:
            self._decide(self._digests.pop(), self._codes.pop())

    def messages(self) -> Iterator[tuple[Line, bool]]:
        """The line that has each message, in the order of the first PUTs, and whether it lives."""
        states, last = self._states, self._last
        for number, line in enumerate(self._logs.lines(self._logs.files.quiet())):
            if number >= len(states):
                return
            state = states[number]
            if state == _NOTHING:
                continue
            yield self._line(last[number]) if number in last else line, state == _LIVE

    def _take(self, number: int, line: Line) -> None:
        while len(self._starts) <= line.file:
            self._starts.append(number)
        self._positions.append(line.position)
        try:
            is_put, message_id = glance(line.data)
        except Unreadable as error:
            self._logs.report(line, str(error))
            return
        digest = blake2b(message_id, digest_size=_DIGEST_BYTES).digest()
        part = digest[0] % _PARTS
        self._digests[part] += digest
        self._codes[part].append(number << 1 if is_put else number << 1 | 1)

    def _decide(self, digests: bytearray, codes: "array[int]") -> None:
        """What becomes of the ids of one part, line after line."""
        found: dict[bytes, tuple[int, int]] = {}
        gone: dict[bytes, tuple[int, int]] = {}
        for place, code in enumerate(codes):
            digest = bytes(digests[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES])
            number = code >> 1
            if code & 1:
                if digest in found:
                    gone[digest] = found.pop(digest)
            else:
                # One that was acknowledged and comes again is a new one.
                gone.pop(digest, None)
                found[digest] = (found[digest][0] if digest in found else number, number)
        for state, decided in ((_LIVE, found), (_CONSUMED, gone)):
            for first, last in decided.values():
                self._states[first] = state
                if last != first:
                    self._last[first] = last

    def _line(self, number: int) -> Line:
        file = max(n for n, start in enumerate(self._starts) if start <= number)
        position = self._positions[number]
        return Line(file, position, self._logs.line_at(file, position))
