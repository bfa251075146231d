"""Bringing a segment back after the process or the machine stopped without warning.

Recovery starts at the index's mark: before it, everything was on stable storage, so nothing there is
looked at now, and what cannot be read later is damage. Behind it, a write may have been torn, or may
have reached the disk while an earlier one did not: the segment is cut at the first frame that is not
whole. Should whole frames follow the cut, they go to quarantine first, because nobody can tell a lost
write from a rotten one any more.

Damaged bytes go to a side file beside the log, the quarantine, so that nothing is ever thrown away.

Without a believable index there is no mark. Then only a tail with nothing whole behind it is cut; any
other damage stays for `quiver repair`.
"""

import logging
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from quivermq.disk import Disk, File, file_size
from quivermq.errors import DiskRefused
from quivermq.segment.index import Noter, SparseIndex, index_path, load_index, log_path, write_index
from quivermq.segment.scan import Damage, FrameScan
from quivermq.segment.segment import Segment
from quivermq.settings import StorageSettings

logger = logging.getLogger(__name__)

# No topic or group can have this name, so it never hides one.
QUARANTINE = "@quarantine"
COPY_BYTES = 1024 * 1024


@dataclass(slots=True)
class Tail:
    """How a segment ends, found by looking at what lies behind its mark."""

    index: SparseIndex
    size: int
    marked: bool
    """Whether there was an index to believe."""
    marked_offset: int
    """What the index says was synced, even where the file is shorter than that now."""
    synced: int
    """The position of the mark, where the looking began."""
    end_offset: int
    end: int
    """Where the last whole frame ends."""
    timestamp_max: int
    cut: Damage | None = None
    """What is not whole at the end, to be cut off."""
    damages: list[Damage] = field(default_factory=list)
    """What is not whole before the end, and stays."""
    first_append_time: int | None = None
    """When the first frame came in, if the looking began there."""
    index_grows: bool = False
    """Whether the file of the index has every entry it should have, so that more may follow."""
    index_is_old: bool = False
    """Whether the file of the index has other entries than `index`: it could not be replaced."""

    @property
    def is_closed(self) -> bool:
        """Whether the segment was synced as a whole: its mark stands at the end of the file."""
        return self.marked and self.synced == self.size

    def segment(self, disk: Disk, directory: Path, settings: StorageSettings) -> Segment:
        """The segment as it ends here, active: whoever made the tail keeps it up to date."""
        return Segment(
            *(disk, directory, self.index.base_offset, settings),
            end_offset=self.end_offset,
            end=self.end,
            index=self.index,
            timestamp_max=self.timestamp_max,
        )


def inspect_tail(
    disk: Disk, directory: Path, base_offset: int, settings: StorageSettings, *, is_last: bool = True
) -> Tail:
    """Read a segment's index and everything behind its mark. Changes nothing."""
    with closing(disk.open(log_path(directory, base_offset))) as file:
        size = file.size()
        scan = FrameScan(file, end=size, raw_bytes_max=settings.frame_raw_bytes_max)
        loaded = load_index(disk, directory, base_offset)
        index = SparseIndex(base_offset) if loaded is None else loaded
        marked_offset, entries = index.mark[0], len(index)
        index.cut(size)
        marked = loaded is not None and _leads_to_mark(scan, index)
        synced_once = (index.mark[0], index.mark[2])
        if not marked:
            index, marked_offset = SparseIndex(base_offset), base_offset
        offset, timestamp_max, position = index.mark
        tail = Tail(
            index=index,
            size=size,
            marked=marked,
            marked_offset=marked_offset,
            synced=position,
            end_offset=offset,
            end=position,
            timestamp_max=timestamp_max,
            index_grows=marked and not index.is_torn and len(index) == entries,
        )
        _walk(tail, scan, settings, is_last)
        if not marked and is_last:
            _keep_what_was_synced(tail, *synced_once)
        return tail


def _keep_what_was_synced(tail: Tail, offset: int, position: int) -> None:
    """An index that is whole, but to whose mark nothing leads, is about another log or shows damage.

    When its mark stands at the very end of the file, the log was closed, and what is not whole in it is
    no torn tail: it is not cut, and the log goes on behind it.
    """
    if tail.cut is not None and position == tail.size and tail.end_offset < offset:
        damage, tail.cut = tail.cut, None
        tail.damages.append(damage._replace(offsets=(tail.end_offset, offset)))
        tail.end, tail.end_offset = tail.size, offset


def _leads_to_mark(scan: FrameScan, index: SparseIndex) -> bool:
    """Whether the headers before the mark lead to it.

    An index may be whole and tell of another log: cutting behind its mark would cut through frames.
    """
    offset, _, position = index.mark
    return scan.leads(*index.find_offset(offset - 1), position, offset)


