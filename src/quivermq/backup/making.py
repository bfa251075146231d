"""Making a backup of a queue while it is in use."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from quivermq.backup.copying import BackupLimits, BytesProgress, PictureCopy
from quivermq.backup.identity import queue_identity
from quivermq.backup.sets import BackupManifest, BackupSet
from quivermq.clock import Clock
from quivermq.disk import Disk
from quivermq.errors import Unavailable
from quivermq.log.picture import Picture, Spoiled
from quivermq.model.backups import Backup
from quivermq.shared.checkpoint import Checkpoint, StoredFile, encode_checkpoint
from quivermq.shared.chunk import CHAIN_START

logger = logging.getLogger(__name__)

# A queue on one machine is one shard, without a name.
ONE_SHARD = ""


@dataclass(frozen=True, slots=True)
class BackupSource:
    """The queue that is backed up."""

    path: Path
    disk: Disk
    clock: Clock
    picture: Callable[[], AbstractContextManager[Picture]]
    check: Callable[[], None]
    """Raises when the queue was closed."""
    archive: Path | None = None
    """Its archive, if that lies elsewhere."""


def make_backup(
    source: BackupSource,
    target: BackupSet,
    *,
    limits: BackupLimits | None = None,
    progress: BytesProgress | None = None,
) -> Backup:
    """Store the queue as it is at a moment after this call began, and what the target does not have of it.

    Raises Conflict when the target is another queue's, or another backup into it begins meanwhile;
    Unavailable when files were cut again and again; and as an `ObjectStore`. Until it has returned, the
    target has what it had before.
    """
    limits = limits or BackupLimits()
    identity = queue_identity(source.disk, source.path)
    number = target.begin(identity)
    latest = target.latest()
    known = {} if latest is None else _known(target, latest)
    copying = PictureCopy(target, number, limits, source.check)
    for _ in range(limits.attempts):
        try:
            with source.picture() as picture:
                taken_us = source.clock.now_us()
                files = copying.copy(picture, known, progress or _no_progress)
        except Spoiled as spoiled:
            logger.info("the picture for a backup is taken anew: %s", spoiled)
            reason = spoiled
        else:
            break
    else:
        raise Unavailable(
            f"files of {source.path} were changed {limits.attempts} times before they were stored, the last"
            f" time because {reason}: try again, when nothing else cleans up or archives"
        )
    listed = encode_checkpoint(Checkpoint(0, CHAIN_START, (), tuple(sorted(picture.directories)), files))
    part = target.put(number, listed)
    backup = Backup(
        number=number,
        taken_us=taken_us,
        files=len(files),
        bytes=sum(file.size for file in picture.files.values()),
        new_bytes=copying.new_bytes + len(listed),
        archive=None if source.archive is None else str(source.archive),
    )
    target.finish(number, BackupManifest(backup, identity, {ONE_SHARD: part}))
    logger.info("backup %d of %s: %d bytes, %d new", number, source.path, backup.bytes, backup.new_bytes)
    return backup


def _known(target: BackupSet, latest: BackupManifest) -> dict[str, StoredFile]:
    part = latest.shards.get(ONE_SHARD)
    return {} if part is None else {file.path: file for file in target.files(part).files}


def _no_progress(done: int, total: int) -> None:
    """Nobody wants to know."""
