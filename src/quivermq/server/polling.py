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
from functools import partial
from typing import TypeVar

from quivermq.engine import EngineQueue
from quivermq.engine.waiting import Watch, WatchedGroup
from quivermq.errors import QuiverError, Unauthenticated
from quivermq.server.access import ApiKey
from quivermq.server.broker import Broker

logger = logging.getLogger(__name__)

Wakeup = asyncio.Future[None]
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
        self._ends: dict[int, set[Wakeup]] = {}
        # When each timer goes off is noted here: uvloop's own do not know it once that is about now.
        self._end_timer: asyncio.Handle | None = None
        self._end_tick = 0
        self._events: dict[WatchedGroup, float] = {}
        self._event_timer: asyncio.Handle | None = None
        self._event_at = 0.0
        self._keys: dict[Wakeup, ApiKey | None] = {}
        broker.on_drain.append(self._let_go)
        broker.on_keys.append(self._send_away)

    async def wait_for(
        self, queue: EngineQueue, take: Take[T], seconds: float, key: ApiKey | None = None
    ) -> list[T]:
        """What `take` finds, as soon as it finds something; nothing after so many seconds.

        Raises Unauthenticated once the key of who waits is revoked.
        """
        found = await take()
        end = self._loop.time() + seconds
        while not found and self._loop.time() < end and not self._broker.is_draining:
            wakeup: Wakeup = self._loop.create_future()
            watch = queue.watch(lambda wakeup=wakeup: self.wake(wakeup))  # type: ignore[misc]
            try:
                # Somebody may have put between the last look and the wait.
                found = await take()
                if not found:
                    self._expect(watch)
                    await self.woken(wakeup, end, key)
            except BaseException:
                # Also when the client has gone away: somebody else is to have what it was woken for.
                watch.leave(pass_on=True)
                raise
            watch.leave(pass_on=bool(found))
            # Who stops hands nothing out any more: nobody could settle it here.
            if not found and not self._broker.is_draining:
                found = await self._take_when_woken(take, watch)
        return found

    async def _take_when_woken(self, take: Take[T], watch: Watch) -> list[T]:
        try:
            found = await take()
        except BaseException:
            watch.wake_next()
            raise
        watch.wake_others()
        return found

    def wake(self, wakeup: Wakeup) -> None:
        """End a wait, from whatever thread."""
        if threading.get_ident() == self._thread:
            _set(wakeup)
        else:
            self._loop.call_soon_threadsafe(_set, wakeup)

    @contextmanager
    def waiting(self, watch: Callable[[Callable[[], None]], Callable[[], None]]) -> Iterator[Wakeup]:
        """Wait among others: what this gives is done once `watch` calls what it was given."""
        wakeup: Wakeup = self._loop.create_future()
        leave = watch(lambda: self.wake(wakeup))
        try:
            yield wakeup
        finally:
            leave()

    # Ends.

    async def woken(self, wakeup: Wakeup, end: float, key: ApiKey | None = None) -> None:
        """Wait to be woken, or for the end, in the time of the event loop; not at all once it drains.

        Raises Unauthenticated once the key of who waits is revoked.
        """
        if self._broker.is_draining:
            return
        if not self._broker.is_welcome(key):
            raise _revoked()
        self._keys[wakeup] = key
        tick = math.ceil(end / _TICK_S)
        if self._end_timer is None or tick < self._end_tick:
            self._plan_end(tick)
        self._ends.setdefault(tick, set()).add(wakeup)
        try:
            await wakeup
        finally:
            del self._keys[wakeup]
            wakeups = self._ends.get(tick, set())
            wakeups.discard(wakeup)
            if not wakeups:
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
            for wakeup in self._ends.pop(tick):
                _set(wakeup)
        self._end_timer = None
        if self._ends:
            self._plan_end(min(self._ends))

    def _let_go(self) -> None:
        for wakeups in list(self._ends.values()):
            for wakeup in list(wakeups):
                _set(wakeup)

    def _send_away(self) -> None:
        """Keys have changed."""
        for wakeup, key in list(self._keys.items()):
            if not (wakeup.done() or self._broker.is_welcome(key)):
                wakeup.set_exception(_revoked())

    # What becomes ready by time alone.

    def _expect(self, watch: Watch) -> None:
        wait = watch.until_next_event()
        if wait is not None:
            self._expect_after(watch.groups, wait)

    def _expect_after(self, groups: list[WatchedGroup], wait: float) -> None:
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
        due = [group for group, when in self._events.items() if when <= now]
        for group in due:
            del self._events[group]
        if due:
            self._loop.run_in_executor(
                self._broker.threads, self._broker.in_order, partial(self._release, due)
            )
        self._plan_look()

    def _release(self, groups: list[WatchedGroup]) -> None:
        """In a thread: let what is due become ready, and wake as many as there is something for."""
        for group in groups:
            now_us = self._broker.engine.clock.now_us()
            try:
                later = group.wake_due(now_us)
            except QuiverError as error:
                # One topic in trouble, or deleted meanwhile, must not keep the others waiting.
                if not group.is_gone:
                    logger.error("what is due in %s waits: %s", group.name, error)
                continue
            if later is not None:
                wait = max(_LOOK_AGAIN_S, (later - now_us) / 1_000_000)
                self._loop.call_soon_threadsafe(self._expect_after, [group], wait)


def _revoked() -> Unauthenticated:
    return Unauthenticated("the key was revoked while the call waited: ask for another one")


def _set(wakeup: Wakeup) -> None:
    if not wakeup.done():
        wakeup.set_result(None)
