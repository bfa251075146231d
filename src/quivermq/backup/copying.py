"""The files of a picture as parts in a store: only what the target does not have yet is put there.

A file grows at its end, so its first bytes are mostly stored already. Where the file system tells that a
file is as it was, it is not even read; otherwise its stored parts are compared with what it has now.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crc32c import crc32c

from quivermq.backup.sets import BackupSet
from quivermq.disk import File
from quivermq.log.picture import Picture, Pictured, Spoiled
from quivermq.shared.checkpoint import Part, StoredFile

# Shows how many bytes of how many are done.
BytesProgress = Callable[[int, int], None]

# For its owner alone, also where a directory was given to a group.
_PRIVATE = ("keys.json",)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupLimits:
    """How bytes are put into objects."""

    part_bytes_min: int = 64 << 10
    """From so many bytes on, what a file has got becomes an object of its own."""

    part_bytes_max: int = 32 << 20
    """The largest object; it is held in memory."""

    inline_bytes_max: int = 8 << 20
    """How many bytes of small files, and of ends of files, are in the list of files itself."""

    attempts: int = 5
    """How many pictures are taken, where files are cut before they are read."""


class PictureCopy:
    """Stores pictures for the backup of one number. `check` raises when it should end."""

    def __init__(
        self, target: BackupSet, number: int, limits: BackupLimits, check: Callable[[], None]
    ) -> None:
        self.new_bytes = 0
        self._target = target
        self._number = number
        self._limits = limits
        self._check = check
        self._inline_bytes = 0

    def copy(
        self, picture: Picture, known: dict[str, StoredFile], progress: BytesProgress
    ) -> list[StoredFile]:
        """The files of a picture, stored. `known` are those that the target has, and gets these as well.

        Raises Spoiled.
        """
        self._inline_bytes = 0
        total, done, files = sum(file.size for file in picture.files.values()), 0, []
        progress(0, total)
        for name in sorted(picture.files):
            self._check()
            known[name] = self._stored(picture, name, known)
            files.append(known[name])
            done += picture.files[name].size
            progress(done, total)
        # A queue that was closed meanwhile no longer guards its files.
        self._check()
        return files

    def _stored(self, picture: Picture, name: str, known: Mapping[str, StoredFile]) -> StoredFile:
        pictured, before = picture.files[name], known.get(name)
        if before is not None and pictured.mark and pictured.mark == before.mark:
            picture.forget(name)
            self._inline_bytes += len(before.tail)
            return before
        with picture.reading(name) as file:
            parts = _same_parts(file, before, pictured.size)
            parts, tail = self._with_new(file, parts, pictured)
        return StoredFile(name, name in _PRIVATE, parts, tail, pictured.mark)

    def _with_new(
        self, file: File, parts: tuple[Part, ...], pictured: Pictured
    ) -> tuple[tuple[Part, ...], bytes]:
        limits = self._limits
        start = sum(part.size for part in parts)
        size = pictured.size - start
        if size < limits.part_bytes_min and self._inline_bytes + size <= limits.inline_bytes_max:
            self._inline_bytes += size
            return parts, _read(file, start, size)
        # Small parts become one with what is new, so that a file that grew for long has only a few.
        while parts and parts[-1].size <= size <= limits.part_bytes_max - parts[-1].size:
            size += parts[-1].size
            start -= parts[-1].size
            parts = parts[:-1]
        while start < pictured.size:
            self._check()
            data = _read(file, start, min(limits.part_bytes_max, pictured.size - start))
            parts = (*parts, self._target.put(self._number, data))
            self.new_bytes += len(data)
            start += len(data)
        return parts, b""


def _same_parts(file: File, before: StoredFile | None, size: int) -> tuple[Part, ...]:
    """The stored parts, from the first on, whose bytes are still those of the file."""
    start = 0
    parts = () if before is None else before.parts
    for count, part in enumerate(parts):
        if start + part.size > size or crc32c(_read(file, start, part.size)) != part.crc:
            return parts[:count]
        start += part.size
    return parts


def _read(file: File, position: int, length: int) -> bytes:
    data = file.read(position, length)
    if len(data) < length:
        raise Spoiled(f"{file.path} became shorter")
    return data
