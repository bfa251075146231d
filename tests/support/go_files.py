"""Directories as GoQueue writes them, made by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from struct import pack
from typing import Any

from crc32c import crc32c

COMPRESSED, HEADERS, TOMBSTONE, CONTROL, COMMIT = 1, 2, 4, 8, 16
HEADER_BYTES = 34
BASE_NS = 1_767_225_600_000_000_000


def headers_bytes(headers: Mapping[Any, bytes]) -> bytes:
    if not headers:
        return b""
    parts = [pack(">H", len(headers))]
    for name, content in headers.items():
        raw = name.encode() if isinstance(name, str) else name
        parts.append(pack(">H", len(raw)) + raw + pack(">H", len(content)) + content)
    return b"".join(parts)


def record(
    offset: int,
    value: bytes = b"value",
    key: bytes = b"",
    headers: Mapping[Any, bytes] | bytes = b"",
    *,
    flags: int | None = None,
    priority: int = 2,
    timestamp_ns: int = BASE_NS,
    version: int = 1,
) -> bytes:
    """A record; without `flags` they are as its contents say."""
    tail = headers if isinstance(headers, bytes) else headers_bytes(headers)
    if flags is None:
        flags = HEADERS if tail else 0
    rest = pack(">qqBBHIH", offset, timestamp_ns, priority, 0, len(key), len(value), len(tail))
    rest += key + value + tail
    return b"GQ" + bytes([version, flags]) + pack(">I", crc32c(rest)) + rest


def control(offset: int, transaction: str, *, is_commit: bool) -> bytes:
    """The end of a transaction."""
    name = transaction.encode()
    value = pack(">QHH", 42, 1, len(name)) + name
    return record(offset, value, name, flags=CONTROL | (COMMIT if is_commit else 0), priority=0)


def values(base: int, count: int, size: int = 5) -> list[bytes]:
    """Records whose values tell their offsets."""
    return [record(base + index, f"v{base + index}".encode().ljust(size, b".")) for index in range(count)]


def write_segment(partition: Path, base: int, records: Iterable[bytes]) -> Path:
    path = partition / f"{base:020}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records))
    return path


def delay_index(entries: Sequence[tuple[int, int, int, int]], count: int | None = None) -> bytes:
    """Of entries with partition, offset, due time in nanoseconds and state."""
    header = b"GQDL" + pack(">HHQ", 1, 0, len(entries) if count is None else count)
    return header + b"".join(
        pack(">qqii8x", offset, due_ns, partition, state) for partition, offset, due_ns, state in entries
    )


def write_bytes(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_json(path: Path, document: Any) -> Path:
    return write_bytes(path, json.dumps(document).encode())


def write_lines(path: Path, documents: Iterable[Any]) -> Path:
    return write_bytes(path, b"".join(json.dumps(each).encode() + b"\n" for each in documents))
