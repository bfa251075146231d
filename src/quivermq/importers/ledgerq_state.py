"""What a LedgerQ queue keeps beside its segments: the read position, retries, deduplication ids."""

import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, TypeGuard

from quivermq.disk import Disk, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.files import json_object
from quivermq.importers.model import Findings, SeenId

METADATA = "metadata.dat"
RETRIES = ".retry_state.json"
DEDUP = ".dedup_state.json"

_METADATA = Struct("<IQQI")
_VERSION = 1
_ATTEMPTS_MAX = 2**31 - 1
_HASH = re.compile(r"[0-9a-f]{64}")


class Metadata(NamedTuple):
    """Ids before `read_id` are consumed; the next message gets `next_id`. None where nobody knows."""

    read_id: int = 1
    next_id: int | None = None


class Failure(NamedTuple):
    """How often a message was given back, and why the last time."""

    attempts: int
    reason: str | None


def load_metadata(disk: Disk, directory: Path, findings: Findings) -> Metadata:
    """How far the queue was read. What cannot be read is told, and then nothing counts as consumed."""
    path = directory / METADATA
    try:
        data = read_file(disk, path, bytes_max=_METADATA.size)
        problem = _metadata_problem(data)
    except FileNotFoundError:
        problem = "it is not there"
    except StorageFailed as error:
        problem = str(error)
    if problem is not None:
        findings.add(
            path, None, f"{problem}: nobody knows what was consumed, so nothing counts as consumed"
        )
        return Metadata()
    _, next_id, read_id, _ = _METADATA.unpack(data)
    return Metadata(read_id, next_id)


def _metadata_problem(data: bytes) -> str | None:
    if len(data) != _METADATA.size:
        return f"it has {len(data)} bytes instead of {_METADATA.size}"
    version, next_id, read_id, _ = _METADATA.unpack(data)
    if version != _VERSION:
        return f"its version {version} is not known"
    if not 1 <= read_id <= next_id:
        return f"the read position {read_id} does not go with the next id {next_id}"
    return None


def load_failures(disk: Disk, directory: Path, findings: Findings) -> dict[int, Failure]:
    """By the id of a message, how often it failed."""
    path = directory / RETRIES
    failures: dict[int, Failure] = {}
    for entry in _entries(disk, path, findings, "retry counts are"):
        number, count, reason = entry.get("msg_id"), entry.get("retry_count"), entry.get("failure_reason")
        if not _is_number(number) or not _is_number(count) or not isinstance(reason, str | None):
            findings.add(path, None, f"an entry of it makes no sense: {_shown(entry)}")
            continue
        failures[number] = Failure(min(count, _ATTEMPTS_MAX), reason or None)
    return failures


def load_seen_ids(disk: Disk, directory: Path, findings: Findings) -> list[SeenId]:
    """The deduplication ids, of which LedgerQ keeps only the hash."""
    path = directory / DEDUP
    seen: list[SeenId] = []
    for entry in _entries(disk, path, findings, "deduplication ids are"):
        hashed, number, expires_at_ns = (
            entry.get("dedup_id"),
            entry.get("message_id"),
            entry.get("expires_at"),
        )
        is_hash = isinstance(hashed, str) and _HASH.fullmatch(hashed)
        if not is_hash or not _is_number(number) or not _is_number(expires_at_ns):
            findings.add(path, None, f"an entry of it makes no sense: {_shown(entry)}")
            continue
        seen.append(SeenId(f"sha256:{hashed}", expires_at_ns // 1000, number))
    return seen


def _entries(disk: Disk, path: Path, findings: Findings, lost: str) -> Iterator[dict[str, Any]]:
    told = json_object(disk, path, findings, lost)
    if told is None:
        return
    entries = told.get("entries")
    if told.get("version") != _VERSION or not isinstance(entries, list | None):
        findings.add(path, 0, f"it is not of version {_VERSION}, so {lost} not known")
        return
    for entry in entries or ():
        yield entry if isinstance(entry, dict) else {"": entry}


def _is_number(told: object) -> TypeGuard[int]:
    return isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 2**64


def _shown(entry: dict[str, Any]) -> str:
    text = repr(entry)
    return text if len(text) <= 200 else text[:200] + "…"
