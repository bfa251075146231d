"""Clients that wait for messages: one timer for all of them, and no thread.

A poll waits among the waiters of its groups (see quivermq.group.waiters), and is woken in whatever thread
something happens. What becomes ready by time alone, a retry or a delayed message, is looked after by one
timer for all groups that somebody waits for.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from quivermq.engine import Queue
from quivermq.engine.hosted import Hosted
from quivermq.engine.waiting import Watch, wake_due
from quivermq.errors import QuiverError, Unauthenticated
from quivermq.group.group import Group
from quivermq.group.waiters import Waiter, Waiters, leave
from quivermq.server.access import ApiKey
from quivermq.server.broker import Broker

logger = logging.getLogger(__name__)

Ring = asyncio.Future[None]
T = TypeVar("T")
Take = Callable[[], Awaitable[list[T]]]

# Polls end on ticks of this many seconds: nobody minds, and thousands of them share a timer.
_TICK_S = 0.02
# What is due, but not taken yet, is looked at again after this long.
_LOOK_AGAIN_S = 0.005


class Polls:
    """Everybody who waits. Used on the event loop alone, but for `wake`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ends: dict[int, set[Ring]] = {}
        # When each timer goes off is noted here: uvloop's own do not know it once that is about now.
        self._end_timer: asyncio.Handle | None = None
        self._end_tick = 0
        self._events: dict[tuple[Hosted, Group], float] = {}
        self._event_timer: asyncio.Handle | None = None
        self._event_at = 0.0
        self._keys: dict[Ring, ApiKey | None] = {}
        broker.on_drain.append(self._let_go)
        broker.on_keys.append(self._send_away)

    async def wait_for(
        self, queue: Queue, take: Take[T], seconds: float, key: ApiKey | None = None
    ) -> list[T]:
        """What `take` finds, as soon as it finds something; nothing after so many seconds.

        Raises Unauthenticated once the key of who waits is revoked.
        """
        found = await take()
        end = self._loop.time() + seconds
        while not found and self._loop.time() < end and not self._broker.is_draining:
            ring: Ring = self._loop.create_future()
            watch = queue.watch(lambda ring=ring: self.wake(ring))  # type: ignore[misc]
            try:
                # Somebody may have put between the last look and the wait.
                found = await take()
                if not found:
                    self._expect(watch)
                    await self.rung(ring, end, key)
            except BaseException:
                # Also when the client has gone away: somebody else is to have what it was woken for.
                watch.leave(pass_on=True)
                raise
            watch.leave(pass_on=bool(found))
            # Who stops hands nothing out any more: nobody could settle it here.
            if not found and not self._broker.is_draining:
                found = await self._take_after_ring(take, watch)
        return found

    async def _take_after_ring(self, take: Take[T], watch: Watch) -> list[T]:
        try:
            found = await take()
        except BaseException:
            watch.wake_next()
            raise
        if len(watch.groups) > 1:
            # Woken for one topic, it may have been served by another: somebody else looks after the first.
            watch.wake_next()
        return found

    def wake(self, ring: Ring) -> None:
        """End a wait, from whatever thread."""
        if threading.get_ident() == self._thread:
            _set(ring)
        else:
            self._loop.call_soon_threadsafe(_set, ring)

    @contextmanager
    def waiting_at(self, waiters: Waiters) -> Iterator[Ring]:
        """Wait among others: what this gives is done once they are woken."""
        ring: Ring = self._loop.create_future()
        waiter = Waiter(lambda: self.wake(ring))
        waiters.wait(waiter)
        try:
            yield ring
        finally:
            leave(waiter, [waiters])

    # Ends.

    async def rung(self, ring: Ring, end: float, key: ApiKey | None = None) -> None:
        """Wait for a ring, or for the end, in the time of the event loop; not at all once it drains.

        Raises Unauthenticated once the key of who waits is revoked.
        """
        if self._broker.is_draining:
            return
        if not self._broker.is_welcome(key):
            raise _revoked()
        self._keys[ring] = key
        tick = math.ceil(end / _TICK_S)
        if self._end_timer is None or tick < self._end_tick:
            self._plan_end(tick)
        self._ends.setdefault(tick, set()).add(ring)
        try:
            await ring
        finally:
            del self._keys[ring]
            rings = self._ends.get(tick, set())
            rings.discard(ring)
            if not rings:
                self._ends.pop(tick, None)

    def _plan_end(self, tick: int) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._end_tick = tick
        self._end_timer = self._loop.call_at(tick * _TICK_S, self._end)

    def _end(self) -> None:
        """Let those go whose time is over."""
        now = self._loop.time()
        for tick in [tick for tick in self._ends if tick * _TICK_S <= now]:
            for ring in self._ends.pop(tick):
                _set(ring)
        self._end_timer = None
        if self._ends:
            self._plan_end(min(self._ends))

    def _let_go(self) -> None:
        for rings in list(self._ends.values()):
            for ring in list(rings):
                _set(ring)

    def _send_away(self) -> None:
        """Keys have changed."""
        for ring, key in list(self._keys.items()):
            if not (ring.done() or self._broker.is_welcome(key)):
                ring.set_exception(_revoked())

    # What becomes ready by time alone.

    def _expect(self, watch: Watch) -> None:
        wait = watch.until_next_event()
        if wait is not None:
            self._expect_after(watch.groups, wait)

    def _expect_after(self, groups: list[tuple[Hosted, Group]], wait: float) -> None:
        when = self._loop.time() + wait
        for each in groups:
            self._events[each] = min(when, self._events.get(each, when))
        self._plan_look()

    def _plan_look(self) -> None:
        if not self._events:
            return
        when = min(self._events.values())
        if self._event_timer is not None:
            if self._event_at <= when:
                return
            self._event_timer.cancel()
        self._event_at = when
        self._event_timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._event_timer = None
        now = self._loop.time()
        due = [place for place, when in self._events.items() if when <= now]
        for place in due:
            del self._events[place]
        if due:
            self._loop.run_in_executor(self._broker.threads, self._release, due)
        self._plan_look()

    def _release(self, places: list[tuple[Hosted, Group]]) -> None:
        """In a thread: let what is due become ready, and wake as many as there is something for."""
        for hosted, group in places:
            now_us = self._broker.engine.clock.now_us()
            try:
                later = wake_due(hosted, group, now_us)
            except QuiverError as error:
                # One topic in trouble, or deleted meanwhile, must not keep the others waiting.
                if not hosted.is_gone:
                    logger.error("what is due in %s waits: %s", hosted.name, error)
                continue
            if later is not None:
                wait = max(_LOOK_AGAIN_S, (later - now_us) / 1_000_000)
                self._loop.call_soon_threadsafe(self._expect_after, [(hosted, group)], wait)


def _revoked() -> Unauthenticated:
    return Unauthenticated("the key was revoked while the call waited: ask for another one")


def _set(ring: Ring) -> None:
    if not ring.done():
        ring.set_result(None)
