"""`Hosting`: the shards that one broker has open. It claims, opens, gives away and lets go of them.

A thread looks at the view of the cluster whenever that changes, and does what `deciding` says. Opening and
closing take a while, and go to other threads, a few at a time. A shard is closed only when nobody answers
for it any more: `on_close` returns once that is so.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from quivermq.clock import Clock
from quivermq.cluster.deciding import decide
from quivermq.cluster.membership import BrokerMembership
from quivermq.cluster.view import ClusterView
from quivermq.errors import NotOwner, QuiverError, StoreUnreachable
from quivermq.helping import Condition, Helper
from quivermq.shared.lease import KeptLease

logger = logging.getLogger(__name__)


class OpenShard(Protocol):
    """A shard as the hosting sees it: see `OwnedShard`."""

    number: int

    @property
    def failure(self) -> QuiverError | None: ...

    def prepare(self) -> None: ...

    def close(self) -> None: ...

    def fence(self, reason: str) -> None: ...

    def abandon(self) -> None: ...


class State(Enum):
    """What a broker is doing with a shard."""

    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostingLimits:
    """How many at a time, and how long to wait for others."""

    openings_max: int = 4
    gives_max: int = 1
    gives_max_leaving: int = 4
    patience_s: float = 1.0
    """So much later than the one before claims the next broker in order a shard that nobody owns."""
    retry_s: float = 0.5
    """A shard that somebody else has, or that the store did not answer for, is tried again then."""
    trouble_s: float = 10.0
    """One that could not be opened for another reason, after so long, and one that another broker could
    not open is kept for as long. Nor is a new owner waited for longer before the next one is given away."""
    look_s: float = 0.2
    """How often to look, even when nobody tells of a change: leases run out by themselves."""


@dataclass(slots=True)
class _Held:
    """A shard that this broker has, or is about to have."""

    state: State = State.OPENING
    shard: OpenShard | None = None


@dataclass(slots=True)
class HostingFigures:
    """What was done so far."""

    opened: int = 0
    given: int = 0
    lost: int = 0
    failed: int = 0
    troubles: dict[int, str] = field(default_factory=dict)
    """By shard: why it could not be opened."""


class Hosting:
    """`open_shard` opens one under a lease; `on_open` and `on_close` are told by the threads that do it."""

    def __init__(
        self,
        membership: BrokerMembership,
        view: Callable[[], ClusterView],
        open_shard: Callable[[int, KeptLease], OpenShard],
        *,
        on_open: Callable[[OpenShard], None],
        on_close: Callable[[OpenShard], None],
        clock: Clock,
        limits: HostingLimits | None = None,
    ) -> None:
        self._membership = membership
        self._view = view
        self._open_shard = open_shard
        self._on_open = on_open
        self._on_close = on_close
        self._clock = clock
        self._limits = limits or HostingLimits()
        self.figures = HostingFigures()
        self._held: dict[int, _Held] = {}
        # Since when nobody owns a shard, as far as this one has seen.
        self._ownerless: dict[int, float] = {}
        # Those given away that nobody has claimed yet, and until when that is waited for.
        self._given: dict[int, float] = {}
        self._retry_at: dict[int, float] = {}
        # Those that were claimed in place of others, and until when they are not given back.
        self._kept_until: dict[int, float] = {}
        self._changed = Condition()
        self._is_news = False
        # Whether its own key was in the view since it joined.
        self._was_seen = False
        self._is_leaving = False
        self._is_ended = False
        self._threads = ThreadPoolExecutor(self._limits.openings_max, "quiver-shard")
        self._thread = Helper(self._run, "quiver-hosting")

    def start(self) -> None:
        """Begin to claim."""
        self._thread.start()

    def look(self) -> None:
        """Something has changed."""
        with self._changed.lock:
            self._is_news = True
            self._changed.notify_all()

    def held(self) -> dict[int, State]:
        """The shards that this broker is doing something with."""
        with self._changed.lock:
            return {number: held.state for number, held in sorted(self._held.items())}

    def ownerless_s(self) -> dict[int, float]:
        """By shard: for how long nobody has owned it, as far as this one has seen."""
        now = self._clock.monotonic()
        with self._changed.lock:
            return {shard: now - since for shard, since in sorted(self._ownerless.items())}

    def leave(self, hurry: threading.Event) -> None:
        """Give all shards to others, or let go of them when there is nobody; return when all are gone.

        `hurry` lets go of what is left without waiting for others.
        """
        with self._changed.lock:
            self._is_leaving = True
        try:
            self._membership.leave_soon()
        except QuiverError as error:
            logger.warning("the others are not told that this broker leaves: %s", error)
        with self._changed.lock:
            while self._held and not hurry.is_set():
                self._changed.wait(self._limits.look_s)

    def close(self) -> None:
        """End: let go of every shard, and be in the cluster no longer."""
        with self._changed.lock:
            self._is_ended = True
            self._changed.notify_all()
        self._thread.join()
        with self._changed.lock:
            held = list(self._held.items())
        for number, each in held:
            if each.state is State.CLOSING and each.shard is not None:
                # Told to hurry: it does not wait for a store that does not answer.
                each.shard.fence(f"shard {number} was let go of in a hurry")
        for number in self._open_now():
            self._begin_closing(number)
        self._threads.shutdown()
        for number in self._open_now():
            # They were just being opened.
            shard = self._held[number].shard
            assert shard is not None, "it is open"
            self._give(number, shard)
        try:
            self._membership.end()
        except QuiverError as error:
            logger.warning("the lease ends by itself: %s", error)

    def _open_now(self) -> list[int]:
        with self._changed.lock:
            return [number for number, held in self._held.items() if held.state is State.OPEN]

    # The thread.

    def _run(self) -> None:
        while True:
            with self._changed.lock:
                if not self._is_news and not self._is_ended:
                    self._changed.wait(self._limits.look_s)
                self._is_news = False
                if self._is_ended:
                    return
            try:
                self.step()
            except QuiverError as error:
                logger.warning("the cluster is not looked after just now: %s", error)
            except Exception:
                logger.exception("the cluster is not looked after just now")

    def step(self) -> None:
        """Do what is to be done now. The thread calls this all the time."""
        self._leave_lost()
        if not self._membership.is_joined:
            self._join_again()
            return
        if not self._membership.is_fresh:
            # Nothing is answered either; it may be fresh again when etcd answers.
            return
        view, now = self._view(), self._clock.monotonic()
        if self._was_forgotten(view):
            return
        with self._changed.lock:
            self._note_ownerless(view, now)
            self._act(view, now)

    def _was_forgotten(self, view: ClusterView) -> bool:
        """Whether its own key is gone, and so everything under its lease, before a keepalive tells that."""
        is_there = self._membership.id in view.brokers
        if self._was_seen and not is_there:
            logger.warning("the cluster has forgotten broker %s", self._membership.id)
            self._was_seen = False
            self._membership.lease.lose()
            # At once, and not with the next look.
            self._leave_lost()
            return True
        self._was_seen = is_there
        return False

    def _join_again(self) -> None:
        with self._changed.lock:
            is_empty = not self._held
        # What was opened under the lease that is lost has to be gone before there is another one.
        self._was_seen = False
        if is_empty and self._membership.try_to_join():
            logger.info("broker %s is in the cluster again", self._membership.id)

    def _leave_lost(self) -> None:
        """Let go of what somebody else may own, and of what has failed for good, to open it anew."""
        is_lost = self._membership.lease.is_lost
        with self._changed.lock:
            for number, held in self._held.items():
                shard = held.shard
                if held.state is State.OPEN and shard is not None:
                    if not is_lost and shard.failure is None:
                        continue
                    held.state = State.CLOSING
                    shard.fence(f"this broker may not own shard {number} any more")
                    self._threads.submit(self._abandon, number, shard)

    def _note_ownerless(self, view: ClusterView, now: float) -> None:
        me = self._membership.id
        for shard in range(view.shards):
            owner = view.owners.get(shard)
            if owner is not None and owner.broker != me:
                self._given.pop(shard, None)
                self.figures.troubles.pop(shard, None)
            # One that is this broker's, which does not have it, is nobody else's to claim.
            if owner is None or (owner.broker == me and shard not in self._held):
                self._ownerless.setdefault(shard, now)
            else:
                self._ownerless.pop(shard, None)
        self._given = {shard: until for shard, until in self._given.items() if now < until}

    def _act(self, view: ClusterView, now: float) -> None:
        limits = self._limits
        moving = len(self._given) + sum(held.state is State.CLOSING for held in self._held.values())
        gives_max = limits.gives_max_leaving if self._is_leaving else limits.gives_max
        if not view.candidates:
            # Nobody takes them.
            moving, gives_max = 0, view.shards
        decision = decide(
            view,
            self._membership.id,
            held={number for number in self._held if self._may_give(number, now)},
            ownerless_s={shard: now - since for shard, since in self._ownerless.items()},
            patience_s=limits.patience_s,
            gives_max=max(gives_max - moving, 0),
            is_leaving=self._is_leaving,
        )
        for number in decision.gives:
            self._begin_closing(number)
        if self._is_leaving:
            return
        opening = sum(held.state is State.OPENING for held in self._held.values())
        for number in decision.claims:
            is_free = number not in self._held and now >= self._retry_at.get(number, now)
            if is_free and opening < limits.openings_max:
                opening += 1
                self._held[number] = _Held()
                if view.targets.get(number) != self._membership.id:
                    # Who should have it could not open it: to give it back at once would go on for ever.
                    self._kept_until[number] = now + limits.trouble_s
                self._threads.submit(self._open, number, self._membership.lease)

    def _may_give(self, number: int, now: float) -> bool:
        is_kept = now < self._kept_until.get(number, now) and not self._is_leaving
        return self._held[number].state is State.OPEN and not is_kept

    def _begin_closing(self, number: int) -> None:
        held = self._held[number]
        assert held.shard is not None, "it is not open"
        held.state = State.CLOSING
        self._threads.submit(self._give, number, held.shard)

    # What takes a while.

    def _open(self, number: int, lease: KeptLease) -> None:
        start = self._clock.monotonic()
        try:
            shard = self._open_shard(number, lease)
            try:
                self._on_open(shard)
            except BaseException:
                shard.close()
                raise
        except (NotOwner, StoreUnreachable) as error:
            logger.info("shard %d was not opened: %s", number, error)
            self._try_later(number, self._limits.retry_s)
        except Exception as error:
            logger.exception("shard %d cannot be opened", number)
            with self._changed.lock:
                self.figures.failed += 1
                self.figures.troubles[number] = str(error)
            self._try_later(number, self._limits.trouble_s)
        else:
            logger.info("shard %d is open after %.2f s", number, self._clock.monotonic() - start)
            with self._changed.lock:
                self.figures.opened += 1
                self.figures.troubles.pop(number, None)
                self._held[number] = _Held(State.OPEN, shard)
            self.look()

    def _try_later(self, number: int, seconds: float) -> None:
        with self._changed.lock:
            self._retry_at[number] = self._clock.monotonic() + seconds
        self._forget(number)

    def _give(self, number: int, shard: OpenShard) -> None:
        try:
            if not self._is_ended:
                # At the end nobody waits for it: without a store that would be for ever.
                self._attempt(number, shard.prepare)
            self._attempt(number, lambda: self._on_close(shard))
            self._attempt(number, shard.close)
        finally:
            logger.info("shard %d was given away", number)
            with self._changed.lock:
                self.figures.given += 1
                self._given[number] = self._clock.monotonic() + self._limits.trouble_s
                # Seen by this one before the view tells: or it would claim again what it has just given.
                self._ownerless[number] = self._clock.monotonic()
            self._forget(number)

    def _abandon(self, number: int, shard: OpenShard) -> None:
        try:
            self._attempt(number, lambda: self._on_close(shard))
            self._attempt(number, shard.abandon)
        finally:
            logger.warning("shard %d was lost to another broker", number)
            with self._changed.lock:
                self.figures.lost += 1
            self._forget(number)

    def _attempt(self, number: int, act: Callable[[], None]) -> None:
        """Do one step of closing: whatever goes wrong, the next one has to be done as well."""
        try:
            act()
        except QuiverError as error:
            logger.warning("shard %d is closed, though: %s", number, error)
        except Exception:
            logger.exception("shard %d is closed, though", number)

    def _forget(self, number: int) -> None:
        with self._changed.lock:
            self._held.pop(number, None)
            self._is_news = True
            self._changed.notify_all()
