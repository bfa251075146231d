"""The files of one TinyMQ topic, read as one run of lines."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from quivermq.disk import Disk, File
from quivermq.errors import StorageFailed
from quivermq.importers.model import Findings

_CHUNK_BYTES = 1024 * 1024
# More than most lines have.
_LINE_BYTES = 4096
# TinyMQ itself reads lines of up to 4 MiB.
LINE_BYTES_MAX = 64 * 1024 * 1024


class Line(NamedTuple):
    """A line without its end, and where it lies: which of the files, and at which byte."""

    file: int
    position: int
    data: bytes


class LogFiles:
    """Files that stay open, and as long as they were at first: a queue that still runs may replace them."""

    def __init__(self, disk: Disk, paths: Sequence[Path], findings: Findings) -> None:
        self._files: list[tuple[File, int]] = []
        self._open = ExitStack()
        for path in paths:
            try:
                file = disk.open(path)
                self._open.callback(file.close)
                self._files.append((file, file.size()))
            except (FileNotFoundError, StorageFailed) as error:
                findings.add(path, None, f"it cannot be read: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def path(self, file: int) -> Path:
        return self._files[file][0].path

    def lines(self, findings: Findings) -> Iterator[Line]:
        """All lines that are not empty. One that is too long is told, and passed over unread."""
        for number, (file, size) in enumerate(self._files):
            try:
                yield from _lines_of(number, file, size, findings)
            except StorageFailed as error:
                findings.add(file.path, None, f"the rest of it cannot be read: {error}")

    def line_at(self, file: int, position: int) -> bytes:
        """The line that begins there."""
        opened, size = self._files[file]
        length = _LINE_BYTES
        while True:
            data = opened.read(position, min(length, size - position))
            end = data.find(b"\n")
            if end >= 0 or position + length >= size or length > LINE_BYTES_MAX:
                return data if end < 0 else data[:end]
            length *= 16


def _lines_of(number: int, file: File, size: int, findings: Findings) -> Iterator[Line]:
    # In parts, and joined only once the line ends: a long one would be copied again and again.
    rest: list[bytes] = []
    rest_bytes, at = 0, 0
    skipped_from: int | None = None
    read = 0
    while read < size:
        chunk = file.read(read, min(_CHUNK_BYTES, size - read))
        if not chunk:
            findings.add(file.path, read, "the file was cut while it was read")
            return
        read += len(chunk)
        *whole, last = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*rest, whole[0]))
            if skipped_from is not None:
                _tell_long(findings, file.path, skipped_from, at + len(whole[0]))
                at += len(whole.pop(0)) + 1
                skipped_from = None
            rest, rest_bytes = [], 0
            for data in whole:
                if data.strip():
                    yield Line(number, at, data)
                at += len(data) + 1
        rest.append(last)
        rest_bytes += len(last)
        if rest_bytes > LINE_BYTES_MAX or skipped_from is not None:
            skipped_from = at if skipped_from is None else skipped_from
            at += rest_bytes
            rest, rest_bytes = [], 0
    if skipped_from is not None:
        _tell_long(findings, file.path, skipped_from, size)
    elif (data := b"".join(rest)).strip():
        yield Line(number, at, data)


def _tell_long(findings: Findings, path: Path, start: int, end: int) -> None:
    problem = f"a line has {end - start} bytes, the limit is {LINE_BYTES_MAX}"
    findings.add(path, start, problem, length=end - start)
