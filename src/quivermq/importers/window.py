"""A file of a source, looked at a piece at a time."""

from collections.abc import Iterator

from quivermq.disk import File
from quivermq.errors import StorageFailed
from quivermq.importers.model import Findings

_WINDOW_BYTES = 1024 * 1024
_BLOCK_BYTES = 4096


class FileWindow:
    """A file as it was when it was opened, read through a buffer. Never mapped: somebody may cut it.

    What the disk does not give is zeros, and told.
    """

    def __init__(self, file: File, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self._bad_blocks: set[int] = set()
        self.size = file.size()
        self._start = 0
        self._held = b""

    def read(self, position: int, length: int) -> bytes:
        """So many bytes, or fewer where the file ends."""
        length = max(0, min(length, self.size - position))
        first = position - self._start
        if first < 0 or first + length > len(self._held):
            if length > _WINDOW_BYTES:
                return self._fetch(position, length)
            self._held = self._fetch(position, min(_WINDOW_BYTES, self.size - position))
            self._start, first = position, 0
        return self._held[first : first + length]

    def _fetch(self, position: int, length: int) -> bytes:
        try:
            return self._file.read(position, length)
        except StorageFailed:
            # Block by block, because most of them can still be read.
            return b"".join(
                self._fetch_block(each, min(_BLOCK_BYTES - each % _BLOCK_BYTES, position + length - each))
                for each in self._blocks(position, position + length)
            )

    def _blocks(self, start: int, end: int) -> Iterator[int]:
        yield start
        yield from range(start - start % _BLOCK_BYTES + _BLOCK_BYTES, end, _BLOCK_BYTES)

    def _fetch_block(self, position: int, length: int) -> bytes:
        try:
            return self._file.read(position, length)
        except StorageFailed as error:
            block = position // _BLOCK_BYTES
            if block not in self._bad_blocks:
                self._bad_blocks.add(block)
                self._findings.add(self._file.path, position, str(error), length=length)
            return bytes(length)

    def find(self, mark: bytes, position: int) -> int | None:
        """Where the mark stands next, at `position` or behind it."""
        while position + len(mark) <= self.size:
            first = position - self._start
            if not 0 <= first <= len(self._held) - len(mark):
                # Shorter than it was: somebody cut it.
                if len(self.read(position, _WINDOW_BYTES)) < len(mark):
                    return None
                first = position - self._start
            if (found := self._held.find(mark, first)) >= 0:
                return self._start + found
            position = self._start + len(self._held) - len(mark) + 1
        return None