def _walk(tail: Tail, scan: FrameScan, settings: StorageSettings, is_last: bool) -> None:
    note = Noter(tail.index, settings.index_interval_bytes, tail.timestamp_max)
    for found in scan.frames(tail.end, tail.end_offset):
        if isinstance(found, Damage):
            if tail.marked or (is_last and found.is_last):
                tail.cut = found
                break
            tail.damages.append(found)
        else:
            note.frame(found)
            if tail.end == 0:
                tail.first_append_time = found.frame.header.append_time
            tail.end, tail.end_offset = found.end, found.frame.header.end_offset
    tail.timestamp_max = note.timestamp_max


def recover(disk: Disk, directory: Path, tail: Tail, *, is_last: bool) -> None:
    """Make a segment, as `inspect_tail` saw it, whole and durable up to its last whole frame.

    Doing it twice gives the same bytes as doing it once.
    """
    path = log_path(directory, tail.index.base_offset)
    if tail.end_offset < tail.marked_offset:
        logger.error(
            "%s is shorter than it was when last synced: offsets [%d, %d) are gone",
            *(path, tail.end_offset, tail.marked_offset),
        )
    if not is_last and (tail.damages or tail.end_offset < tail.marked_offset):
        # No crash has done that, and a new index would say that one had.
        return
    if tail.is_closed:
        if file_size(disk, index_path(directory, tail.index.base_offset)) != tail.index.file_bytes:
            # A torn write left something behind the last entry: nothing behind that would be found.
            _write_index(disk, directory, tail)
        return
    with closing(disk.open(path, writable=True)) as file:
        _cut(tail, disk, file)
        _write_again(tail, file)
        file.sync()
    tail.index.mark_end(tail.end_offset, tail.timestamp_max, tail.end)
    _write_index(disk, directory, tail)


def _write_index(disk: Disk, directory: Path, tail: Tail) -> None:
    """Bring the index up to date, or leave it on a full disk: the log must open, or nothing makes room.

    But not without any that is right, because the mark of a later crash would be missing.
    """
    if tail.end_offset < tail.marked_offset:
        # Only the old one knows what is gone, until the log itself says so.
        tail.index_is_old = True
        return
    try:
        if tail.index_grows:
            _append_to_index(disk, directory, tail)
        else:
            write_index(disk, directory, tail.index)
    except DiskRefused as error:
        if not tail.marked:
            raise
        logger.warning("left the index of offset %d as it was: %s", tail.index.base_offset, error)
        tail.index_is_old = True


def _append_to_index(disk: Disk, directory: Path, tail: Tail) -> None:
    """Add what is behind the last entry, as a sync does: nothing depends on it, so it is not synced."""
    with closing(disk.open(index_path(directory, tail.index.base_offset), writable=True)) as file:
        size = file.size()
        try:
            file.append([tail.index.encode_more(tail.end)])
        except DiskRefused:
            file.truncate(size)
            raise


def _cut(tail: Tail, disk: Disk, file: File) -> None:
    if tail.cut is None:
        return
    logger.warning(
        "%s ends in a torn write: cut %d bytes behind offset %d (%s)",
        *(file.path, tail.size - tail.end, tail.end_offset, tail.cut.reason),
    )
    if not tail.cut.is_last:
        set_aside(disk, file, tail.end, tail.size)
    # Nobody has these bytes mapped: only whole frames are ever mapped.
    file.truncate(tail.end)


def _write_again(tail: Tail, file: File) -> None:
    """Put what was not known to be synced through the page cache once more.

    When an earlier sync failed, its pages are clean in memory and missing on the disk, and no later
    sync would ever write them: only writing them again does.
    """
    position = tail.synced
    while position < tail.end:
        data = file.read(position, min(COPY_BYTES, tail.end - position))
        file.rewrite(position, data)
        position += len(data)


def set_aside(disk: Disk, file: File, position: int, end: int) -> Path:
    """Copy the bytes [position, end) of a log file into its quarantine, durably.

    The caller removes them from the log afterwards: a crash in between leaves them in both places,
    and the next attempt finds its copy there already.
    """
    directory = file.path.parent / QUARANTINE
    disk.make_directory(directory)
    stem, number = f"{file.path.stem}.{position}-{end}", 1
    path = directory / f"{stem}.bytes"
    # A name that is free, or whose file is an earlier, perhaps unfinished copy of the same bytes.
    while disk.exists(path) and not _is_prefix(disk, path, file, position, end):
        number += 1
        path = directory / f"{stem}.{number}.bytes"
    with closing(disk.create(path)) as copy:
        copy_range(file, copy, position, end)
        copy.sync()
    disk.sync_directory(directory)
    return path


def copy_range(source: File, target: File, position: int, end: int) -> None:
    """Append the bytes [position, end) of one file to another."""
    while position < end:
        data = source.read(position, min(COPY_BYTES, end - position))
        target.append([data])
        position += len(data)


def _is_prefix(disk: Disk, path: Path, file: File, position: int, end: int) -> bool:
    with closing(disk.open(path)) as known:
        size = known.size()
        return size <= end - position and all(
            known.read(at, COPY_BYTES) == file.read(position + at, min(COPY_BYTES, size - at))
            for at in range(0, size, COPY_BYTES)
        )
