"""Pictures of a queue at every step of what it does, where a real one could be taken: between changes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from quivermq.disk import Buffer, File
from quivermq.log.open_files import OpenFiles

Hook = Callable[["SteppingFiles"], None]


class SteppingFiles(OpenFiles):
    """Calls `before_change` before each change, when no lock of a file or of names is held."""

    before_change: Hook = staticmethod(lambda _: None)

    def step(self) -> None:
        type(self).before_change(self)

    def create(self, path: Path, *, is_private: bool = False) -> File:
        self.step()
        return SteppingFile(self, super().create(path, is_private=is_private))

    def open(self, path: Path, *, writable: bool = False) -> File:
        file = super().open(path, writable=writable)
        return SteppingFile(self, file) if writable else file

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        self.step()
        super().remove_directory(path)


class SteppingFile:
    """A file of theirs that is open for writing."""

    def __init__(self, files: SteppingFiles, file: File) -> None:
        self.path = file.path
        self._files = files
        self._file = file
        self.size, self.read, self.map = file.size, file.read, file.map
        self.rewrite, self.sync, self.close = file.rewrite, file.sync, file.close

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._files.step()
        return self._file.append(buffers)

    def truncate(self, size: int) -> None:
        self._files.step()
        self._file.truncate(size)


@contextmanager
def stepping(before_change: Hook) -> Iterator[None]:
    """Within it, data directories that are opened call this before each change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quivermq.log.directory.OpenFiles", SteppingFiles)
        patch.setattr(SteppingFiles, "before_change", staticmethod(before_change))
        yield
