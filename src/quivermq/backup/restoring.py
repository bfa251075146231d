"""Making a queue from a backup, in an empty directory or an empty bucket, every byte checked.

Nobody sees a part of it: a directory is made beside and gets its name at the end; in a bucket the last
object that is put says which others count.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from os import urandom
from pathlib import Path

from crc32c import crc32c

from quivermq.backup.checking import check_backups
from quivermq.backup.copying import BytesProgress
from quivermq.backup.making import ONE_SHARD
from quivermq.backup.sets import SET, BackupManifest, BackupSet
from quivermq.backup.targets import bucket_at, check_target, is_url, open_set
from quivermq.disk import Disk, SystemDisk, remove_tree
from quivermq.errors import Conflict, DamagedChunk, NotFound, QuiverError
from quivermq.log.verify import verify
from quivermq.model.backups import Restored
from quivermq.model.checks import Moment, moment_us
from quivermq.settings import BucketSettings
from quivermq.shared.checkpoint import Checkpoint, Part, StoredFile, encode_checkpoint
from quivermq.shared.chunk import CHUNK_BYTES_MAX, chain_of
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.disk import CacheDisk
from quivermq.shared.fetching import fetched
from quivermq.shared.naming import CHECKPOINT, CHUNK, numbered
from quivermq.shared.objects import ObjectStore
from quivermq.shared.race import check_conditional_puts
from quivermq.shared.rebuilding import Rebuilding

logger = logging.getLogger(__name__)

_READERS = 4
# In the place of a directory that is being made; its lock keeps others away.
_UNFINISHED = ".{}.restoring"
_LOCK = "LOCK"
_PART_BYTES_MAX = 64 << 20
# A smaller file is in the checkpoint of a bucket itself, up to so many bytes of all.
_TAIL_BYTES_MAX = 64 << 10
_INLINE_BYTES_MAX = 32 << 20


def restore(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    at: Moment | None = None,
    progress: BytesProgress | None = None,
    settings: BucketSettings | None = None,
) -> Restored:
    """What `quivermq.restore` does."""
    source, target = os.fspath(source), os.fspath(target)
    check_target(target)
    place: Path | ObjectStore = bucket_at(target, settings) if is_url(target) else Path(target).absolute()
    with open_set(source, settings) as backups:
        return restore_from(backups, place, at=at, progress=progress)


def restore_from(
    backups: BackupSet,
    place: Path | ObjectStore,
    *,
    at: Moment | None = None,
    progress: BytesProgress | None = None,
    disk: Disk | None = None,
) -> Restored:
    """The same from backups that are open, into a directory of `disk` or an object store."""
    disk = disk or CacheDisk()
    if isinstance(place, Path):
        _check_empty(disk, place)
    else:
        _check_no_queue(place)
    manifest = _chosen(backups, None if at is None else moment_us("at", at))
    try:
        loading = _Loading(backups, backups.files(manifest.shards[ONE_SHARD]), progress)
        if isinstance(place, Path):
            return _into_directory(manifest, loading, disk, place)
        return _into_store(manifest, loading, disk, place)
    except DamagedChunk as error:
        raise _with_advice(backups, manifest, error) from error


def _chosen(backups: BackupSet, at_us: int | None) -> BackupManifest:
    """The backup to restore. Raises NotFound, and DamagedChunk when it cannot be read."""
    backups.check()
    first: BackupManifest | None = None
    chosen: BackupManifest | QuiverError | None = None
    for _, entry in backups.entries():
        if isinstance(entry, QuiverError):
            logger.warning("a backup cannot be read: %s", entry)
            chosen = entry if at_us is None else chosen
        elif at_us is None or entry.backup.taken_us <= at_us:
            chosen = entry
        first = first or (entry if isinstance(entry, BackupManifest) else None)
    if isinstance(chosen, QuiverError):
        raise chosen
    if chosen is None:
        begin = "" if first is None else f": the first is of {moment_text(first.backup.taken_us)}"
        raise NotFound(f"{backups.url} has no backup{'' if at_us is None else ' of that time'}{begin}")
    return chosen


class _Loading:
    """The files of a backup, as they come."""

    def __init__(self, backups: BackupSet, checkpoint: Checkpoint, progress: BytesProgress | None) -> None:
        self.checkpoint = checkpoint
        self._backups = backups
        self._progress = progress

    def into(self, disk: Disk, root: Path) -> None:
        """Make all files, durably. Raises DamagedChunk."""
        rebuilding = Rebuilding(disk, root)
        try:
            rebuilding.load(self.checkpoint, self._parts())
        finally:
            rebuilding.close()
        for file in self.checkpoint.files:
            with closing(disk.open(root / file.path, writable=True)) as made:
                made.sync()
        durable = _durable(disk)
        for directory in self.checkpoint.directories:
            durable.sync_directory(root / directory)
        durable.sync_directory(root)

    def _parts(self) -> Iterator[tuple[Part, bytes]]:
        parts = [part for file in self.checkpoint.files for part in file.parts]
        total, done = sum(part.size for part in parts), 0
        for part, data in fetched(parts, self._backups.part, _READERS):
            yield part, data
            done += part.size
            if self._progress is not None:
                self._progress(done, total)


def _durable(disk: Disk) -> Disk:
    """The disk as one that syncs its directories: while files are made, that would be once for each."""
    return SystemDisk() if isinstance(disk, CacheDisk) else disk


def _into_directory(manifest: BackupManifest, loading: _Loading, disk: Disk, directory: Path) -> Restored:
    with _made_beside(disk, directory) as unfinished:
        loading.into(disk, unfinished)
    return _restored(manifest, loading.checkpoint, disk, directory)


@contextmanager
def _made_beside(disk: Disk, directory: Path) -> Iterator[Path]:
    """A directory that gets its name at the end of the block, or is taken away again."""
    unfinished = directory.with_name(_UNFINISHED.format(directory.name))
    disk.make_directory(unfinished)
    lock = disk.lock(unfinished / _LOCK)
    try:
        # What one that was killed has left.
        _clear(disk, unfinished)
        try:
            yield unfinished
            disk.rename(unfinished, directory)
        except BaseException:
            remove_tree(disk, unfinished)
            raise
        _durable(disk).sync_directory(directory.parent)
    finally:
        lock.release()


def _clear(disk: Disk, directory: Path) -> None:
    for name in disk.names(directory):
        path = directory / name
        if disk.is_directory(path):
            remove_tree(disk, path)
        elif name != _LOCK:
            disk.remove(path)


def _check_empty(disk: Disk, directory: Path) -> None:
    """Raise Conflict unless there is nothing, or an empty directory."""
    if disk.exists(directory) and not disk.is_directory(directory):
        raise Conflict(f"{directory} is a file: restore into a directory that is empty or not there")
    names = disk.names(directory)
    if names:
        raise Conflict(
            f"{directory} is not empty, there is {names[0]}: restore into a directory that is empty or not"
            " there"
        )


def _restored(manifest: BackupManifest, checkpoint: Checkpoint, disk: Disk, directory: Path) -> Restored:
    topics = [file for file in checkpoint.files if _is_topic(file.path)]
    return Restored(manifest.backup, len(topics), verify(directory, disk=disk))


def _is_topic(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and parts[0] == "topics" and parts[2] == "topic.json"


def _check_no_queue(store: ObjectStore) -> None:
    if store.names(SET):
        raise Conflict("there are backups in that bucket: restore under another prefix")
    if store.names(CHUNK) or store.names(CHECKPOINT):
        raise Conflict("there is a queue in that bucket already: restore under another prefix")
    check_conditional_puts(store)


def _into_store(manifest: BackupManifest, loading: _Loading, disk: Disk, store: ObjectStore) -> Restored:
    """Put the files, checked in a directory of this machine before, as the first checkpoint of a queue."""
    with _temporary(disk) as root:
        loading.into(disk, root)
        restored = _restored(manifest, loading.checkpoint, disk, root)
        upload = _Upload(store, disk, root)
        try:
            upload.run(loading.checkpoint)
        except BaseException:
            upload.take_back()
            raise
    return restored


@contextmanager
def _temporary(disk: Disk) -> Iterator[Path]:
    """A directory of this machine that goes at the end."""
    root = Path(os.environ.get("TMPDIR", "/tmp")).absolute() / f"quiver-restore-{urandom(8).hex()}"
    disk.make_directory(root)
    try:
        yield root
    finally:
        remove_tree(disk, root)


class _Upload:
    """Puts files as the first checkpoint of a queue in a bucket."""

    def __init__(self, store: ObjectStore, disk: Disk, root: Path) -> None:
        self._names: list[str] = []
        self._claim: str | None = None
        self._store = store
        self._chunks = ConditionalChunks(store)
        self._disk = disk
        self._root = root
        self._inline_bytes = 0

    def run(self, found: Checkpoint) -> None:
        """Claim the queue, as its owner does, and let it begin with these files.

        Raises Conflict when somebody has begun another one meanwhile, and leaves that as it is.
        """
        files = [self._stored(file) for file in found.files]
        # Only now: putting the files may take hours, and whoever claims behind begins without them.
        if self._store.names(CHUNK):
            raise _begun_meanwhile()
        number = self._chunks.claim() - 1
        if number:
            raise _begun_meanwhile()
        self._claim = numbered(number)
        data = self._store.get(self._claim, CHUNK_BYTES_MAX) or b""
        first = Checkpoint(number + 1, chain_of(data), (number,), found.directories, files)
        self._chunks.put_checkpoint(number + 1, encode_checkpoint(first))

    def take_back(self) -> None:
        """Take away what was put."""
        self._store.remove(self._names)
        # With another one behind it, it is the beginning of that one's history.
        if self._claim is not None and self._store.names(CHUNK) == [self._claim]:
            self._store.remove([self._claim])

    def _stored(self, file: StoredFile) -> StoredFile:
        """A file as objects, as it is: whoever reads the bucket reads it there."""
        parts: list[Part] = []
        with closing(self._disk.open(self._root / file.path)) as made:
            size = made.size()
            if size < _TAIL_BYTES_MAX and self._inline_bytes + size <= _INLINE_BYTES_MAX:
                self._inline_bytes += size
                return StoredFile(file.path, file.is_private, (), made.read(0, size))
            for start in range(0, size, _PART_BYTES_MAX):
                data = made.read(start, min(_PART_BYTES_MAX, size - start))
                parts.append(Part(self._chunks.put_file(data), len(data), crc32c(data)))
                self._names.append(parts[-1].name)
        return StoredFile(file.path, file.is_private, tuple(parts), b"")


def _begun_meanwhile() -> Conflict:
    return Conflict("somebody has begun a queue in that bucket meanwhile: restore under another prefix")


def _with_advice(backups: BackupSet, manifest: BackupManifest, error: DamagedChunk) -> DamagedChunk:
    """The error with the name of the latest backup before that is whole."""
    failed = manifest.backup
    what = f"backup {failed.number} of {backups.url} cannot be restored: {error}"
    for number, entry in reversed(list(backups.entries())):
        if (
            number < failed.number
            and isinstance(entry, BackupManifest)
            and check_backups(backups, number).is_sound
        ):
            taken = moment_text(entry.backup.taken_us)
            return DamagedChunk(
                f"{what}; backup {number} is whole: restore that with --at {taken}", path=error.path
            )
    return DamagedChunk(f"{what}; no backup before it is whole", path=error.path)


def moment_text(taken_us: int) -> str:
    """A moment as `--at` takes it, in UTC."""
    return (
        f"{datetime.fromtimestamp(taken_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%S}.{taken_us % 1_000_000:06}Z"
    )
