"""The files of one TinyMQ topic, read as one run of lines."""

import re
from array import array
from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self
from zlib import crc32

from quivermq.disk import Disk, File
from quivermq.errors import StorageFailed
from quivermq.importers.files import parse_json, rfc3339_us
from quivermq.importers.model import Findings

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


class LogFiles:
    """Files that stay open, and as long as they were at first: a queue that still runs may replace them."""

    def __init__(self, disk: Disk, paths: Sequence[Path], findings: Findings) -> None:
        self._files: list[tuple[File, int]] = []
        self._open = ExitStack()
        for path in paths:
            try:
                file = disk.open(path)
                self._open.callback(file.close)
                self._files.append((file, file.size()))
            except (FileNotFoundError, StorageFailed) as error:
                findings.add(path, None, f"it cannot be read: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def path(self, file: int) -> Path:
        return self._files[file][0].path

    def lines(self, findings: Findings) -> Iterator[Line]:
        """All lines that are not empty. One that is too long is told, and passed over unread."""
        for number, (file, size) in enumerate(self._files):
            try:
                yield from _lines_of(number, file, size, findings)
            except StorageFailed as error:
                findings.add(file.path, None, f"the rest of it cannot be read: {error}")

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


def _lines_of(number: int, file: File, size: int, findings: Findings) -> Iterator[Line]:
    # In parts, and joined only once the line ends: a long one would be copied again and again.
    rest: list[bytes] = []
    rest_bytes, at = 0, 0
    skipped_from: int | None = None
    read = 0
    while read < size:
        chunk = file.read(read, min(_CHUNK_BYTES, size - read))
        if not chunk:
            findings.add(file.path, read, "the file was cut while it was read")
            return
        read += len(chunk)
        *whole, last = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*rest, whole[0]))
            if skipped_from is not None:
                _tell_long(findings, file.path, skipped_from, at + len(whole[0]))
                at += len(whole.pop(0)) + 1
                skipped_from = None
            rest, rest_bytes = [], 0
            for data in whole:
                if data.strip():
                    yield Line(number, at, data)
                at += len(data) + 1
        rest.append(last)
        rest_bytes += len(last)
        if rest_bytes > LINE_BYTES_MAX or skipped_from is not None:
            skipped_from = at if skipped_from is None else skipped_from
            at += rest_bytes
            rest, rest_bytes = [], 0
    if skipped_from is not None:
        _tell_long(findings, file.path, skipped_from, size)
    elif (data := b"".join(rest)).strip():
        yield Line(number, at, data)


def _tell_long(findings: Findings, path: Path, start: int, end: int) -> None:
    problem = f"a line has {end - start} bytes, the limit is {LINE_BYTES_MAX}"
    findings.add(path, start, problem, length=end - start)


PUT, ACK = "PUT", "ACK"

_CHECKSUM = b',"checksum":'
_CHECKSUM_END = re.compile(rb',\s*"checksum"\s*:\s*([0-9]{1,10})\s*\}\s*')
# What TinyMQ itself writes begins so, and the rest of it needs no look when the checksum is right.
_BEGINNING = re.compile(
    rb'\{"type":"(?:PUT","message":\{"id":"([^"\\\x00-\x1f]*)"|ACK","message_id":"([^"\\\x00-\x1f]*)")'
)
_ATTEMPTS_MAX = 2**31 - 1


class UnreadableLine(Exception):
    """Why a line cannot be used."""


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
    """Whether the line is a PUT or an ACK, and of which message. Raises UnreadableLine for damage."""
    match = _BEGINNING.match(line)
    if match is not None and _is_summed(line):
        put_id, ack_id = match.groups()
        return Glance(put_id is not None, ack_id if put_id is None else put_id)
    record = parse_record(line)
    if record["type"] == PUT:
        return Glance(True, message_of(record).id.encode(errors="surrogatepass"))
    return Glance(False, _text(record, "message_id").encode(errors="surrogatepass"))


def _is_summed(line: bytes) -> bool:
    """Whether the line ends with a checksum, as TinyMQ writes it, and it is right."""
    at = line.rfind(_CHECKSUM)
    told = line[at + len(_CHECKSUM) : -1]
    if at < 0 or not told.isdigit() or line[-1:] != b"}" or not (checksum := int(told)):
        return False
    return crc32(b"}", crc32(memoryview(line)[:at])) == checksum


def parse_record(line: bytes) -> dict[str, Any]:
    """The record that a line is. Raises UnreadableLine."""
    record = _parsed(line)
    _check_sum(line, record)
    if record.get("type") not in (PUT, ACK):
        raise UnreadableLine(f"the line is neither a PUT nor an ACK but {str(record.get('type'))[:40]!r}")
    return record


