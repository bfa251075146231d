"""A second reader, written from docs/reference/format.md alone: proof that the page suffices.

It imports nothing of quivermq and shares no code with it. It reads bodies that are not compressed, and
gzip and LZ4, for which Python's own library and fifteen lines are enough.
"""

import gzip
from struct import unpack_from
from typing import Any

FIELDS = """magic header_crc body_crc stored_bytes raw_bytes message_count base_offset append_time
timestamp_min timestamp_max producer_id base_sequence leader_epoch producer_epoch columns flags codec
version"""


class Invalid(Exception):
    """The bytes are no frame."""


class Unsupported(Exception):
    """The bytes are a frame, but one of a later release."""


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def must(condition: bool) -> None:
    if not condition:
        raise Invalid


def read_frame(data: bytes, raw_bytes_max: int = 64 << 20) -> tuple[dict[str, Any], Any]:
    """The header, and the messages or, of a control frame, the record: steps 1 to 16."""
    header = read_header(data)
    body_end = 80 + header["stored_bytes"]
    must(len(data) == body_end + -body_end % 8)
    stored = data[80:body_end]
    must(crc32c(stored) == header["body_crc"] and not any(data[body_end:]))
    if header["flags"] & 1:
        raise Unsupported
    must(header["raw_bytes"] <= raw_bytes_max)
    raw = decompressed(stored, header["codec"], header["raw_bytes"])
    if header["flags"] & 4:
        return header, raw.rstrip(b"\0").decode(errors="replace")
    return header, read_messages(raw, header)


def read_header(data: bytes) -> dict[str, Any]:
    must(len(data) >= 80)
    h = dict(zip(FIELDS.split(), unpack_from("<4sIIIIIqqqqQIIHHHBB", data), strict=True))
    must(h["magic"] == b"QVF1" and h["header_crc"] == crc32c(data[8:80]))
    if h["version"] != 1 or h["codec"] > 3 or h["flags"] > 15 or h["columns"] > 127:
        raise Unsupported
    must(h["base_offset"] >= 0 and h["base_offset"] + h["message_count"] < 2**63)
    must(h["timestamp_min"] <= h["timestamp_max"] and h["message_count"] >= 1)
    if h["flags"] & 4:
        must(h["columns"] == 0)
    else:
        must(h["columns"] & 1 == 1 and h["raw_bytes"] >= 4 * (h["message_count"] + 1))
    if h["codec"] == 0:
        must(h["stored_bytes"] == h["raw_bytes"] + 28 * (h["flags"] & 1))
    h["magic"] = h["magic"].decode()
    return h


def decompressed(stored: bytes, codec: int, raw_bytes: int) -> bytes:
    if codec == 1:
        raise NotImplementedError("Python 3.11 has no zstd")
    raw = stored
    if codec == 2:
        raw = lz4_block(stored)
    if codec == 3:
        raw = gzip.decompress(stored)
    must(len(raw) == raw_bytes)
    return raw


def lz4_block(stored: bytes) -> bytes:
    raw, at = bytearray(), 0
    while at < len(stored):
        literals, match = divmod(stored[at], 16)
        literals, at = lz4_length(stored, at + 1, literals)
        raw += stored[at : at + literals]
        at += literals
        if at < len(stored):
            (distance,) = unpack_from("<H", stored, at)
            match, at = lz4_length(stored, at + 2, match)
            for _ in range(match + 4):
                raw.append(raw[-distance])
    return bytes(raw)


def lz4_length(stored: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while stored[at] == 255:
            length, at = length + 255, at + 1
        length, at = length + stored[at], at + 1
    return length, at


class Body:
    """Takes buffer after buffer off a raw body."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.position = raw, 0

    def buffer(self, length: int) -> bytes:
        start, end = self.position, self.position + length
        self.position = end + -end % 8
        must(self.position <= len(self.raw) and not any(self.raw[end : self.position]))
        return self.raw[start:end]

    def numbers(self, kind: str, count: int) -> list[int]:
        size = 4 if kind == "i" else 8
        return list(unpack_from(f"<{count}{kind}", self.buffer(size * count)))

    def offsets(self, count: int) -> list[int]:
        offsets = self.numbers("i", count + 1)
        must(offsets[0] == 0 and all(offsets[i] <= offsets[i + 1] for i in range(count)))
        return offsets

    def binary(self, count: int) -> list[bytes]:
        offsets = self.offsets(count)
        data = self.buffer(offsets[-1])
        return [data[offsets[i] : offsets[i + 1]] for i in range(count)]

    def text(self, count: int) -> list[str]:
        try:
            return [item.decode() for item in self.binary(count)]
        except UnicodeDecodeError:
            raise Invalid from None

    def bitmap(self, count: int) -> list[bool]:
        bits = self.buffer((count + 7) // 8)
        must(not any(bits[i // 8] >> i % 8 & 1 for i in range(count, 8 * len(bits))))
        return [bool(bits[i // 8] >> i % 8 & 1) for i in range(count)]


def read_messages(raw: bytes, header: dict[str, Any]) -> list[Any]:
    n, columns, body = header["message_count"], header["columns"], Body(raw)
    low, high = header["timestamp_min"], header["timestamp_max"]
    nothing: list[Any] = [None] * n
    values = body.binary(n)
    keys = (
        [k.hex() if there else None for there, k in _both(body, n, body.binary)] if columns & 2 else nothing
    )
    headers = _headers(body, n) if columns & 4 else [[] for _ in range(n)]
    times = body.numbers("q", n) if columns & 8 else [low] * n
    must((min(times), max(times)) == (low, high))
    expiry = body.bitmap(n) if columns & 16 else [False] * n
    moments = body.numbers("q", n) if columns & 16 else [0] * n
    ids, origins = (
        [text if there else None for there, text in _both(body, n, body.text)] if columns & bit else nothing
        for bit in (32, 64)
    )
    must(body.position == len(raw))
    return [
        {
            "offset": header["base_offset"] + i,
            "timestamp": times[i],
            "key": keys[i],
            "value": values[i].hex(),
            "headers": headers[i],
            "expires_at": moments[i] if expiry[i] else None,
            "dedup_id": ids[i],
            "origin_id": origins[i],
        }
        for i in range(n)
    ]


def _both(body: Body, n: int, items: Any) -> Any:
    bits = body.bitmap(n)
    return zip(bits, items(n), strict=True)


def _headers(body: Body, n: int) -> list[Any]:
    offsets = body.offsets(n)
    names = body.text(offsets[-1])
    values = body.binary(offsets[-1])
    pairs = [[name, value.hex()] for name, value in zip(names, values, strict=True)]
    return [pairs[offsets[i] : offsets[i + 1]] for i in range(n)]


def read_index(data: bytes, base_offset: int) -> list[dict[str, int]] | None:
    """The entries that count; None when there is no index."""
    if len(data) < 32 or unpack_from("<4sIq12s", data) != (b"QVI1", 1, base_offset, bytes(12)):
        return None
    entries: list[dict[str, int]] = []
    for at in range(0, len(data) - 31, 32):
        crc = crc32c(data[: at + 28])
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        if masked != unpack_from("<I", data, at + 28)[0]:
            return entries if at else None
        if at:
            entry = unpack_from("<qqq", data, at)
            entries.append(dict(zip(("offset", "timestamp", "position"), entry, strict=True)))
    return entries
