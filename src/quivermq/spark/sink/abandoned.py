"""What killed writes have staged and nobody will commit: taken away after some days."""

import logging
import re
from pathlib import Path

from quivermq.disk import Disk, remove_tree
from quivermq.spark.sink.staging import STAGING

logger = logging.getLogger(__name__)

# Longer than any batch takes from its first file to its commit.
_KEPT_S = 7 * 24 * 3600
_STAGED = re.compile(r"[0-9]+-([0-9]+)-[0-9a-f]+\.frames", re.ASCII)


def remove_abandoned(disk: Disk, path: Path, now_us: int) -> None:
    """Take away old files without a manifest. Whoever calls has the lock of the queue.

    No batch misses them: one that is executed again stages files of its own.
    """
    oldest_s = now_us // 1_000_000 - _KEPT_S
    for write in disk.names(path / STAGING):
        directory = path / STAGING / write
        names = disk.names(directory)
        batches = [name for name in names if name.isdigit() and f"{name}.json" not in names]
        old = [batch for batch in batches if _is_old(disk, directory / batch, oldest_s)]
        for batch in old:
            logger.info("%s was staged by a write that never came to its end", directory / batch)
            remove_tree(disk, directory / batch)
        if old and not disk.names(directory):
            remove_tree(disk, directory)


def _is_old(disk: Disk, directory: Path, oldest_s: int) -> bool:
    """Whether all files in it were begun long ago. An empty one may be of a task that begins just now."""
    found = [_STAGED.fullmatch(name) for name in disk.names(directory)]
    return bool(found) and all(match is not None and int(match[1]) < oldest_s for match in found)
