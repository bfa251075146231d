"""Frames and indexes cut into their parts, each with a word on what it means: for people to read."""

from collections.abc import Iterator
from struct import calcsize, unpack_from
from typing import NamedTuple

from quivermq.frame import HEADER_BYTES, Column, Frame

# Format and name of every field of a header, in stored order.
HEADER = [
    ("4s", "magic"),
    ("I", "header_crc"),
    ("I", "body_crc"),
    ("I", "stored_bytes"),
    ("I", "raw_bytes"),
    ("I", "message_count"),
    ("q", "base_offset"),
    ("q", "append_time"),
    ("q", "timestamp_min"),
    ("q", "timestamp_max"),
    ("Q", "producer_id"),
    ("I", "base_sequence"),
    ("I", "leader_epoch"),
    ("H", "producer_epoch"),
    ("H", "columns"),
    ("H", "flags"),
    ("B", "codec"),
    ("B", "version"),
]
CHECKSUMS = {"header_crc", "body_crc", "crc"}


class Part(NamedTuple):
    """Some bytes that belong together."""

    position: int
    data: bytes
    meaning: str


def as_text(parts: Iterator[Part]) -> str:
    """Position, bytes in hex and meaning; a part that is too long for a line goes on in the next."""
    return "".join(
        f"{position:>4}  {data.hex(' '):<23}  {meaning}\n"
        for part in parts
        for position, data, meaning in _lines(part)
    )


def _lines(part: Part) -> Iterator[Part]:
    for at in range(0, len(part.data), 8):
        yield Part(part.position + at, part.data[at : at + 8], "…" if at else part.meaning)


def annotated_index(data: bytes) -> Iterator[Part]:
    header = [("4s", "magic"), ("I", "version"), ("q", "base_offset"), ("12s", "zeros")]
    entry = [("q", "offset"), ("q", "timestamp"), ("q", "position"), ("4s", "zeros")]
    yield from _fields(data, 0, [*header, ("I", "crc")])
    for position in range(32, len(data), 32):
        yield from _fields(data, position, [*entry, ("I", "crc")])


def annotated_frame(data: bytes) -> Iterator[Part]:
    """The parts of a frame that is valid and not compressed."""
    frame = Frame.parse(data)
    yield from _fields(data, 0, HEADER)
    cutter = _Cutter(bytes(frame.raw))
    if frame.is_control:
        record = bytes(frame.raw).rstrip(b"\0")
        cutter.take(len(record), "the record, JSON")
    else:
        cutter.columns(frame.header.columns, len(frame))
    yield from cutter.parts


def _fields(data: bytes, position: int, fields: list[tuple[str, str]]) -> Iterator[Part]:
    for kind, name in fields:
        size = calcsize("<" + kind)
        (value,) = unpack_from("<" + kind, data, position)
        if name in CHECKSUMS:
            value = f"{value:#010x}"
        elif isinstance(value, bytes):
            value = value.decode() if value.isalnum() else ""
        yield Part(position, data[position : position + size], f"{name} {value}".strip())
        position += size


class _Cutter:
    """Takes one buffer after the other off a body that is known to be valid."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._position = 0
        self.parts: list[Part] = []

    def take(self, length: int, meaning: str) -> bytes:
        data = self._body[self._position : self._position + length]
        self._add(data, meaning)
        self._add(bytes(-length % 8), "padding")
        return data

    def _add(self, data: bytes, meaning: str) -> None:
        if data:
            self.parts.append(Part(HEADER_BYTES + self._position, data, meaning))
            self._position += len(data)

    def columns(self, columns: int, count: int) -> None:
        self.binary(count, "value")
        if columns & Column.KEY:
            self.bitmap(count, "key")
            self.binary(count, "key")
        if columns & Column.HEADERS:
            pairs = self.numbers("i", count + 1, "headers: list offsets")[-1]
            self.binary(pairs, "headers: name")
            self.binary(pairs, "headers: value")
        if columns & Column.TIMESTAMP:
            self.numbers("q", count, "timestamp")
        if columns & Column.EXPIRES_AT:
            self.bitmap(count, "expires_at")
            self.numbers("q", count, "expires_at")
        if columns & Column.DEDUP_ID:
            self.bitmap(count, "dedup_id")
            self.binary(count, "dedup_id")
        if columns & Column.ORIGIN_ID:
            self.bitmap(count, "origin_id")
            self.binary(count, "origin_id")

    def binary(self, count: int, name: str) -> None:
        length = self.numbers("i", count + 1, f"{name} offsets")[-1]
        text = self._body[self._position : self._position + length].decode()
        self.take(length, f"{name} data {text!r}")

    def bitmap(self, count: int, name: str) -> None:
        self.take((count + 7) // 8, f"{name} validity, one bit a message")

    def numbers(self, kind: str, count: int, name: str) -> tuple[int, ...]:
        numbers = unpack_from(f"<{count}{kind}", self._body, self._position)
        size = calcsize(f"<{kind}")
        for place, number in enumerate(numbers):
            part = self._body[self._position : self._position + size]
            self._add(part, f"{name} [{place}] {number}")
        self._add(bytes(-self._position % 8), "padding")
        return numbers
