"""The backups of one queue in one target: what is there, who may add to it, and what may go.

    set.json                     which queue this is
    run/<number>                 somebody makes, or made, the backup of that number
    moment/<number>              the backup, once it is whole; or that it came to nothing
    part/<number>-<random>       bytes of files, and lists of files, stored by the backup of that number

No name is used twice. Who makes a backup claims the next number, and declares void what earlier ones have
left unfinished, under the very name that they would have to put at their end: so one that was only slow
finds out. It names objects of the latest backup and its own. Therefore what is stored under numbers above
the latest backup, and what that one names, must stay, and all else that no backup names may go, whoever is
at work meanwhile.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from os import urandom
from typing import Any, NamedTuple

from crc32c import crc32c

from quivermq.errors import Conflict, DamagedChunk, NotFound, QuiverError, UnsupportedChunk
from quivermq.model.backups import Backup
from quivermq.sealed import open_seal, sealed
from quivermq.shared.checkpoint import CHECKPOINT_BYTES_MAX, Checkpoint, Part, decode_checkpoint
from quivermq.shared.chunk import damaged
from quivermq.shared.naming import CHECKPOINT, CHUNK, first_number, unique
from quivermq.shared.objects import ObjectStore

SET = "set.json"
RUN = "run/"
MOMENT = "moment/"
# Not as the files of a queue in a bucket are called: who collects the garbage of one must not see these.
PART = "part/"
# Whoever restores may have the backups from somebody else.
_PART_NAME = re.compile(r"part/[0-9]{20}-[0-9a-f]{16}")

_VERSION = 1
_BYTES_MAX = 1 << 20
# Of a backup that came to nothing.
_VOID = b"void\n"


class BackupManifest(NamedTuple):
    """What is stored of one moment: the backup, and for each shard of the queue the list of its files."""

    backup: Backup
    queue: str
    shards: dict[str, Part]


class BackupSet:
    """The backups in a store. Raises as an `ObjectStore`."""

    def __init__(self, store: ObjectStore, url: str) -> None:
        self.store = store
        self.url = url

    # Making one.

    def begin(self, queue: str) -> int:
        """Claim the next number for a backup of that queue; one under way elsewhere will fail.

        Raises Conflict when the target is another queue's.
        """
        self._claim_for(queue)
        runs, moments = self._numbers(RUN), self._numbers(MOMENT)
        number = max((0, *runs, *moments)) + 1
        while not self._put_once(_numbered(RUN, number), urandom(8).hex().encode()):
            number += 1
        earlier = [each for each in runs if each < number]
        for each in set(earlier) - set(moments):
            self.store.put_if_absent(_numbered(MOMENT, each), _VOID)
        self.store.remove(_numbered(RUN, each) for each in earlier)
        return number

    def put(self, number: int, data: bytes) -> Part:
        """Store bytes for the backup of that number."""
        part = Part(unique(PART, number), len(data), crc32c(data))
        self.store.put(part.name, data)
        return part

    def finish(self, number: int, manifest: BackupManifest) -> None:
        """Let it be a backup. Raises Conflict when another one has begun meanwhile."""
        document = {
            "version": _VERSION,
            "queue": manifest.queue,
            "backup": asdict(manifest.backup),
            "shards": manifest.shards,
        }
        if not self._put_once(_numbered(MOMENT, number), sealed(document)):
            raise Conflict(
                f"another backup into {self.url} has begun while this one was made: let one at a time run"
            )

    def _put_once(self, name: str, data: bytes) -> bool:
        # A put that was sent twice meets itself.
        return self.store.put_if_absent(name, data) or self.store.get(name, _BYTES_MAX) == data

    def _claim_for(self, queue: str) -> None:
        if self.store.names(CHUNK) or self.store.names(CHECKPOINT):
            raise Conflict(f"{self.url} has a queue in it: backups need a place of their own")
        if self._put_once(SET, sealed({"version": _VERSION, "queue": queue})):
            return
        if self._document(SET, ("version", "queue"))["queue"] != queue:
            raise Conflict(
                f"{self.url} has the backups of another queue: give each queue a target of its own"
            )

    # Looking.

    def entries(self) -> Iterator[tuple[int, BackupManifest | QuiverError]]:
        """Each backup, the oldest first; an error in place of one that cannot be read.

        Raises NotFound where there are no backups at all.
        """
        self.check()
        for number in self._numbers(MOMENT):
            try:
                manifest = self.manifest(number)
            except (DamagedChunk, UnsupportedChunk) as error:
                yield number, error
            else:
                if manifest is not None:
                    yield number, manifest

    def check(self) -> None:
        """Raise NotFound where there are no backups."""
        if self.store.get(SET, _BYTES_MAX) is None:
            raise NotFound(f"{self.url} has no backups")

    def latest(self) -> BackupManifest | None:
        """The latest one that can be read."""
        for number in reversed(self._numbers(MOMENT)):
            try:
                manifest = self.manifest(number)
            except DamagedChunk:
                continue
            if manifest is not None:
                return manifest
        return None

    def manifest(self, number: int) -> BackupManifest | None:
        """One backup; None when it came to nothing, or is gone. Raises DamagedChunk, UnsupportedChunk."""
        name = _numbered(MOMENT, number)
        data = self.store.get(name, _BYTES_MAX)
        if data is None or data == _VOID:
            return None
        document = self._document(name, ("version", "queue", "backup", "shards"), data)
        try:
            shards = {
                str(shard): Part(str(name), int(size), int(crc))
                for shard, (name, size, crc) in document["shards"].items()
            }
            return BackupManifest(Backup(**document["backup"]), str(document["queue"]), shards)
        except (TypeError, ValueError, AttributeError) as error:
            raise damaged(name, f"it is not as it should be ({error})") from error

    def files(self, part: Part) -> Checkpoint:
        """The files of one shard at that moment. Raises DamagedChunk, UnsupportedChunk."""
        return decode_checkpoint(part.name, self.part(part, CHECKPOINT_BYTES_MAX))

    def part(self, part: Part, bytes_max: int | None = None) -> bytes:
        """The bytes of a part. Raises DamagedChunk when they are not what they were, or lie elsewhere."""
        if not _PART_NAME.fullmatch(part.name):
            raise damaged(part.name[:200], "no part of a backup has such a name")
        data = self.store.get(part.name, part.size if bytes_max is None else bytes_max)
        if data is None:
            raise damaged(part.name, "it is not there")
        if len(data) != part.size or crc32c(data) != part.crc:
            raise damaged(part.name, "its checksum does not fit")
        return data

    def _document(self, name: str, names: tuple[str, ...], data: bytes | None = None) -> dict[str, Any]:
        data = self.store.get(name, _BYTES_MAX) if data is None else data
        if data is None:
            raise damaged(name, "it is not there")
        try:
            document: dict[str, Any] = json.loads(data)
            version = document["version"]
            if version != _VERSION:
                raise UnsupportedChunk(
                    f"{name} in {self.url} has version {version}; this release reads version {_VERSION}:"
                    " use the release that wrote it"
                )
            open_seal(document, names)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise damaged(name, f"it is not as it should be ({error})") from error
        return document

    def _numbers(self, prefix: str) -> list[int]:
        return [first_number(name) for name in self.store.names(prefix)]

    # Taking away.

    def prune(self, keep: int) -> list[Backup]:
        """Take away all but the latest `keep` backups, and what no backup names; returns those that went.

        A backup may be made meanwhile. Raises DamagedChunk when one that stays cannot be read: nobody
        knows what that names.
        """
        entries = list(self.entries())
        stay = entries[max(0, len(entries) - keep) :]
        if not stay:
            return []
        newest = stay[-1][0]
        needed = set(self._names_of(stay))
        # First the moments: what they name may then go, and whatever dies in between, the next one sees.
        # Those that are void stay for ever: without one, whoever was only slow would find its name free.
        gone = entries[: len(entries) - len(stay)]
        self.store.remove(_numbered(MOMENT, number) for number, _ in gone)
        there = self.store.names(PART)
        self.store.remove([n for n in there if first_number(n) <= newest and n not in needed])
        return [entry.backup for _, entry in gone if isinstance(entry, BackupManifest)]

    def _names_of(self, entries: Iterable[tuple[int, BackupManifest | QuiverError]]) -> Iterator[str]:
        for _, entry in entries:
            if isinstance(entry, QuiverError):
                raise entry
            for part in entry.shards.values():
                yield part.name
                yield from self.files(part).part_names()


def _numbered(kind: str, number: int) -> str:
    return f"{kind}{number:020d}"
