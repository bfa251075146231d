"""Rounds of putting into a store and taking out of it. What was timed is checked after each round.

All that is in a message is compared, and every store is closed and opened again before: what it then has is
what counts.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Work
from benchmarks.messages import AnyMessage, contents
from benchmarks.stores import Open, Store
from benchmarks.workload import Bench, fresh_directory

# Puts messages into a store, or takes some out of it and returns their contents.
Putting = Callable[[Store, Sequence[AnyMessage]], None]
Taking = Callable[[Store, int], list[Any]]


@contextmanager
def put_round(
    bench: Bench,
    opens: Open,
    messages: Sequence[AnyMessage],
    putting: Putting,
    *,
    in_order: bool = True,
) -> Iterator[Work]:
    """Into a new store."""
    with fresh_directory(bench.place) as path:
        store = _opened(opens, path, messages)

        def work() -> int:
            putting(store, messages)
            return len(messages)

        yield work
        store.close()
        found, given = _values(opens, path), contents(messages)
        if not in_order:
            # No value is there twice, so the first thing in a message decides.
            found, given = sorted(found), sorted(given)
        if found != given:
            raise RuntimeError(f"{store} was given {len(given)} messages and has {len(found)}, or others")


@contextmanager
def take_round(
    bench: Bench, opens: Open, messages: Sequence[AnyMessage], filling: Putting, taking: Taking
) -> Iterator[Work]:
    """Half of the messages out of a store. How they were put matters: it makes the frames that are read."""
    count = len(messages) // 2
    with fresh_directory(bench.place) as path:
        store = _opened(opens, path, messages)
        filling(store, messages)
        taken: list[Any] = []

        def work() -> int:
            taken.extend(taking(store, count))
            return len(taken)

        yield work
        store.close()
        left = _values(opens, path)
        if (taken, left) != (contents(messages[:count]), contents(messages[count:])):
            raise RuntimeError(f"{store} handed out {len(taken)} messages and has {len(left)}, or others")


def put_each(store: Store, messages: Sequence[AnyMessage]) -> None:
    store.put(messages)


def put_batches(size: int, messages: Sequence[AnyMessage]) -> Putting:
    """Batches of that size; they are made before the time runs."""
    batches = [list(messages[start : start + size]) for start in range(0, len(messages), size)]

    def put(store: Store, _: Sequence[AnyMessage]) -> None:
        store.put_batches(batches)

    return put


def take_each(store: Store, count: int) -> list[Any]:
    return store.take(count)


def take_batches(size: int) -> Taking:
    return lambda store, count: store.take_batches(count, size)


@contextmanager
def threads_round(
    bench: Bench, opens: Open, messages: Sequence[AnyMessage], threads: int
) -> Iterator[Work]:
    """Into a new store from many threads, which are running and held back until the time runs."""
    start = threading.Event()
    stores: list[Store] = []
    failures: list[BaseException] = []

    def run(part: Sequence[AnyMessage]) -> None:
        start.wait()
        try:
            stores[0].put(part)
        except BaseException as error:
            failures.append(error)

    running = [
        threading.Thread(target=run, args=(messages[n::threads],), daemon=True) for n in range(threads)
    ]
    for thread in running:
        thread.start()

    def putting(store: Store, _: Sequence[AnyMessage]) -> None:
        stores.append(store)
        start.set()
        for thread in running:
            thread.join()
        if failures:
            raise failures[0]

    with put_round(bench, opens, messages, putting, in_order=False) as work:
        yield work


def _opened(opens: Open, path: Path, messages: Sequence[AnyMessage]) -> Store:
    """With one message through it, so that its files and tables are there."""
    store = opens(path)
    store.put(messages[-1:])
    if store.take(1) != contents(messages[-1:]):
        raise RuntimeError(f"{store} did not return its first message")
    return store


def _values(opens: Open, path: Path) -> list[Any]:
    store = opens(path)
    try:
        return store.values()
    finally:
        store.close()
