"""The process that uses the faulty disk, its open files and its locks.

Whatever changes something or makes it durable is a step; a test says at which one the process dies, or the
disk fails or refuses. Paths and directories are left to `faulty_disk`, bytes to `durable_state`.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from quivermq.chaos.durable_state import Directory, Inode, Keep, NameHistory, Node, Resize, Write
from quivermq.disk import Buffer
from quivermq.errors import DiskFull, DiskRefused, FsyncFailed, StorageFailed


class PowerCut(BaseException):
    """The process is dead. Only a test catches this: no `except Exception` may survive it."""


class _Quiet:
    """Keeps the death of a thread by a power cut, which is what the test wanted, out of the news."""

    def __init__(self, report: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._report = report

    def __call__(self, death: threading.ExceptHookArgs) -> None:
        if not issubclass(death.exc_type, PowerCut):
            self._report(death)


def _let_threads_die_in_silence() -> None:
    """For good, not just while a test runs: a thread may find out that it is dead much later."""
    # Asked for by every disk, because pytest may have put a hook of its own in place meanwhile.
    if not isinstance(threading.excepthook, _Quiet):
        threading.excepthook = _Quiet(threading.excepthook)


@dataclass(slots=True, frozen=True)
class DiskStep:
    """One operation that changes something or makes it durable."""

    number: int
    operation: str
    path: Path
    share: float  # of the effect that happens: 1.0 unless the process dies here
    seed: int

    @property
    def rng(self) -> Random:
        """Chance for this step alone, so that it does not depend on what other steps drew."""
        return Random(f"{self.seed} {self.number}")

    def part_of(self, total: int) -> int:
        return int(total * self.share)

    @property
    def happens(self) -> bool:
        """Whether an operation that happens at once, or not at all, does happen."""
        return self.share == 1.0

    def __str__(self) -> str:
        return f"step {self.number}, {self.share:.0%} of {self.operation} {self.path}"


@dataclass(slots=True)
class _SyncFault:
    glob: str
    at: int | None
    keep: Keep


class _Alive:
    """What `Device.alive` returns. Every step goes through here, so it is no generator."""

    __slots__ = ("_device",)

    def __init__(self, device: "Device") -> None:
        self._device = device

    def __enter__(self) -> None:
        device = self._device
        device.guard.acquire()
        if device.dead:
            device.guard.release()
            raise PowerCut("the process is dead")

    def __exit__(self, *_: object) -> None:
        self._device.guard.release()


class Device:
    """State, steps and faults: what the disk, its files and its locks have in common."""

    def __init__(self, seed: int = 0) -> None:
        _let_threads_die_in_silence()
        self.seed = seed
        self.guard = threading.RLock()
        self.history: list[DiskStep] = []
        self.root = Directory(number=1)
        self.names_history = NameHistory()
        self.locked: set[int] = set()
        self._last_number = 1
        self._stop: int | None = None
        self._torn: float | None = None
        self._dead = False
        self._capacity_bytes: int | None = None
        self._sync_faults: list[_SyncFault] = []
        self._refused: frozenset[str] = frozenset()
        self._refused_steps: range | None = None
        self._failing_step: int | None = None

    @property
    def steps(self) -> int:
        """How many steps were taken so far."""
        return len(self.history)

    @property
    def dead(self) -> bool:
        return self._dead

    def stop_at(self, step: int, *, torn: float | None = None) -> None:
        """Let the process die at that step, counted from 1, after the share `torn` of its effect.

        0.0 is before, 1.0 is after, in between is a torn append or a sync of some of the changes;
        what happens at once or not at all then does not happen. None: the seed decides.
        """
        if step <= self.steps:
            raise ValueError(f"step {step} is over: {self.steps} were taken")
        self._stop, self._torn = step, torn

    def stop(self) -> None:
        """Let the process die now."""
        with self.guard:
            self._dead = True

    def fail_sync(self, path: str = "*", *, at: int | None = None, keep: Keep = "nothing") -> None:
        """Let the next sync of a file or directory whose path matches fail, or the one at a step.

        `keep` is what reached the platter all the same. What did not never will: see `Inode.fail_sync`.
        """
        self._sync_faults.append(_SyncFault(path, at, keep))

    def fill_after(self, room_bytes: int | None) -> None:
        """Let the disk be full once its files grew by that much. None: there is room again.

        Cutting and removing files makes room. A restart does not.
        """
        with self.guard:
            self._capacity_bytes = None if room_bytes is None else self._used_bytes() + room_bytes

    def refuse(self, *operations: str, at: range | None = None) -> None:
        """Let operations be refused, without any effect, from now on or at those steps alone.

        That is what a read-only disk does, and one file too many. Without operations: no more.
        """
        self._refused, self._refused_steps = frozenset(operations), at

    def fail_at(self, step: int) -> None:
        """Let the disk fail with an input/output error at that step: an append after a part of it."""
        self._failing_step = step

    def fails(self, step: DiskStep) -> bool:
        """Whether this is the step at which the disk is to fail."""
        return step.number == self._failing_step

    def check_taken(self, operation: str, path: Path, number: int | None = None) -> None:
        """Raise DiskRefused if this is refused; something that is no step has no number."""
        is_now = self._refused_steps is None or number is None or number in self._refused_steps
        if operation in self._refused and is_now:
            raise DiskRefused(f"{path} cannot be used now: as it was ordered", path=path)

    def alive(self) -> "_Alive":
        """Hold the guard, in a process that lives."""
        return _Alive(self)

    @contextmanager
    def step(self, operation: str, path: Path) -> Iterator[DiskStep]:
        """Take one step, and die of it if it is the one. One that is refused counts, too."""
        with self.alive():
            number = self.steps + 1
            self._dead = number == self._stop
            share = self._share_of_last_step() if self._dead else 1.0
            step = DiskStep(number, operation, path, share, self.seed)
            self.history.append(step)
            try:
                self.check_taken(operation, path, number)
                if self.fails(step) and operation != "append":
                    raise _input_output_error(operation, path)
                yield step
            finally:
                if self._dead:
                    raise PowerCut(f"the process died: {step}")

    def sync_fault(self, step: DiskStep) -> Keep | None:
        """What the platter keeps of this sync if it is to fail, None if it is not."""
        for fault in self._sync_faults:
            matches = fnmatch(str(step.path), fault.glob) and fault.at in (None, step.number)
            if matches and step.happens:
                self._sync_faults.remove(fault)
                return fault.keep
        return None

    def room_bytes(self) -> int:
        """How much the files may still grow."""
        if self._capacity_bytes is None:
            return sys.maxsize
        return max(0, self._capacity_bytes - self._used_bytes())

    def new_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _share_of_last_step(self) -> float:
        rng = Random(f"{self.seed} {self._stop} share")
        return rng.choice((0.0, rng.random(), 1.0)) if self._torn is None else self._torn

    def _used_bytes(self) -> int:
        return _live_bytes(self.root)


def _input_output_error(operation: str, path: Path) -> StorageFailed:
    message = f"cannot {operation} {path}: Input/output error"
    kind = FsyncFailed if operation.startswith("sync") else StorageFailed
    return kind(message, path=path)


def _live_bytes(node: Node) -> int:
    if isinstance(node, Inode):
        return len(node.live)
    return sum(map(_live_bytes, node.live.values()))


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
            # A copy: what a real mapping shows of a file that is cut meanwhile is nobody's to see.
            return memoryview(bytes(self._inode.live[:length]))

    def truncate(self, size: int) -> None:
        with self._device.step("truncate", self.path) as step:
            self._check_writable()
            if step.happens:
                self._inode.change(Resize(size))
                self._end = size

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
