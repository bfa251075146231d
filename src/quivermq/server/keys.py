"""API keys on disk: `keys.json` in the data directory keeps their hashes, never themselves.

A key is a random number of 256 bits, so one round of SHA-256 is enough: there is nothing to guess.
"""

import hmac
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk, SystemDisk, read_file, replace_file
from quivermq.errors import Conflict, DirectoryLocked, InvalidRequest, NotFound, QuiverError, StorageFailed
from quivermq.sealed import open_seal, sealed
from quivermq.server.access import ALL_TOPICS, SCOPES, ApiKey, KeyScope
from quivermq.topic.names import Pattern

logger = logging.getLogger(__name__)

FILE_NAME = "keys.json"

_LOCK_NAME = "keys.lock"
_VERSION = 1
_FILE_BYTES_MAX = 4 * 1024 * 1024
_FIELDS = {"id", "hash", "scope", "topics", "created_us"}
_ID_BYTES = 6
_SECRET_BYTES = 32
_KEY = re.compile(r"qk_([0-9a-f]{12})_([0-9a-f]{64})")
_HASH = re.compile(r"[0-9a-f]{64}")
_CHECK_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. `text` is what a client sends, and is nowhere else."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"<NewKey {self.key.id}>"


@dataclass(frozen=True, slots=True)
class _Entry:
    key: ApiKey
    hash: str


