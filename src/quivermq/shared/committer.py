"""Gathers what is done to a shared disk, in one order, and commits it chunk by chunk.

One chunk is under way at a time; what is done meanwhile gathers, and goes with the next one. A thread of
its own does it, because a chunk that was begun has to be finished whoever waits for it: only the store
knows whether it has it, and the next chunk stands behind it.

A store that does not answer is asked again, for as long as it takes. Those who wait give up after a while,
and what they waited for is committed later, or not: they have to be told that nobody knows.
"""

import logging
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.disk import Ticket
from quivermq.errors import (
    Closing,
    InvalidRequest,
    NotOwner,
    QuiverError,
    StorageFailed,
    StoreBehind,
    StoreUnreachable,
)
from quivermq.helping import Condition, Helper
from quivermq.shared.chunk import ChunkHead, Mutation, chain_of, encode_chunk
from quivermq.shared.chunks import Chunks
from quivermq.shared.limits import SharedLimits

logger = logging.getLogger(__name__)


class Committed(NamedTuple):
    """How far the store has come."""

    ticket: Ticket
    number: int
    """The chunk that comes next."""
    chain: bytes


class _Waiter(NamedTuple):
    """Somebody who waits for a ticket, by wanting a lock that is taken."""

    ticket: Ticket
    lock: LockType


class _Batch(NamedTuple):
    """What goes into one chunk."""

    mutations: list[Mutation]
    weight: int
    ticket: Ticket


