"""A file that is read where it is stored, part by part, because this machine does not have it."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from quivermq.disk import Buffer
from quivermq.errors import StorageFailed
from quivermq.shared.blocks import Blocks
from quivermq.shared.checkpoint import Part


class RemoteFile:
    """A `File` for reading: its first bytes are stored parts, and the `tail` behind them is here.

    Reading and mapping raise what `Blocks` does. `on_close` is called once, at the first `close`.
    """

    def __init__(
        self,
        path: Path,
        parts: Sequence[Part],
        blocks: Blocks,
        *,
        tail: bytes = b"",
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self._parts = tuple(parts)
        self._blocks = blocks
        self._tail = tail
        self._tail_start = sum(part.size for part in parts)
        self._on_close = on_close
        self._is_closed = False
        self._memory = memoryview(b"")

    def size(self) -> int:
        return self._tail_start + len(self._tail)

    def read(self, position: int, length: int) -> bytes:
        self._check_open()
        end = min(position + length, self.size())
        pieces = []
        for part, part_end in self._with_ends():
            start = part_end - part.size
            if position < part_end and start < end:
                pieces.append(self._blocks.read(part, max(position - start, 0), min(end, part_end) - start))
        if end > self._tail_start:
            pieces.append(self._tail[max(position - self._tail_start, 0) : end - self._tail_start])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def map(self, length: int) -> memoryview:
        """The first `length` bytes, in memory. They are fetched once for this file."""
        self._check_open()
        assert length <= self.size(), f"{self.path} has only {self.size()} bytes"
        if len(self._memory) < length:
            pieces = [
                self._blocks.whole(part) for part, end in self._with_ends() if end - part.size < length
            ]
            if length > self._tail_start:
                pieces.append(self._tail)
            self._memory = memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return self._memory[:length]

    def append(self, buffers: Sequence[Buffer]) -> int:  # noqa: ARG002 - Nothing can be.
        raise self._read_only()

    def rewrite(self, position: int, data: Buffer) -> None:  # noqa: ARG002 - Nothing can be.
        raise self._read_only()

    def truncate(self, size: int) -> None:  # noqa: ARG002 - Nothing can be.
        raise self._read_only()

    def sync(self) -> None:
        """Everything that is here was stored before."""

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_close()

    def _with_ends(self) -> list[tuple[Part, int]]:
        """The parts, each with the position behind it."""
        ends = accumulate(part.size for part in self._parts)
        return list(zip(self._parts, ends, strict=True))

    def _check_open(self) -> None:
        assert not self._is_closed, f"{self.path} is closed"

    def _read_only(self) -> StorageFailed:
        return StorageFailed(f"{self.path} is open for reading only", path=self.path)
