"""An object store in memory, for tests: it can fail, delay, double, swallow and lose answers at each step.

The chunks in memory are those of a bucket over this store, so that a test of the disk is one of the
protocol as well.
"""

import threading
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple, TypeVar

from quivermq.errors import StoreUnreachable
from quivermq.shared.chunk import damaged

Answered = TypeVar("Answered")


class StoreFault(Enum):
    """What may happen to one step of a store."""

    FAIL = "it is not done, and there is no answer"
    LOSE_ANSWER = "it is done, and there is no answer"
    LATE = "it is done when the test says so, and there is no answer"
    DOUBLE = "it is done twice, and the second answer arrives"
    STOP_BEFORE = "the process ends before it is done"
    STOP_AFTER = "the process ends when it is done"


class StoreStep(NamedTuple):
    """One operation on the store, counted from 1."""

    number: int
    operation: str
    name: str


class Stopped(RuntimeError):
    """The process that used the store has ended, as far as the store is concerned."""


def _no_fault(_: StoreStep) -> StoreFault | None:
    return None


class MemoryStore:
    """One process's access to a store in memory. Thread-safe.

    `beside` gives another process access to the same objects. `fault` is asked at each step, and may also
    wait there. A store that is not `is_safe` lets every conditional put win.
    """

    def __init__(
        self,
        objects: dict[str, bytes] | None = None,
        *,
        fault: Callable[[StoreStep], StoreFault | None] = _no_fault,
        is_safe: bool = True,
    ) -> None:
        self.objects = {} if objects is None else objects
        self.fault = fault
        self.is_safe = is_safe
        self.steps: list[StoreStep] = []
        self.is_stopped = False
        self._late: list[Callable[[], object]] = []
        self._guard = threading.Lock()

    def beside(self, fault: Callable[[StoreStep], StoreFault | None] = _no_fault) -> "MemoryStore":
        """The same store as another process sees it."""
        store = MemoryStore(self.objects, fault=fault, is_safe=self.is_safe)
        store._guard = self._guard
        return store

    def deliver_late(self) -> None:
        """Let everything arrive that was kept back, in reverse: nothing keeps requests in order."""
        with self._guard:
            late, self._late = self._late, []
            for act in reversed(late):
                act()

    def put(self, name: str, data: bytes) -> None:
        self.step("put", name, lambda: self.objects.__setitem__(name, bytes(data)))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.step("put_if_absent", name, lambda: self._create(name, bytes(data)))

    def _create(self, name: str, data: bytes) -> bool:
        if self.is_safe and name in self.objects:
            return False
        self.objects[name] = data
        return True

    def get(self, name: str, bytes_max: int) -> bytes | None:
        data = self.step("get", name, lambda: self.objects.get(name))
        if data is not None and len(data) > bytes_max:
            raise damaged(name, f"it has {len(data)} bytes, at most {bytes_max} belong there")
        return data

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        data = self.step("get_range", name, lambda: self.objects.get(name))
        return None if data is None else data[start : start + length]

    def names(self, prefix: str) -> list[str]:
        return self.step(
            "names", prefix, lambda: sorted(name for name in self.objects if name.startswith(prefix))
        )

    def sizes(self, prefix: str) -> dict[str, int]:
        return self.step(
            "sizes",
            prefix,
            lambda: {n: len(self.objects[n]) for n in sorted(self.objects) if n.startswith(prefix)},
        )

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.step("remove", name, lambda name=name: self.objects.pop(name, None))  # type: ignore[misc]

    def close(self) -> None:
        """Nothing is held."""

    def step(self, operation: str, name: str, act: Callable[[], Answered]) -> Answered:
        """Do a step, or what its fault makes of it. Other services of its process may have theirs here."""
        with self._guard:
            self._check_running()
            step = StoreStep(len(self.steps) + 1, operation, name)
            self.steps.append(step)
        fault = self.fault(step)
        with self._guard:
            self._check_running()
            return self._faulty(fault, act)

    def _faulty(self, fault: StoreFault | None, act: Callable[[], Answered]) -> Answered:
        if fault is StoreFault.STOP_BEFORE:
            self.is_stopped = True
            self._check_running()
        if fault is StoreFault.LATE:
            self._late.append(act)
        if fault in (StoreFault.FAIL, StoreFault.LATE):
            raise StoreUnreachable("the store in memory does not answer, as the test wants it")
        answer = act()
        if fault is StoreFault.DOUBLE:
            answer = act()
        if fault is StoreFault.LOSE_ANSWER:
            raise StoreUnreachable("the answer of the store in memory is lost, as the test wants it")
        if fault is StoreFault.STOP_AFTER:
            self.is_stopped = True
        self._check_running()
        return answer

    def _check_running(self) -> None:
        if self.is_stopped:
            raise Stopped("this process has ended")
