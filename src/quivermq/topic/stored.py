"""`topic.json`: what a topic's directory says about the topic itself.

Only settings that differ from the defaults are written, so that the file says what somebody decided.
People read this file and some edit it, so everything in it is checked, and an error names the file. It
has a checksum, which whoever edits it takes out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quivermq.disk import Disk, read_file, replace_file
from quivermq.errors import InvalidName, StorageFailed
from quivermq.model.names import check_topic_name
from quivermq.model.topic_settings import TopicSettings
from quivermq.sealed import open_seal, sealed
from quivermq.settings.setting import INT64_MAX

FILE_NAME = "topic.json"
# What the file of a deleted topic is called where there was no room to say in it that it is.
_DELETED_NAME = "topic.json.deleted"

_VERSION = 1
_KEYS = ("version", "created_us", "deleted", "dead_letters_of", "settings")
_FILE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """A topic as its directory describes it. One that is `deleted` only waits for its files to go."""

    settings: TopicSettings
    created_us: int
    deleted: bool = False
    dead_letters_of: str | None = None
    """The topic whose dead letters are here. A name does not tell that: the suffix is a setting."""


def load_topic(disk: Disk, path: Path) -> StoredTopic | None:
    """The topic of a directory; None when there is none.

    Raises StorageFailed for a file that is not what `store_topic` writes, and InvalidSettings for
    settings that this release does not know or allow.
    """
    file_path, is_renamed = path / FILE_NAME, False
    try:
        data = read_file(disk, file_path, bytes_max=_FILE_BYTES_MAX)
    except FileNotFoundError:
        file_path, is_renamed = path / _DELETED_NAME, True
        try:
            data = read_file(disk, file_path, bytes_max=_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
    document = _parse(data, file_path)
    return StoredTopic(
        settings=TopicSettings.from_json(document["settings"], origin=str(file_path)),
        created_us=document["created_us"],
        deleted=document["deleted"] or is_renamed,
        dead_letters_of=document["dead_letters_of"],
    )


def store_topic(disk: Disk, path: Path, stored: StoredTopic) -> None:
    """Make the directory say this, durably: afterwards it does, before that it says what it said.

    Makes the directory, if need be. Raises DiskRefused, FsyncFailed and StorageFailed.
    """
    defaults = TopicSettings().to_json()
    document = {
        "version": _VERSION,
        "created_us": stored.created_us,
        "deleted": stored.deleted,
        "dead_letters_of": stored.dead_letters_of,
        "settings": {
            name: value for name, value in stored.settings.to_json().items() if value != defaults[name]
        },
    }
    disk.make_directory(path)
    replace_file(disk, path / FILE_NAME, sealed(document))


def mark_deleted(disk: Disk, path: Path) -> None:
    """Make a directory say, durably and without any room, that its topic is deleted."""
    disk.rename(path / FILE_NAME, path / _DELETED_NAME)
    disk.sync_directory(path)


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    """The document, of which all but the settings is checked."""
    try:
        document = json.loads(data, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise _mangled(path, f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _mangled(path, "it is not an object")
    # Before everything else, because another version may have other keys.
    version = document.get("version")
    if type(version) is int and version != _VERSION:
        raise _mangled(path, f"this release knows version {_VERSION}, not {version}")
    try:
        open_seal(document, _KEYS)
    except ValueError as error:
        raise _mangled(path, str(error)) from error
    if type(version) is not int:
        raise _mangled(path, f"it must have exactly {', '.join(_KEYS)}")
    created_us = document["created_us"]
    if type(created_us) is not int or not 0 <= created_us <= INT64_MAX:
        raise _mangled(path, "created_us is not a time")
    if type(document["deleted"]) is not bool:
        raise _mangled(path, "deleted is neither true nor false")
    if document["dead_letters_of"] is not None:
        try:
            check_topic_name(document["dead_letters_of"])
        except InvalidName as error:
            raise _mangled(path, f"dead_letters_of: {error}") from error
    return document


def _without_repetition(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _mangled(path: Path, reason: str) -> StorageFailed:
    return StorageFailed(f"{path} cannot be understood: {reason}", path=path)
