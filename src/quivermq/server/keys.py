"""API keys on disk: `keys.json`, in the data directory unless told, keeps their hashes, never themselves.

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
from quivermq.model.names import Pattern
from quivermq.sealed import open_seal, sealed
from quivermq.server.access import ALL_TOPICS, SCOPES, ApiKey, KeyScope

logger = logging.getLogger(__name__)

FILE_NAME = "keys.json"

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


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the file says."""

    entries: dict[str, _Entry]
    is_open: bool
    """Whether no key is asked for while there is none."""


def create_key(
    path: str | os.PathLike[str],
    scope: KeyScope,
    topics: Sequence[str] = (ALL_TOPICS,),
    *,
    file: Path | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> NewKey:
    """Make a key for the broker of a data directory, whether it runs or not.

    It goes to `file`, by default to that in the directory. Raises InvalidRequest for a scope that does not
    exist, InvalidName for a topic that cannot.
    """
    if scope not in SCOPES:
        raise InvalidRequest(f"{scope!r} is no scope: a key is for {', '.join(SCOPES)}")
    if isinstance(topics, str) or not topics:
        raise InvalidRequest("a key is for a list of topics or patterns; `>` stands for all")
    for topic in topics:
        Pattern(topic)
    disk, file = disk or SystemDisk(), file or Path(path) / FILE_NAME
    created_us = (clock or SystemClock()).now_us()
    with _changing(disk, file):
        entries = _load(disk, file).entries
        # An id is looked up, so it must be there once; it is so short that it might not be.
        while (name := secrets.token_hex(_ID_BYTES)) in entries:
            continue
        secret = secrets.token_hex(_SECRET_BYTES)
        key = ApiKey(name, scope, tuple(topics), created_us)
        entries[name] = _Entry(key, _hashed(secret))
        _store(disk, file, entries)
    logger.info("created key %s", name, extra={"key": name, "scope": scope, "topics": list(topics)})
    return NewKey(key, f"qk_{name}_{secret}")


def list_keys(
    path: str | os.PathLike[str], *, file: Path | None = None, disk: Disk | None = None
) -> list[ApiKey]:
    """The keys of a data directory, oldest first. Raises StorageFailed when the file is not readable."""
    entries = _load(disk or SystemDisk(), file or Path(path) / FILE_NAME).entries
    return sorted((entry.key for entry in entries.values()), key=lambda key: (key.created_us, key.id))


def revoke_key(
    path: str | os.PathLike[str], key_id: str, *, file: Path | None = None, disk: Disk | None = None
) -> ApiKey:
    """Take a key away; a broker that runs follows within a second. Raises NotFound.

    Without the last one nobody may do anything: `allow_anonymous` opens the queue to whoever reaches it.
    """
    disk, file = disk or SystemDisk(), file or Path(path) / FILE_NAME
    # Looking for one must not leave anything behind where there never was one.
    _find(_load(disk, file).entries, key_id)
    with _changing(disk, file):
        entries = _load(disk, file).entries
        entry = _find(entries, key_id)
        del entries[key_id]
        _store(disk, file, entries)
    logger.info("revoked key %s", key_id, extra={"key": key_id})
    return entry.key


def allow_anonymous(
    path: str | os.PathLike[str], *, file: Path | None = None, disk: Disk | None = None
) -> None:
    """Let a broker that starts from now on serve without keys, on this machine only, until there is one.

    A broker that had keys asks for one even when none is left. Raises Conflict while there are some.
    """
    disk, file = disk or SystemDisk(), file or Path(path) / FILE_NAME
    with _changing(disk, file):
        if entries := _load(disk, file).entries:
            raise Conflict(f"{file} has {len(entries)} keys: revoke them first, with `quiver key revoke`")
        _store(disk, file, {}, is_open=True)
    logger.info("no key is asked for")


class KeyStore:
    """The keys of a data directory as a broker uses them, kept up to date with the file.

    Once there was a key, one is asked for, even if the last one is revoked or the file removed, and also
    when the broker is started again: nobody opens a broker by that, but only with `allow_anonymous` and a
    new start. Raises StorageFailed when it is damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        file: Path | None = None,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._file = file or Path(path) / FILE_NAME
        self._disk = disk or SystemDisk()
        self._clock = clock or SystemClock()
        self._data = _read(self._disk, self._file)
        stored = _parse(self._data, self._file)
        self._entries = stored.entries
        # The lock is made with the first key, and stays when the file of keys gets lost.
        had_keys = self._data is not None or self._disk.exists(_lock_of(self._file))
        self._is_required = bool(self._entries) or (had_keys and not stored.is_open)
        self._has_changed = False
        self._checked_at = self._clock.monotonic()

    @property
    def is_required(self) -> bool:
        """Whether a request needs a key."""
        self._look_again()
        return self._is_required

    @property
    def is_empty(self) -> bool:
        """Whether there is no key at all."""
        return not self._entries

    def look(self) -> bool:
        """Read the file again; whether keys have changed since the last time this was asked."""
        self._refresh(self._clock.monotonic())
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def is_welcome(self, key: ApiKey | None) -> bool:
        """Whether who came with this key, or without one, may still stay, going by the last look."""
        if key is None:
            return not self._is_required
        entry = self._entries.get(key.id)
        return entry is not None and entry.key == key

    def find(self, text: str) -> ApiKey | None:
        """The key that a client sent, if it is one."""
        self._look_again()
        match = _KEY.fullmatch(text)
        entry = self._entries.get(match[1]) if match is not None else None
        if match is None or entry is None:
            return None
        return entry.key if hmac.compare_digest(_hashed(match[2]), entry.hash) else None

    def _look_again(self) -> None:
        """Look at the file, which is small, once a second at most."""
        now = self._clock.monotonic()
        if now - self._checked_at >= _CHECK_INTERVAL_S:
            self._refresh(now)

    def _refresh(self, now: float) -> None:
        self._checked_at = now
        try:
            data = _read(self._disk, self._file)
            if data == self._data:
                return
            self._entries = _parse(data, self._file).entries
        except QuiverError:
            # Whoever edits the file finds this in the log; until then the keys stay as they were.
            logger.exception("the keys could not be read again")
            return
        self._data = data
        self._has_changed = True
        self._is_required = self._is_required or bool(self._entries)
        logger.info("there are %d keys now", len(self._entries))


@contextmanager
def _changing(disk: Disk, file: Path) -> Iterator[None]:
    # Not the lock of the directory, which a running broker holds.
    disk.make_directory(file.parent)
    try:
        lock = disk.lock(_lock_of(file))
    except DirectoryLocked as error:
        raise Conflict(f"another process changes the keys of {file.parent}: try again") from error
    try:
        yield
    finally:
        lock.release()


def _lock_of(file: Path) -> Path:
    return file.with_suffix(".lock")


def _hashed(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _find(entries: dict[str, _Entry], key_id: str) -> _Entry:
    entry = entries.get(key_id)
    if entry is None:
        raise NotFound(f"there is no key {key_id[:80]!r}: `quiver key list` shows those there are")
    return entry


def _load(disk: Disk, file: Path) -> _Stored:
    return _parse(_read(disk, file), file)


def _read(disk: Disk, file: Path) -> bytes | None:
    try:
        return read_file(disk, file, bytes_max=_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None


def _store(disk: Disk, file: Path, entries: dict[str, _Entry], *, is_open: bool = False) -> None:
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
    document = {"version": _VERSION, "open": is_open, "keys": keys}
    replace_file(disk, file, sealed(document), is_private=True)


def _parse(data: bytes | None, file: Path) -> _Stored:
    """What a file says, nothing when there is no file. An empty one has lost its keys."""
    if data is None:
        return _Stored({}, is_open=False)
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise ValueError(f"this release knows version {_VERSION}, not {document['version']}")
        open_seal(document, ("version", "open", "keys"))
        if type(document["open"]) is not bool:
            raise ValueError("open is true or false")
        entries = [_entry(item) for item in document["keys"]]
    except (ValueError, TypeError, KeyError, RecursionError, QuiverError) as error:
        raise StorageFailed(f"{file} cannot be understood: {error}", path=file) from error
    return _Stored({entry.key.id: entry for entry in entries}, is_open=document["open"])


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
