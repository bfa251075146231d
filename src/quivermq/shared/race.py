"""Finds out stores whose conditional puts are not real.

Some that say they have them look first and write then, so that several writers win, or take the condition
for decoration. On such a store two owners would both believe that their chunk counts. So before a queue is
kept by conditional puts, some writers race for a few objects, and exactly one has to win each.

This finds a store that is wrong in itself, not one that is wrong once in a long pause of a part of it: for
that there is etcd.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import urandom
from threading import Barrier

from quivermq.errors import StoreUnreachable, UnsafeStore
from quivermq.shared.objects import ObjectStore

_WRITERS = 4
_ROUNDS = 4


def check_conditional_puts(store: ObjectStore, *, rounds: int = _ROUNDS, writers: int = _WRITERS) -> None:
    """Raise UnsafeStore when the store lets more than one writer create an object, or none.

    Raises StoreUnreachable when it does not answer; then nobody knows.
    """
    prefix = f"race/{urandom(8).hex()}/"
    names = [f"{prefix}{number}" for number in range(rounds)]
    try:
        # All at once: of some stores, each that loses waits for seconds.
        with ThreadPoolExecutor(rounds * writers, "quiver-race") as threads:
            for race in [_Race(store, name, threads, writers) for name in names]:
                race.check()
        for name in names:
            _put_late(store, name)
    finally:
        # What was found out counts, not what is left behind of it.
        with suppress(StoreUnreachable):
            store.remove(names)


class _Race:
    """Some writers who all begin to create one object at the same moment."""

    def __init__(self, store: ObjectStore, name: str, threads: ThreadPoolExecutor, writers: int) -> None:
        self._store = store
        self._name = name
        self._values = [b"%d %s" % (number, urandom(16)) for number in range(writers)]
        self._start = Barrier(writers)
        self._won = threads.map(self._put, self._values)

    def _put(self, value: bytes) -> bool:
        self._start.wait()
        return self._store.put_if_absent(self._name, value)

    def check(self) -> None:
        """Wait for the end. Raises UnsafeStore unless at most one has won, and its bytes are there."""
        values = self._values
        won = [value for value, has_won in zip(values, self._won, strict=True) if has_won]
        there = self._store.get(self._name, 1024)
        # Who wins without being told may be one whose request was repeated on the way.
        if len(won) > 1 or there not in values or (won and there != won[0]):
            raise UnsafeStore(
                f"the object store let {len(won)} of {len(values)} writers create the same object: its"
                " conditional puts are not real, and a queue there would lose messages; use another store,"
                " or etcd with it"
            )


def _put_late(store: ObjectStore, name: str) -> None:
    before = store.get(name, 1024)
    if store.put_if_absent(name, b"late") or store.get(name, 1024) != before:
        raise UnsafeStore(
            "the object store let an object be created that was there: it has no conditional puts, and a"
            " queue there would lose messages; use another store, or etcd with it"
        )
