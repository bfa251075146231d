"""What is asked of an object store: how often, how many bytes, and how often in vain."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from quivermq.errors import QuiverError
from quivermq.shared.objects import ObjectStore

Answered = TypeVar("Answered")
RequestKind = Literal["put", "get", "range", "list", "delete"]
KINDS: tuple[RequestKind, ...] = ("put", "get", "range", "list", "delete")

# As many objects as stores list, or take away, in one request.
_NAMES_PER_REQUEST = 1000


@dataclass(frozen=True, slots=True)
class Requests:
    """All requests of one kind so far. What an attempt inside of the client repeats counts once."""

    count: int = 0
    failed: int = 0
    """How many of them had no answer, or were refused."""
    bytes: int = 0
    """What was sent with a put, or came back."""


class CountingStore:
    """An `ObjectStore` over another one, which counts. Thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._requests = dict.fromkeys(KINDS, Requests())

    @property
    def requests(self) -> dict[RequestKind, Requests]:
        """What was asked so far, by kind."""
        with self._lock:
            return dict(self._requests)

    def put(self, name: str, data: bytes) -> None:
        self._counted("put", lambda: self._store.put(name, data), lambda _: len(data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._counted("put", lambda: self._store.put_if_absent(name, data), lambda _: len(data))

    def get(self, name: str, bytes_max: int) -> bytes | None:
        return self._counted("get", lambda: self._store.get(name, bytes_max), lambda data: len(data or b""))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return self._counted(
            "range", lambda: self._store.get_range(name, start, length), lambda data: len(data or b"")
        )

    def names(self, prefix: str) -> list[str]:
        return self._counted(
            "list",
            lambda: self._store.names(prefix),
            count=lambda names: 1 + len(names) // _NAMES_PER_REQUEST,
        )

    def sizes(self, prefix: str) -> dict[str, int]:
        return self._counted(
            "list",
            lambda: self._store.sizes(prefix),
            count=lambda sizes: 1 + len(sizes) // _NAMES_PER_REQUEST,
        )

    def remove(self, names: Iterable[str]) -> None:
        names = list(names)
        if names:
            count = -(-len(names) // _NAMES_PER_REQUEST)
            self._counted("delete", lambda: self._store.remove(names), count=lambda _: count)

    def close(self) -> None:
        self._store.close()

    def _counted(
        self,
        kind: RequestKind,
        ask: Callable[[], Answered],
        size: Callable[[Answered], int] = lambda _: 0,
        count: Callable[[Answered], int] = lambda _: 1,
    ) -> Answered:
        try:
            answer = ask()
        except QuiverError:
            self._add(kind, Requests(1, 1))
            raise
        self._add(kind, Requests(count(answer), 0, size(answer)))
        return answer

    def _add(self, kind: RequestKind, more: Requests) -> None:
        with self._lock:
            before = self._requests[kind]
            self._requests[kind] = Requests(
                before.count + more.count, before.failed + more.failed, before.bytes + more.bytes
            )
