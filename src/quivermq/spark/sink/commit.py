"""From staged files to the topics of a data directory, exactly once, across crashes of the driver.

The manifest is the commit point: from when it has its name, the batch consists of exactly the files that it
lists, also when the batch is executed again and stages others. Applying it may be repeated, because each
frame has a producer and a sequence.
"""

import logging
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from quivermq.disk import Disk, read_file, remove_tree, replace_file
from quivermq.errors import DirectoryLocked, Unavailable
from quivermq.settings import Durability
from quivermq.spark.sink.pace import Pace
from quivermq.spark.sink.staging import (
    StagedFile,
    StagedFrame,
    directory_of,
    packed_manifest,
    unpacked_manifest,
)

if TYPE_CHECKING:
    import quivermq

logger = logging.getLogger(__name__)

_APPLIED = "applied"
_MANIFEST = ".json"
# The directory of a batch, its manifest, and one that was not finished.
_OF_A_BATCH = re.compile(r"([0-9]+)(\.json(\.new)?)?", re.ASCII)
_MANIFEST_BYTES_MAX = 1024 * 1024 * 1024

Opener = Callable[[Path], "AbstractContextManager[quivermq.Engine]"]


def open_queue(path: Path) -> "quivermq.Engine":
    """The data directory, as any embedded program opens it. Raises Unavailable while another one has it."""
    import quivermq

    try:
        return quivermq.open(path)
    except DirectoryLocked as error:
        holder = "another process" if error.pid is None else f"process {error.pid}"
        raise Unavailable(
            f"{path} is open in {holder}, and only one may write to it: close it there, or write with the"
            " option `server` to the broker that serves it"
        ) from error


def commit_batch(
    path: Path,
    write: str,
    batch: int,
    files: list[StagedFile],
    *,
    disk: Disk,
    open_queue: Opener = open_queue,
    durability: Durability | None = None,
    pace: Pace | None = None,
    is_repeatable: bool = True,
) -> None:
    """Bring a batch into its topics, unless that was done before.

    A write that nobody can repeat, because it has an id of its own each time, leaves nothing behind.
    """
    directory = directory_of(path, write)
    # Who holds the queue's lock is alone here as well.
    with open_queue(path) as queue:
        if batch > _last_applied(disk, directory):
            manifest = directory / f"{batch}{_MANIFEST}"
            if not disk.exists(manifest):
                disk.make_directory(directory)
                replace_file(disk, manifest, packed_manifest(files))
            committed = unpacked_manifest(read_file(disk, manifest, bytes_max=_MANIFEST_BYTES_MAX))
            _apply(queue, disk, directory / str(batch), committed, durability, pace or Pace(None))
            if is_repeatable:
                replace_file(disk, directory / _APPLIED, str(batch).encode())
        if is_repeatable:
            _clean(disk, directory)
        else:
            remove_tree(disk, directory)


def discard_batch(path: Path, write: str, batch: int, *, disk: Disk, is_repeatable: bool = True) -> None:
    """Take away what was staged for a batch that failed. What has a manifest is committed, and stays."""
    directory = directory_of(path, write)
    if not is_repeatable:
        remove_tree(disk, directory)
    elif not disk.exists(directory / f"{batch}{_MANIFEST}"):
        remove_tree(disk, directory / str(batch))


def _last_applied(disk: Disk, directory: Path) -> int:
    try:
        return int(read_file(disk, directory / _APPLIED, bytes_max=64))
    except FileNotFoundError:
        return -1


def _apply(
    queue: "quivermq.Engine",
    disk: Disk,
    directory: Path,
    files: list[StagedFile],
    durability: Durability | None,
    pace: Pace,
) -> None:
    last = {_lane(frame): frame for file in files for frame in file.frames}
    for staged in files:
        if not staged.frames:
            continue
        file = disk.open(directory / staged.name)
        try:
            for frame in staged.frames:
                pace.wait(frame.messages)
                # What the topic promises, it promises at the end; a sync of the last covers those before.
                is_last = last[_lane(frame)] is frame
                queue.queue(frame.topic).put_frame(
                    file.read(frame.position, frame.length),
                    partition=frame.partition,
                    priority=frame.priority,
                    durability=durability if is_last else "os",
                )
        finally:
            file.close()


def _lane(frame: StagedFrame) -> tuple[str, int, str]:
    return frame.topic, frame.partition, frame.priority


def _clean(disk: Disk, directory: Path) -> None:
    """Take away what is applied, and what attempts left that came to nothing."""
    last = _last_applied(disk, directory)
    found = {name: match for name in disk.names(directory) if (match := _OF_A_BATCH.fullmatch(name))}
    done = [name for name, match in found.items() if int(match[1]) <= last]
    # First the manifests: while there is one, its files are there as well.
    for name in (name for name in done if not name.isdigit()):
        disk.remove(directory / name)
    disk.sync_directory(directory)
    for name in (name for name in done if name.isdigit()):
        remove_tree(disk, directory / name)
