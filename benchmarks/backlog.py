"""What one message costs to get and ack, with few and with many others behind it."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks import peers
from benchmarks.measure import Prepare, Work
from benchmarks.messages import batches_of, contents
from benchmarks.race import Race, Subject, turns
from benchmarks.row import Goal, Skipped
from benchmarks.shape import Shape
from benchmarks.stores import Open, Quiver, Store
from benchmarks.workload import Bench, free_space_obstacle, fresh_directory, short_number, stored_bytes

_BATCH = 1000


class _Backlog:
    """A store that has the same number of messages before every round."""

    def __init__(self, store: Store, size: int, shape: Shape) -> None:
        self._store = store
        self._size = size
        self._batch = batches_of(_BATCH, _BATCH, shape)[0]
        self._contents = contents(self._batch)
        self._put = self._taken = 0
        self._fill()

    @contextmanager
    def round(self, count: int) -> Iterator[Work]:
        """Take that many, or all; afterwards, see that they were the next ones, and put as many."""
        count = min(count, self._size)
        taken: list[Any] = []

        def work() -> int:
            taken.extend(self._store.take(count))
            return len(taken)

        yield work
        if taken != [self._contents[number % _BATCH] for number in range(self._taken, self._taken + count)]:
            raise RuntimeError(f"{self._store} handed out other messages than the next {count}")
        self._taken += count
        self._fill()

    def check(self) -> None:
        """See that what was put and not taken is there, all of it."""
        if isinstance(self._store, Quiver):
            stats = self._store.queue.stats()
            found, in_flight = stats.pending, stats.in_flight
        else:
            found, in_flight = len(self._store.values()), 0
        if (found, in_flight) != (self._size, 0):
            raise RuntimeError(f"{self._store} has {found} messages instead of {self._size}")

    def _fill(self) -> None:
        """In batches, however small they are: messages that are put one by one take ten times as long."""
        while (missing := self._size - (self._put - self._taken)) > 0:
            place = self._put % _BATCH
            batch = self._batch[place : place + missing]
            self._store.put_batches([batch])
            self._put += len(batch)


def backlog(bench: Bench) -> Iterable[Race | Skipped]:
    """All sizes in turns, so that they can be compared, and the other queues with them."""
    sizes = list(bench.scale.backlogs)
    skipped = []
    while reason := free_space_obstacle(bench.place, _stored_bytes(bench, sizes[-1])):
        skipped.append(Skipped(_name(sizes.pop()), reason))
    others = {**peers.with_acks("os"), **peers.without_acks("os")}
    # Filling it would take minutes.
    others.pop(peers.FILES)
    subjects = [
        Subject(
            _name(size),
            _backlog_of(size),
            Goal("at least", 60e3),
            limits=[_backlog_of(sizes[0])] * (size > sizes[0]) + [_theirs(name, size) for name in others],
        )
        for size in sizes
    ]
    with ExitStack() as stack:
        opened: list[_Backlog] = []

        def contenders(shape: Shape) -> dict[str, Prepare]:
            taken = bench.scale.backlog_taken
            opens: Open = partial(Quiver, durability="os", shape=shape)
            found = {_backlog_of(size): (opens, size, taken) for size in sizes}
            if shape == "plain" and not bench.is_alone:
                taken = bench.scale.peer_backlog_taken
                found |= {
                    _theirs(name, size): (other, size, taken)
                    for size in bench.scale.peer_backlogs
                    for name, other in others.items()
                }
            rounds: dict[str, Prepare] = {}
            for name, (opens, size, taken) in found.items():
                store = opens(stack.enter_context(fresh_directory(bench.place)))
                stack.callback(store.close)
                opened.append(_Backlog(store, size, shape))
                rounds[name] = partial(opened[-1].round, taken)
            return rounds

        yield Race(contenders, subjects, turns(bench.scale.backlog_rounds))
        for each in opened:
            each.check()
    yield from skipped


def _stored_bytes(bench: Bench, size: int) -> int:
    return size * sum(map(stored_bytes, bench.shapes))


def _name(size: int) -> str:
    return f"get + ack at os, {_backlog_of(size)}"


def _backlog_of(size: int) -> str:
    return f"backlog {short_number(size)}"


def _theirs(name: str, size: int) -> str:
    return f"{name}, {short_number(size)}"
