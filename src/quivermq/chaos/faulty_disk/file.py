"""Open files and held locks of the faulty disk."""

from collections.abc import Sequence
from pathlib import Path

from quivermq.chaos.faulty_disk.device import Device
from quivermq.chaos.faulty_disk.inode import Inode, Resize, Write
from quivermq.disk import Buffer
from quivermq.errors import DiskFull, FsyncFailed, StorageFailed


class FaultyFile:
    """A file that reads and writes an inode, whatever becomes of the name it was opened by.

    As with a descriptor of the system, the place it appends to is its own: two files that write to
    one inode overwrite each other.
    """

    def __init__(self, device: Device, inode: Inode, path: Path, *, writable: bool) -> None:
        self.path = path
        self._device = device
        self._inode = inode
        self._writable = writable
        self._end = len(inode.live)
        self._closed = False

    def size(self) -> int:
        with self._device.alive():
            self._check_open()
            return len(self._inode.live)

    def append(self, buffers: Sequence[Buffer]) -> int:
        assert all(isinstance(buffer, bytes | bytearray) or buffer.itemsize == 1 for buffer in buffers)
        data = b"".join(buffers)
        with self._device.step("append", self.path) as step:
            self._check_writable()
            fits = min(len(data), self._device.room_bytes())
            written = step.part_of(fits) if not self._device.fails(step) else step.rng.randint(0, fits)
            self._inode.change(Write(self._end, data[:written]))
            self._end += written
            if self._device.fails(step):
                raise StorageFailed(f"cannot write {self.path}: Input/output error", path=self.path)
            if fits < len(data):
                raise DiskFull(self.path, needed_bytes=len(data))
        return len(data)

    def rewrite(self, position: int, data: Buffer) -> None:
        again = bytes(data)
        with self._device.step("rewrite", self.path) as step:
            self._check_writable()
            there = self._inode.live[position : position + len(again)]
            assert there == again, f"{self.path} holds something else at byte {position}"
            self._inode.change(Write(position, again[: step.part_of(len(again))]))

    def read(self, position: int, length: int) -> bytes:
        with self._device.alive():
            self._check_open()
            data = bytes(memoryview(self._inode.live)[position : position + length])
            if any(position <= bad < position + len(data) for bad in self._inode.unreadable):
                raise StorageFailed(
                    f"cannot read {self.path} at byte {position}: Input/output error",
                    path=self.path,
                )
            return data

    def map(self, length: int) -> memoryview:
        with self._device.alive():
            self._check_open()
            if length > len(self._inode.live):
                raise ValueError("mmap length is greater than file size")
            return self._device.map(self._inode, length, self.path)

    def truncate(self, size: int) -> None:
        with self._device.step("truncate", self.path) as step:
            self._check_writable()
            if step.happens:
                self._inode.change(Resize(size))
                self._end = size
                self._device.note_cut(self._inode)

    def sync(self) -> None:
        with self._device.alive():
            self._check_open()
            moment = self._inode.moment()
        with self._device.step("sync", self.path) as step:
            keep = self._device.sync_fault(step)
            if keep is not None:
                self._inode.fail_sync(moment, keep, step.rng)
                raise FsyncFailed(f"cannot sync {self.path}: Input/output error", path=self.path)
            if step.happens:
                self._inode.sync(moment)
            elif step.share > 0:
                self._inode.sync_in_part(moment, step.rng)

    def close(self) -> None:
        # Also when the process is dead: its files are closed, and clean-up code may say so.
        self._closed = True

    def _check_open(self) -> None:
        # A descriptor that was closed may be another file's by now: using it is a bug of ours.
        assert not self._closed, f"{self.path} was closed"

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise StorageFailed(f"cannot write {self.path}: Bad file descriptor", path=self.path)


class FaultyLock:
    """A lock that ends with the process: a restarted disk knows nothing of it."""

    def __init__(self, device: Device, inode: Inode) -> None:
        self._device = device
        self._inode = inode
        self._held = True

    def release(self) -> None:
        with self._device.guard:
            if self._held:
                self._device.locked.remove(self._inode.number)
            self._held = False
