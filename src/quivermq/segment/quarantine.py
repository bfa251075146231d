"""Where damaged bytes go: a side file beside the log, so that nothing is ever thrown away."""

from pathlib import Path

from quivermq.disk import Disk, File

# No topic or group can have this name, so it never hides one.
DIRECTORY = "@quarantine"
COPY_BYTES = 1024 * 1024


def set_aside(disk: Disk, file: File, position: int, end: int) -> Path:
    """Copy the bytes [position, end) of a log file into its quarantine, durably.

    The caller removes them from the log afterwards: a crash in between leaves them in both places,
    and the next attempt finds its copy there already.
    """
    directory = file.path.parent / DIRECTORY
    disk.make_directory(directory)
    path = _free_name(disk, directory, f"{file.path.stem}.{position}-{end}", file, position, end)
    copy = disk.create(path)
    try:
        copy_range(file, copy, position, end)
        copy.sync()
    finally:
        copy.close()
    disk.sync_directory(directory)
    return path


def copy_range(source: File, target: File, position: int, end: int) -> None:
    """Append the bytes [position, end) of one file to another."""
    while position < end:
        data = source.read(position, min(COPY_BYTES, end - position))
        target.append([data])
        position += len(data)


def _free_name(disk: Disk, directory: Path, stem: str, file: File, position: int, end: int) -> Path:
    """A name that is free, or whose file is an earlier, perhaps unfinished copy of the same bytes."""
    path, number = directory / f"{stem}.bytes", 1
    while disk.exists(path) and not _is_prefix(disk, path, file, position, end):
        number += 1
        path = directory / f"{stem}.{number}.bytes"
    return path


def _is_prefix(disk: Disk, path: Path, file: File, position: int, end: int) -> bool:
    earlier = disk.open(path)
    try:
        size = earlier.size()
        if size > end - position:
            return False
        chunks = range(0, size, COPY_BYTES)
        return all(
            earlier.read(at, COPY_BYTES) == file.read(position + at, min(COPY_BYTES, size - at))
            for at in chunks
        )
    finally:
        earlier.close()
