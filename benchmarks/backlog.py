"""What one message costs to get and ack, with few and with many others behind it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks import peers
from benchmarks.measure import Measured, Work, alternate
from benchmarks.row import Goal, Row, Skipped, row_of
from benchmarks.stores import Open, Quiver, Store
from benchmarks.workload import Bench, batches_of, free_space_obstacle, fresh_directory, short_number

_BATCH = 1000
# A message with its share of a frame.
_STORED_BYTES = 120


class _Backlog:
    """A store that has the same number of messages before every round."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._size = size
        self._batch = batches_of(_BATCH, _BATCH)[0]
        self._put = self._taken = 0
        self._fill()

    @contextmanager
    def round(self, count: int) -> Iterator[Work]:
        """Take that many, or all; afterwards, see that they were the next ones, and put as many."""
        count = min(count, self._size)
        taken: list[bytes] = []

        def work() -> int:
            taken.extend(self._store.take(count))
            return len(taken)

        yield work
        if taken != [self._batch[number % _BATCH] for number in range(self._taken, self._taken + count)]:
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


def backlog(bench: Bench) -> Iterable[Row | Skipped]:
    """All sizes in turns, so that they can be compared; the other queues by themselves."""
    scale = bench.scale
    sizes = list(scale.backlogs)
    skipped = []
    while reason := free_space_obstacle(bench.place, sizes[-1] * _STORED_BYTES):
        skipped.append(Skipped(_name(sizes.pop()), reason))
    opens = partial(Quiver, durability="os")
    ours = _measured(bench, {_name(size): (opens, size) for size in sizes}, scale.backlog_taken)
    theirs = {
        (size, name): other for size in scale.peer_backlogs for name, other in _peers(bench, size).items()
    }
    least = _name(sizes[0])
    for size in sizes:
        limits = {} if size == sizes[0] else {f"a backlog of {short_number(sizes[0])}": ours[least]}
        limits |= {name: other for (its_size, name), other in theirs.items() if its_size == size}
        yield row_of(_name(size), ours[_name(size)], limits, goal=Goal("at least", 60e3))
    yield from skipped


def _name(size: int) -> str:
    return f"get + ack at os, backlog {short_number(size)}"


def _peers(bench: Bench, size: int) -> dict[str, Measured]:
    others = {**peers.with_acks("os"), **peers.without_acks("os")}
    # Filling it would take minutes.
    others.pop(peers.FILES)
    contenders = {name: (opens, size) for name, opens in others.items()}
    return _measured(bench, contenders, bench.scale.peer_backlog_taken)


def _measured(bench: Bench, contenders: Mapping[str, tuple[Open, int]], taken: int) -> dict[str, Measured]:
    with ExitStack() as stack:
        backlogs = {}
        for name, (opens, size) in contenders.items():
            store = opens(stack.enter_context(fresh_directory(bench.place)))
            stack.callback(store.close)
            backlogs[name] = _Backlog(store, size)
        rounds = {name: partial(each.round, taken) for name, each in backlogs.items()}
        measured = alternate(rounds, bench.scale.backlog_rounds)
        for each in backlogs.values():
            each.check()
        return measured
