"""Rounds of putting into a store and taking out of it. What was timed is checked after each round.

Every value is compared, and every store is closed and opened again before: what it then has is what counts.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Work
from benchmarks.stores import Open, Store
from benchmarks.workload import Bench, fresh_directory

# Puts messages into a store, or takes some out of it and returns their values.
Putting = Callable[[Store, Sequence[bytes]], None]
Taking = Callable[[Store, int], list[bytes]]


@contextmanager
def put_round(
    bench: Bench,
    opens: Open,
    values: Sequence[bytes],
    putting: Putting,
    *,
    in_order: bool = True,
) -> Iterator[Work]:
    """Into a new store."""
    with fresh_directory(bench.place) as path:
        store = _opened(opens, path)

        def work() -> int:
            putting(store, values)
            return len(values)

        yield work
        store.close()
        found = _values(opens, path)
        if not in_order:
            found, values = sorted(found), sorted(values)
        if found != list(values):
            raise RuntimeError(f"{store} was given {len(values)} messages and has {len(found)}, or others")


@contextmanager
def take_round(
    bench: Bench, opens: Open, values: Sequence[bytes], filling: Putting, taking: Taking
) -> Iterator[Work]:
    """Half of the messages out of a store. How they were put matters: it makes the frames that are read."""
    count = len(values) // 2
    with fresh_directory(bench.place) as path:
        store = _opened(opens, path)
        filling(store, values)
        taken: list[bytes] = []

        def work() -> int:
            taken.extend(taking(store, count))
            return len(taken)

        yield work
        store.close()
        left = _values(opens, path)
        if (taken, left) != (list(values[:count]), list(values[count:])):
            raise RuntimeError(f"{store} handed out {len(taken)} messages and has {len(left)}, or others")


def put_each(store: Store, values: Sequence[bytes]) -> None:
    store.put(values)


def put_batches(size: int, values: Sequence[bytes]) -> Putting:
    """Batches of that size; they are made before the time runs."""
    batches = [list(values[start : start + size]) for start in range(0, len(values), size)]

    def put(store: Store, _: Sequence[bytes]) -> None:
        store.put_batches(batches)

    return put


def take_each(store: Store, count: int) -> list[bytes]:
    return store.take(count)


def take_batches(size: int) -> Taking:
    return lambda store, count: store.take_batches(count, size)


@contextmanager
def threads_round(bench: Bench, opens: Open, values: Sequence[bytes], threads: int) -> Iterator[Work]:
    """Into a new store from many threads, which are running and held back until the time runs."""
    start = threading.Event()
    stores: list[Store] = []
    failures: list[BaseException] = []

    def run(part: Sequence[bytes]) -> None:
        start.wait()
        try:
            stores[0].put(part)
        except BaseException as error:
            failures.append(error)

    running = [
        threading.Thread(target=run, args=(values[n::threads],), daemon=True) for n in range(threads)
    ]
    for thread in running:
        thread.start()

    def putting(store: Store, _: Sequence[bytes]) -> None:
        stores.append(store)
        start.set()
        for thread in running:
            thread.join()
        if failures:
            raise failures[0]

    with put_round(bench, opens, values, putting, in_order=False) as work:
        yield work


def _opened(opens: Open, path: Path) -> Store:
    """With one message through it, so that its files and tables are there."""
    store = opens(path)
    store.put([b"first"])
    if store.take(1) != [b"first"]:
        raise RuntimeError(f"{store} did not return its first message")
    return store


def _values(opens: Open, path: Path) -> list[bytes]:
    store = opens(path)
    try:
        return store.values()
    finally:
        store.close()
