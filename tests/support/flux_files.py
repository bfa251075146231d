"""Directories as FluxMQ writes them, made by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

import cramjam
from crc32c import crc32c

from support.s2_blocks import compress, uvarint

NONE, S2, ZSTD = 0, 1, 2
COMPRESSED, TIMESTAMP, KEYS, HEADERS, TRANSACTION = 1, 2, 4, 8, 16
HEADER_BYTES = 44
BASE_MS = 1_767_225_600_000

# By name, which may be bytes that are no text.
Headers = Mapping[Any, bytes]
NO_HEADERS: Headers = {}


class Rec(NamedTuple):
    """A record; its offset and time count from those of its batch."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: Headers = NO_HEADERS
    delta: int | None = None
    delta_ms: int = 0


def varint(number: int) -> bytes:
    return uvarint((number << 1 ^ number >> 63) & 0xFFFF_FFFF_FFFF_FFFF)


def optional(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(rec: Rec, index: int) -> bytes:
    headers = b"".join(
        uvarint(len(raw)) + raw + uvarint(len(content)) + content
        for name, content in rec.headers.items()
        for raw in [name.encode() if isinstance(name, str) else name]
    )
    return (
        uvarint(index if rec.delta is None else rec.delta)
        + varint(rec.delta_ms)
        + optional(rec.key)
        + optional(rec.value)
        + uvarint(len(rec.headers))
        + headers
    )


def batch(
    base: int,
    records: Sequence[Rec],
    *,
    codec: int = NONE,
    is_compressed: bool | None = None,
    base_ms: int = BASE_MS,
    version: int = 1,
    flags: int = TIMESTAMP,
    body: bytes | None = None,
    count: int | None = None,
) -> bytes:
    """A batch. `body` and `count` replace what the records would make."""
    raw = b"".join(record(rec, index) for index, rec in enumerate(records))
    if is_compressed is None:
        is_compressed = codec != NONE
    if body is None:
        body = _compressed(raw, codec) if is_compressed else raw
    rest = pack(
        "<QIHHBBHqq",
        base,
        len(body),
        len(records) if count is None else count,
        flags | (COMPRESSED if is_compressed else 0),
        codec,
        version,
        0,
        base_ms,
        base_ms,
    )
    rest += body
    return pack("<II", 0x464C5558, crc32c(rest)) + rest


def _compressed(raw: bytes, codec: int) -> bytes:
    if codec == S2:
        return compress(raw)
    return bytes(cramjam.zstd.compress(raw)) if codec == ZSTD else raw


def values(base: int, count: int, size: int = 5) -> list[Rec]:
    """Records whose values tell their offsets."""
    return [Rec(f"v{base + index}".encode().ljust(size, b".")) for index in range(count)]


def write_segment(queue: Path, base: int, *batches: bytes) -> Path:
    path = queue / "segments" / f"{base:020}.seg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(batches))
    return path


def write_json(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def write_state(
    queue: Path,
    group: str,
    cursor: int,
    pending: Mapping[int, int],
    *,
    shards: int = 8,
    ack_floor: int = 0,
) -> Path:
    """The snapshots of a group; `pending` tells how often each offset was delivered."""
    directory = queue / "consumers" / group
    state = {"AckFloor": ack_floor, "Cursor": cursor, "Delivered": cursor, "CreatedAt": 1, "UpdatedAt": 1}
    write_json(
        directory / "state.json", {"version": 1, "group_id": group, "state": state, "saved_at": BASE_MS}
    )
    for shard in range(shards):
        entries = {
            str(offset): {"o": offset, "c": "c1", "d": BASE_MS, "n": count, "l": BASE_MS}
            for offset, count in pending.items()
            if offset % shards == shard
        }
        document = {"version": 1, "shard_id": shard, "entries": entries, "saved_at": BASE_MS}
        write_json(directory / f"pel_{shard}.json", document)
    return directory


def write_operations(directory: Path, *operations: Mapping[str, Any]) -> Path:
    """`ops.log` of a group."""
    path = directory / "ops.log"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({**each, "ts": BASE_MS}) + "\n" for each in operations))
    return path
