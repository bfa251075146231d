"""Writes LedgerQ directories, byte by byte as LedgerQ does, for the tests of its reader."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack

from crc32c import crc32c

MAGIC = 0x4C445151
CREATED_NS = 1_794_772_108_411_641_224


@dataclass(slots=True, kw_only=True)
class Entry:
    """One entry. What is left out is not written, and its flag is not set."""

    id: int
    payload: bytes = b"payload"
    timestamp_ns: int = CREATED_NS + 1_000
    type: int = 1
    priority: int | None = None
    expires_at_ns: int | None = None
    headers: Mapping[bytes, bytes] | None = None
    compression: int | None = None
    more_flags: int = 0
    """Flags besides those of the fields that are there."""

    def body(self) -> bytes:
        """All but the length, the checksum and the zeros."""
        flags, fields = self.more_flags, b""
        if self.priority is not None:
            flags, fields = flags | 0x10, fields + pack("<B", self.priority)
        if self.expires_at_ns is not None:
            flags, fields = flags | 0x04, fields + pack("<q", self.expires_at_ns)
        if self.headers is not None:
            flags, fields = flags | 0x08, fields + _headers(self.headers)
        payload = self.payload
        if self.compression is not None:
            flags, fields = flags | 0x01, fields + pack("<B", self.compression)
            payload = gzip.compress(payload, mtime=0) if self.compression == 1 else payload
        head = pack("<BBQq", self.type, flags, self.id, self.timestamp_ns)
        return head + fields + payload

    def __bytes__(self) -> bytes:
        body = self.body()
        summed = pack("<I", 4 + len(body) + 4) + body
        return summed + pack("<I", crc32c(summed)) + bytes(4)


def _headers(headers: Mapping[bytes, bytes]) -> bytes:
    pairs = (
        pack("<H", len(name)) + name + pack("<H", len(value)) + value for name, value in headers.items()
    )
    return pack("<H", len(headers)) + b"".join(pairs)


def segment_header(
    base: int = 1, *, version: int = 1, magic: int = MAGIC, created_ns: int = CREATED_NS
) -> bytes:
    summed = pack("<IHHQqQQ20x", magic, version, 0, base, created_ns + base, 0, 0)
    return summed + pack("<I", crc32c(summed))


@dataclass(slots=True)
class Queue:
    """A queue directory."""

    path: Path
    created_ns: int = CREATED_NS
    segments: dict[int, list[Entry]] = field(default_factory=dict)

    def write(self, entries: list[Entry], base: int = 1) -> Path:
        """Write a segment, and return its path."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.segments[base] = entries
        data = segment_header(base, created_ns=self.created_ns) + b"".join(map(bytes, entries))
        path = self.path / f"{base:020d}.log"
        path.write_bytes(data)
        return path

    def metadata(self, *, read_id: int = 1, next_id: int | None = None) -> None:
        """Write how far the queue was read; by default the next id is the one behind the last."""
        last = max((entry.id for entries in self.segments.values() for entry in entries), default=0)
        self.path.mkdir(parents=True, exist_ok=True)
        told = pack("<IQQI", 1, last + 1 if next_id is None else next_id, read_id, 0)
        (self.path / "metadata.dat").write_bytes(told)

    def retries(self, *entries: Mapping[str, object]) -> None:
        """Write how often messages failed."""
        document = {"version": 1, "max_retries": 3, "entries": list(entries)}
        (self.path / ".retry_state.json").write_text(json.dumps(document))

    def dedup(self, *entries: Mapping[str, object]) -> None:
        """Write which deduplication ids are remembered."""
        (self.path / ".dedup_state.json").write_text(json.dumps({"version": 1, "entries": list(entries)}))


def queue_of(path: Path, *entries: Entry, read_id: int = 1) -> Queue:
    """A queue of one segment."""
    queue = Queue(path)
    queue.write(list(entries))
    queue.metadata(read_id=read_id)
    return queue