def parse_put(line: bytes) -> PutMessage:
    """The message of a line at which `glance` has looked. Raises UnreadableLine."""
    return message_of(_parsed(line))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise UnreadableLine(f"the line is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise UnreadableLine("the line is not a JSON object")
    return record


def _check_sum(line: bytes, record: dict[str, Any]) -> None:
    told = record.get("checksum")
    if told is None or (told == 0 and isinstance(told, int)):
        return
    # Only the last one: a message may have a header of that name.
    matches = list(_CHECKSUM_END.finditer(line))
    if not matches or not isinstance(told, int) or int(matches[-1][1]) != told:
        raise UnreadableLine("the checksum is not a number at the end of the line")
    summed = line[: matches[-1].start()] + b"}"
    if crc32(summed) != told:
        raise UnreadableLine("the checksum of the line does not match")


def message_of(record: dict[str, Any]) -> PutMessage:
    """The message of a PUT. Raises UnreadableLine."""
    told = record.get("message")
    if not isinstance(told, dict):
        raise UnreadableLine("the line is a PUT without a message")
    try:
        timestamp_us = rfc3339_us(told.get("timestamp"))
        put = record.get("timestamp")
        return PutMessage(
            _text(told, "id"),
            _text(told, "topic"),
            _payload(told.get("payload")),
            _headers(told.get("headers")),
            timestamp_us,
            _moment_us(told.get("expires_at")),
            _moment_us(told.get("deliver_at")),
            _count(told.get("retry_count")),
            timestamp_us if put is None else rfc3339_us(put),
        )
    except (ValueError, OverflowError) as error:
        raise UnreadableLine(f"the message of the line cannot be read: {error}") from None


def _text(told: dict[str, Any], name: str) -> str:
    text = told.get(name, "")
    if not isinstance(text, str):
        raise UnreadableLine(f"its {name} is not a text")
    return text


def _payload(told: object) -> bytes:
    if told is None:
        return b""
    if not isinstance(told, str):
        raise ValueError("its payload is not a text")
    try:
        return a2b_base64(told, strict_mode=True)
    except NotBase64 as error:
        raise ValueError(f"its payload is not base64: {error}") from None


def _headers(told: object) -> dict[str, bytes] | None:
    if told is None:
        return None
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        raise ValueError("its headers are not texts")
    # What stands for no character, such as half of a surrogate pair, is written out.
    return {
        name.encode(errors="backslashreplace").decode(): value.encode(errors="backslashreplace")
        for name, value in told.items()
    } or None


def _moment_us(told: object) -> int | None:
    return None if told is None else rfc3339_us(told)


def _count(told: object) -> int:
    if told is None:
        return 0
    if not isinstance(told, int) or isinstance(told, bool):
        raise ValueError("its retry_count is not a number")
    return min(max(told, 0), _ATTEMPTS_MAX)


_PARTS = 64
_DIGEST_BYTES = 16
_NOTHING, _LIVE, _CONSUMED = range(3)


class LineIndex:
    """One pass over all lines; what is damaged is told here, and stands for nothing."""

    def __init__(self, files: LogFiles, findings: Findings) -> None:
        self._files = files
        self._digests = [bytearray() for _ in range(_PARTS)]
        # The number of a line, twice, and one more for an ACK.
        self._codes = [array("Q") for _ in range(_PARTS)]
        self._places: dict[int, tuple[int, int]] = {}
        self._positions = array("Q")
        self._starts: list[int] = []
        for number, line in enumerate(files.lines(findings)):
            self._take(number, line, findings)
        self._states = bytearray(len(self._positions))
        # Where the last PUT of an id is, when it is not the first.
        self._last: dict[int, int] = {}
        while self._digests:
            self._decide(self._digests.pop(), self._codes.pop())

    def messages(self) -> Iterator[tuple[Line, bool]]:
        """The line that tells of each message, in the order of the first PUTs, and whether it lives."""
        states, last = self._states, self._last
        for number, line in enumerate(self._files.lines(Findings(0))):
            if number >= len(states):
                return
            state = states[number]
            if state == _NOTHING:
                continue
            yield self._line(last[number]) if number in last else line, state == _LIVE

    def _take(self, number: int, line: Line, findings: Findings) -> None:
        while len(self._starts) <= line.file:
            self._starts.append(number)
        self._positions.append(line.position)
        try:
            is_put, message_id = glance(line.data)
        except UnreadableLine as error:
            path = self._files.path(line.file)
            findings.add(path, line.position, str(error), length=len(line.data))
            return
        digest = blake2b(message_id, digest_size=_DIGEST_BYTES).digest()
        part = digest[0] % _PARTS
        self._digests[part] += digest
        self._codes[part].append(number << 1 if is_put else number << 1 | 1)

    def _decide(self, digests: bytearray, codes: "array[int]") -> None:
        """What becomes of the ids of one part, told line after line."""
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
        return Line(file, position, self._files.line_at(file, position))