def create_key(
    path: str | os.PathLike[str],
    scope: KeyScope,
    topics: Sequence[str] = (ALL_TOPICS,),
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> NewKey:
    """Make a key for the broker of a data directory, whether it runs or not.

    Raises InvalidRequest for a scope that does not exist, InvalidName for a topic that cannot.
    """
    if scope not in SCOPES:
        raise InvalidRequest(f"{scope!r} is no scope: a key is for {', '.join(SCOPES)}")
    if isinstance(topics, str) or not topics:
        raise InvalidRequest("a key is for a list of topics or patterns; `>` stands for all")
    for topic in topics:
        Pattern(topic)
    disk, path = disk or SystemDisk(), Path(path)
    created_us = (clock or SystemClock()).now_us()
    with _changing(disk, path):
        entries = _load(disk, path)
        # An id is looked up, so it must be there once; it is so short that it might not be.
        while (name := secrets.token_hex(_ID_BYTES)) in entries:
            continue
        secret = secrets.token_hex(_SECRET_BYTES)
        key = ApiKey(name, scope, tuple(topics), created_us)
        entries[name] = _Entry(key, _hashed(secret))
        _store(disk, path, entries)
    logger.info("created key %s", name, extra={"key": name, "scope": scope, "topics": list(topics)})
    return NewKey(key, f"qk_{name}_{secret}")


def list_keys(path: str | os.PathLike[str], *, disk: Disk | None = None) -> list[ApiKey]:
    """The keys of a data directory, oldest first. Raises StorageFailed when the file is not readable."""
    entries = _load(disk or SystemDisk(), Path(path)).values()
    return sorted((entry.key for entry in entries), key=lambda key: (key.created_us, key.id))


def revoke_key(path: str | os.PathLike[str], key_id: str, *, disk: Disk | None = None) -> ApiKey:
    """Take a key away; a broker that runs follows within a second. Raises NotFound."""
    disk, path = disk or SystemDisk(), Path(path)
    with _changing(disk, path):
        entries = _load(disk, path)
        entry = entries.pop(key_id, None)
        if entry is None:
            raise NotFound(f"there is no key {key_id[:80]!r}: `quiver key list` shows those there are")
        _store(disk, path, entries)
    logger.info("revoked key %s", key_id, extra={"key": key_id})
    return entry.key


class KeyStore:
    """The keys of a data directory as a broker uses them, kept up to date with the file.

    Once there was a key, one is asked for as long as this lives, even if the last one is revoked or the
    file removed: nobody opens a broker to the world by that. Raises StorageFailed when it is damaged.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, disk: Disk | None = None, clock: Clock | None = None
    ) -> None:
        self._path = Path(path)
        self._disk = disk or SystemDisk()
        self._clock = clock or SystemClock()
        self._data = _read(self._disk, self._path)
        self._entries = _parse(self._data, self._path)
        self._is_required = bool(self._entries)
        self._checked_at = self._clock.monotonic()

    @property
    def is_required(self) -> bool:
        """Whether a request needs a key."""
        self._refresh()
        return self._is_required

    def find(self, text: str) -> ApiKey | None:
        """The key that a client sent, if it is one."""
        self._refresh()
        match = _KEY.fullmatch(text)
        entry = self._entries.get(match[1]) if match is not None else None
        if match is None or entry is None:
            return None
        return entry.key if hmac.compare_digest(_hashed(match[2]), entry.hash) else None

    def _refresh(self) -> None:
        """Read the file again if it has changed. It is small, and looked at once a second at most."""
        now = self._clock.monotonic()
        if now - self._checked_at < _CHECK_INTERVAL_S:
            return
        self._checked_at = now
        try:
            data = _read(self._disk, self._path)
            if data == self._data:
                return
            self._entries = _parse(data, self._path)
        except QuiverError:
            # Whoever edits the file finds this in the log; until then the keys stay as they were.
            logger.exception("the keys could not be read again")
            return
        self._data = data
        self._is_required = self._is_required or bool(self._entries)
        logger.info("there are %d keys now", len(self._entries))


@contextmanager
def _changing(disk: Disk, path: Path) -> Iterator[None]:
    # Not the lock of the directory, which a running broker holds.
    disk.make_directory(path)
    try:
        lock = disk.lock(path / _LOCK_NAME)
    except DirectoryLocked as error:
        raise Conflict(f"another process changes the keys of {path}: try again") from error
    try:
        yield
    finally:
        lock.release()


def _hashed(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _load(disk: Disk, path: Path) -> dict[str, _Entry]:
    return _parse(_read(disk, path), path)


def _read(disk: Disk, path: Path) -> bytes | None:
    try:
        return read_file(disk, path / FILE_NAME, bytes_max=_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None


def _store(disk: Disk, path: Path, entries: dict[str, _Entry]) -> None:
    keys = [
        {
            "id": entry.key.id,
            "hash": entry.hash,
            "scope": entry.key.scope,
            "topics": list(entry.key.topics),
            "created_us": entry.key.created_us,
        }
        for entry in entries.values()
    ]
    replace_file(disk, path / FILE_NAME, sealed({"version": _VERSION, "keys": keys}), is_private=True)


def _parse(data: bytes | None, path: Path) -> dict[str, _Entry]:
    """The entries of a file by id, none when there is no file. An empty one has lost its keys."""
    if data is None:
        return {}
    file_path = path / FILE_NAME
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise ValueError(f"this release knows version {_VERSION}, not {document['version']}")
        open_seal(document, ("version", "keys"))
        entries = [_entry(item) for item in document["keys"]]
    except (ValueError, TypeError, KeyError, RecursionError, QuiverError) as error:
        raise StorageFailed(f"{file_path} cannot be understood: {error}", path=file_path) from error
    return {entry.key.id: entry for entry in entries}


def _entry(item: Any) -> _Entry:
    if not isinstance(item, dict) or set(item) != _FIELDS:
        raise ValueError(f"a key has exactly {', '.join(sorted(_FIELDS))}")
    topics = item["topics"]
    if item["scope"] not in SCOPES or not isinstance(topics, list) or not topics:
        raise ValueError(f"a key has a scope, which is one of {', '.join(SCOPES)}, and a list of topics")
    for topic in topics:
        Pattern(topic)
    if not isinstance(item["hash"], str) or not _HASH.fullmatch(item["hash"]):
        raise ValueError("the hash of a key is SHA-256 in hexadecimal")
    if not isinstance(item["id"], str) or type(item["created_us"]) is not int:
        raise ValueError("the id of a key is a text, and its time a number")
    return _Entry(ApiKey(item["id"], item["scope"], tuple(topics), item["created_us"]), item["hash"])
