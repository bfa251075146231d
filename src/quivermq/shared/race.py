"""Finds out stores whose conditional puts are not real.

Some that say they have them look first and write then, so that several writers win, or take the condition
for decoration. On such a store two owners would both believe that their chunk counts. So before a queue is
kept by conditional puts, some writers race for a few objects, and exactly one has to win each.

This finds a store that is wrong in itself, not one that is wrong once in a long pause of a part of it: for
that there is etcd.
"""

from concurrent.futures import ThreadPoolExecutor
from os import urandom
from threading import Barrier

from quivermq.errors import UnsafeStore
from quivermq.shared.objects import ObjectStore

_WRITERS = 8
_ROUNDS = 4


def check_conditional_puts(store: ObjectStore, *, rounds: int = _ROUNDS, writers: int = _WRITERS) -> None:
    """Raise UnsafeStore when the store lets more than one writer create an object, or none.

    Raises StoreUnreachable when it does not answer; then nobody knows.
    """
    prefix = f"race/{urandom(8).hex()}/"
    names = [f"{prefix}{number}" for number in range(rounds)]
    try:
        with ThreadPoolExecutor(writers, "quiver-race") as threads:
            for name in names:
                _race(store, name, threads, writers)
                _put_late(store, name)
    finally:
        store.remove(names)


def _race(store: ObjectStore, name: str, threads: ThreadPoolExecutor, writers: int) -> None:
    values = [b"%d %s" % (number, urandom(16)) for number in range(writers)]
    start = Barrier(writers)

    def put(value: bytes) -> bool:
        start.wait()
        return store.put_if_absent(name, value)

    won = [value for value, has_won in zip(values, threads.map(put, values), strict=True) if has_won]
    there = store.get(name, 1024)
    # Who wins without being told may be one whose request was repeated on the way.
    if len(won) > 1 or there not in values or (won and there != won[0]):
        raise UnsafeStore(
            f"the object store let {len(won)} of {writers} writers create the same object: its conditional"
            " puts are not real, and a queue there would lose messages; use another store, or etcd with it"
        )


def _put_late(store: ObjectStore, name: str) -> None:
    before = store.get(name, 1024)
    if store.put_if_absent(name, b"late") or store.get(name, 1024) != before:
        raise UnsafeStore(
            "the object store let an object be created that was there: it has no conditional puts, and a"
            " queue there would lose messages; use another store, or etcd with it"
        )
