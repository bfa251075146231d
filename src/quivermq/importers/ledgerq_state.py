"""What a LedgerQ queue knows besides its messages: how far it was read, retries, deduplication ids."""

import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, TypeGuard

from quivermq.disk import read_file
from quivermq.errors import StorageFailed
from quivermq.importers.files import SourceFiles, Unreadable
from quivermq.importers.model import SeenId

METADATA = "metadata.dat"
RETRIES = ".retry_state.json"
DEDUP = ".dedup_state.json"
STATE_FILES = frozenset((METADATA, RETRIES, DEDUP))
"""No other queue has files of these names."""
ATTEMPTS_MAX = 2**31 - 1

_METADATA = Struct("<IQQI")
_VERSION = 1
_HASH = re.compile(r"[0-9a-f]{64}")


def read_ids(files: SourceFiles, directory: Path) -> tuple[int, int | None]:
    """Ids before the first are consumed; the second is the one that the next message gets.

    Where nobody knows, nothing counts as consumed.
    """
    path = directory / METADATA
    try:
        data = read_file(files.disk, path, bytes_max=_METADATA.size)
        if len(data) != _METADATA.size:
            raise Unreadable(f"it has {len(data)} bytes instead of {_METADATA.size}")
        version, next_id, read_id, _ = _METADATA.unpack(data)
        if version != _VERSION:
            raise Unreadable(f"its version {version} is not known")
        if not 1 <= read_id <= next_id:
            raise Unreadable(f"the read position {read_id} does not go with the next id {next_id}")
        return read_id, next_id
    except (FileNotFoundError, StorageFailed, Unreadable) as error:
        why = "it is not there" if isinstance(error, FileNotFoundError) else error
        problem = f"{why}: nobody knows what was consumed, so nothing counts as consumed"
        files.report(path, None, problem)
        return 1, None


def read_failures(files: SourceFiles, directory: Path) -> dict[int, tuple[int, str | None]]:
    """By the id of a message, how often it was given back, and why the last time."""
    path = directory / RETRIES
    failures: dict[int, tuple[int, str | None]] = {}
    for entry in _state_entries(files, path, "retry counts are"):
        number, count, reason = entry.get("msg_id"), entry.get("retry_count"), entry.get("failure_reason")
        if _is_number(number) and _is_number(count) and isinstance(reason, str | None):
            failures[number] = min(count, ATTEMPTS_MAX), reason or None
        else:
            _report_entry(files, path, entry)
    return failures


def read_seen_ids(files: SourceFiles, directory: Path) -> list[SeenId]:
    """The deduplication ids, of which LedgerQ keeps only the hash."""
    path = directory / DEDUP
    seen: list[SeenId] = []
    for entry in _state_entries(files, path, "deduplication ids are"):
        hashed, number, end_ns = (entry.get(n) for n in ("dedup_id", "message_id", "expires_at"))
        is_hash = isinstance(hashed, str) and _HASH.fullmatch(hashed)
        if is_hash and _is_number(number) and _is_number(end_ns):
            seen.append(SeenId(f"sha256:{hashed}", end_ns // 1000, number))
        else:
            _report_entry(files, path, entry)
    return seen


def _state_entries(files: SourceFiles, path: Path, lost: str) -> Iterator[dict[str, Any]]:
    document = files.json_object(path, lost)
    if document is None:
        return
    found = document.get("entries")
    if document.get("version") != _VERSION or not isinstance(found, list | None):
        files.report(path, 0, f"it is not of version {_VERSION}, so {lost} not known")
        return
    for entry in found or ():
        yield entry if isinstance(entry, dict) else {"": entry}


def _report_entry(files: SourceFiles, path: Path, entry: dict[str, Any]) -> None:
    text = repr(entry)
    shown = text if len(text) <= 200 else text[:200] + "…"
    files.report(path, None, f"an entry of it makes no sense: {shown}")


def _is_number(given: object) -> TypeGuard[int]:
    return type(given) is int and 0 <= given < 2**64