class Committer:
    """Who notes mutations holds `changed.lock`, and so fixes their order. Thread-safe.

    `failure` is set when nothing can ever be committed again: everybody gets a copy of it. `on_commit` is
    told the size of each chunk, and how many seconds it took to commit it.
    """

    def __init__(
        self,
        chunks: Chunks,
        start: Committed,
        limits: SharedLimits,
        *,
        clock: Clock,
        on_commit: Callable[[int, float], None],
    ) -> None:
        self.changed = Condition()
        self.committed = start
        self.failure: QuiverError | None = None
        self.last = start.ticket
        """The ticket of the last mutation."""
        self._chunks = chunks
        self._limits = limits
        self._clock = clock
        self._on_commit = on_commit
        self._waiting: deque[Mutation] = deque()
        self._waiting_bytes = 0
        # Those of the chunk that is under way.
        self._sent_bytes = 0
        self._wanted = start.ticket
        # Where a chunk has to end, because a checkpoint begins there, and the last one where it did.
        self._cuts: deque[Ticket] = deque()
        self._reached = start
        self._trouble: QuiverError | None = None
        self._attempts = 0
        self._is_closing = False
        # Woken one by one: while many wait, waking all of them for each would take longer than the store.
        self._waiters: list[_Waiter] = []
        self._work = Condition(self.changed.lock)
        self._thread = Helper(self._run, "quiver-commit")
        self._thread.start()

    @property
    def uncommitted_bytes(self) -> int:
        """How far the store is behind."""
        return self._waiting_bytes + self._sent_bytes

    @property
    def trouble(self) -> QuiverError | None:
        """Why the store does not take the chunk that is under way; None while it does."""
        return self._trouble

    def check_usable(self) -> None:
        """Raise what keeps everything from being committed, if anything does."""
        if self.failure is not None:
            raise copy(self.failure)

    @property
    def is_ready(self) -> bool:
        """Whether `admit` would return at once."""
        return self.failure is None and self.uncommitted_bytes <= self._limits.uncommitted_bytes_max

    # With `changed.lock` held.

    def note(self, mutation: Mutation) -> None:
        """Put a mutation behind those that were done before."""
        self._waiting.append(mutation)
        self.last += 1
        self._waiting_bytes += mutation.weight
        if self._waiting_bytes >= self._limits.chunk_bytes_max:
            self._work.notify_all()

    def wait_for_room(self, size: int, path: Path, *, is_admitted: bool = False) -> None:
        """Return once the store is not too far behind for so many bytes more.

        Who was admitted before it took locks goes on until the store is twice as far behind, so that it
        hardly ever waits with those locks. Raises StoreBehind when that takes too long, and what
        `check_usable` does.
        """
        deadline = self._clock.monotonic() + self._limits.commit_timeout_s
        bytes_max = self._limits.uncommitted_bytes_max * (2 if is_admitted else 1)
        # One that is larger than the bound goes when it is alone.
        while self.uncommitted_bytes and self.uncommitted_bytes + size > bytes_max:
            self._want(self.last)
            self.check_usable()
            if not self._wait(deadline):
                raise StoreBehind(
                    f"{self.uncommitted_bytes} bytes wait for the object store, which {self._reason()}:"
                    " retry later",
                    path=path,
                )

    def cut(self) -> Ticket:
        """Let a chunk end behind what was done so far; the ticket for `commit_cut`. One at a time."""
        if self.last > self.committed.ticket:
            # One that nobody waits for any more may be at the same place.
            if self.last not in self._cuts:
                self._cuts.append(self.last)
        else:
            self._reached = self.committed
        self._want(self.last)
        return self.last

    # Without it.

    def admit(self, path: Path) -> None:
        """Return once the store is not too far behind. Raises StoreBehind, and what `check_usable` does."""
        with self.changed.lock:
            self.check_usable()
            self.wait_for_room(0, path)

    def request(self, ticket: Ticket) -> None:
        """Have everything up to a ticket committed soon."""
        if ticket > self._wanted:
            with self.changed.lock:
                self._want(ticket)

    def commit_cut(self, ticket: Ticket) -> Committed:
        """Return once everything up to a cut is committed, and how far the store had come just then."""
        self.commit(ticket)
        assert self._reached.ticket == ticket, "a chunk went over a cut"
        return self._reached

    def commit(self, ticket: Ticket) -> None:
        """Return once everything up to a ticket is committed.

        Raises StoreUnreachable when that takes too long, NotOwner when it will never be, and StoreDenied or
        StoreNotFound where somebody has to see to it.
        """
        if self.committed.ticket >= ticket:
            return
        waiter = _Waiter(ticket, allocate_lock())
        waiter.lock.acquire()
        try:
            with self.changed.lock:
                self._waiters.append(waiter)
                self._want(ticket)
                attempts = self._attempts
            self._wait_as(waiter, attempts)
        finally:
            if self.committed.ticket < ticket:
                with self.changed.lock:
                    self._waiters = [other for other in self._waiters if other is not waiter]

    def _wait_as(self, waiter: _Waiter, attempts: int) -> None:
        deadline = self._clock.monotonic() + self._limits.commit_timeout_s
        while self.committed.ticket < waiter.ticket:
            self.check_usable()
            trouble = self._trouble
            # Not for what went wrong before: somebody may have seen to it.
            if isinstance(trouble, InvalidRequest) and self._attempts > attempts:
                raise copy(trouble)
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                raise StoreUnreachable(
                    f"the object store {self._reason()}: what was written is here, and is committed"
                    " once it answers; retry later"
                ) from trouble
            waiter.lock.acquire(timeout=remaining)

    def next_begun(self) -> int:
        """The number of the first chunk that nobody has begun to send by now."""
        with self.changed.lock:
            return self.committed.number + (self._sent_bytes > 0)

    def close(self) -> None:
        """End the thread. What is not committed by now will not be."""
        with self.changed.lock:
            self._is_closing = True
            self.failure = self.failure or Closing("the shared disk was closed")
            self._wake_all()
        self._thread.join()

    def _want(self, ticket: Ticket) -> None:
        if ticket > self._wanted:
            self._wanted = ticket
            self._work.notify_all()

    def _wake_all(self) -> None:
        """Have everybody look again."""
        self.changed.notify_all()
        self._work.notify_all()
        self._wake(self._waiters)

    def _wake(self, waiters: Iterable[_Waiter]) -> None:
        for waiter in waiters:
            # One that was woken already may not have looked yet.
            if waiter.lock.locked():
                waiter.lock.release()

    def _wait(self, deadline: float) -> bool:
        remaining = deadline - self._clock.monotonic()
        if remaining > 0:
            self.changed.wait(remaining)
        return remaining > 0

    def _reason(self) -> str:
        return "is too slow" if self._trouble is None else f"cannot be used ({self._trouble})"

    # The thread.

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._commit_batch(batch)
        except QuiverError as error:
            self.fail(error)
        except Exception as error:
            logger.exception("commits to the object store have ended")
            self.fail(StorageFailed(f"commits have ended: {error!r}", path=Path("chunk")))

    def _next(self) -> _Batch | None:
        """What to commit next; None at the end."""
        while True:
            with self.changed.lock:
                if self._is_closing:
                    return None
                is_wanted = self._wanted > self.committed.ticket
                if self._waiting and (is_wanted or self._waiting_bytes >= self._limits.chunk_bytes_max):
                    return self._take()
                is_idle = not self._work.wait(self._limits.owner_check_s)
            if is_idle:
                self._check_owner()

    def _check_owner(self) -> None:
        """Look whether somebody has taken over. Without the lock, so that nobody waits for the answer."""
        # A store that does not answer now is asked again, and whoever commits is told what is wrong.
        with suppress(StoreUnreachable, InvalidRequest):
            self._chunks.check_owner(self.committed.number)

    def _take(self) -> _Batch:
        """As much as one chunk may have, and up to the next cut at most."""
        first = self.last - len(self._waiting)
        count_max = self._cuts[0] - first if self._cuts else len(self._waiting)
        mutations: list[Mutation] = []
        weight = 0
        while len(mutations) < count_max:
            more = self._waiting[0].weight
            if mutations and weight + more > self._limits.chunk_bytes_max:
                break
            mutations.append(self._waiting.popleft())
            weight += more
        self._waiting_bytes -= weight
        self._sent_bytes = weight
        return _Batch(mutations, weight, first + len(mutations))

    def _commit_batch(self, batch: _Batch) -> None:
        _, number, chain = self.committed
        # The same bytes in every attempt: one that seemed to fail may have been the one that counts.
        chunk = encode_chunk(ChunkHead(number, self._chunks.epoch, chain), batch.mutations)
        backoff_s = self._limits.backoff_s
        begun = self._clock.monotonic()
        while not self._is_stored(number, chunk):
            with self.changed.lock:
                self._attempts += 1
                self._wake_all()
                deadline = self._clock.monotonic() + backoff_s
                while not self._is_closing and self._wait(deadline):
                    continue
                if self._is_closing:
                    return
            backoff_s = min(2 * backoff_s, self._limits.backoff_s_max)
        committed = Committed(batch.ticket, number + 1, chain_of(chunk))
        with self.changed.lock:
            if self._cuts and self._cuts[0] == batch.ticket:
                self._cuts.popleft()
                self._reached = committed
            self.committed = committed
            self._sent_bytes = 0
            self._trouble = None
            self.changed.notify_all()
            done = [waiter for waiter in self._waiters if waiter.ticket <= batch.ticket]
            self._waiters = [waiter for waiter in self._waiters if waiter.ticket > batch.ticket]
            self._wake(done)
        self._on_commit(len(chunk), self._clock.monotonic() - begun)

    def _is_stored(self, number: int, chunk: bytes) -> bool:
        try:
            self._chunks.append(number, chunk)
        except NotOwner:
            raise
        except (StoreUnreachable, InvalidRequest) as error:
            logger.warning("chunk %d is not stored yet: %s", number, error)
            self._trouble = error
            return False
        return True

    def fail(self, error: QuiverError) -> None:
        """Let nothing be committed any more."""
        with self.changed.lock:
            self.failure = self.failure or error
            self._wake_all()
