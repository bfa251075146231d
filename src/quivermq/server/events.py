"""Live events for everybody who listens, in the format of server-sent events.

There is one timer and one look at the queue a second, however many listen, and none while nobody does. A
listener that does not keep up is dropped: it would read of a past that nobody is interested in, and may
come back.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from quivermq.errors import QuiverError
from quivermq.server.broker import Broker
from quivermq.server.figures import Wanted, look, told
from quivermq.server.http import Stream

CONTENT_TYPE = "text/event-stream"

_INTERVAL_S = 1.0
# What keeps proxies from thinking that nothing comes any more, when there is nothing else to say.
_ALIVE = b": alive\n\n"
# A browser that was dropped comes back after this many milliseconds.
_HELLO = b"retry: 2000\n\n"

_encode = msgspec.json.Encoder().encode


class Events:
    """Those who listen. Belongs to the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        # Equal ones among those that say what is wanted get the same bytes, made once.
        self._listeners: dict[Stream, Wanted] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Future[None] | None = None
        broker.engine.topic_watchers.append(self._on_change)
        broker.on_drain.append(self._close)

    def listen(self, stream: Stream, wanted: Wanted) -> None:
        """Send events to a stream until it is closed."""
        if self._broker.is_draining:
            stream.close()
            return
        self._listeners[stream] = wanted
        stream.on_close(lambda: self._forget(stream))
        stream.write(_HELLO)
        if self._timer is None:
            self._plan(0)

    def _forget(self, stream: Stream) -> None:
        self._listeners.pop(stream, None)
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Once a second.

    def _plan(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._plan(_INTERVAL_S)
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        else:
            # The last look takes longer than a second.
            self._send_all(lambda _: _ALIVE)

    async def _look(self) -> None:
        try:
            events = await self._broker.run(self._stats_events, set(self._listeners.values()))
        except QuiverError:
            # The queue cannot tell now; whoever asks for it by name is told why.
            self._send_all(lambda _: _ALIVE)
        else:
            # Who came meanwhile is told the next time.
            self._send_all(lambda wanted: events.get(wanted, b""))
        finally:
            self._looking = None

    def _stats_events(self, listeners: set[Wanted]) -> dict[Wanted, bytes]:
        """In a thread: many listeners of many patterns would keep the event loop from everybody else."""
        figures, now_us = look(self._broker), self._broker.engine.clock.now_us()
        # Listeners of the same topics get the same bytes.
        made: dict[frozenset[str], bytes] = {}
        events: dict[Wanted, bytes] = {}
        for wanted in listeners:
            names = frozenset(filter(wanted, figures.stats.topics))
            if names not in made:
                made[names] = _event("stats", {"time": now_us, **told(figures, names.__contains__)})
            events[wanted] = made[names]
        return events

    # When something happens.

    def _on_change(self, topic: str, change: str) -> None:
        """In whatever thread: a topic was created, altered or deleted."""
        # The loop may have ended before the queue is closed; then nobody listens.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._send_change, topic, change)

    def _send_change(self, topic: str, change: str) -> None:
        event = _event("topic", {"topic": topic, "change": change})
        self._send_all(lambda wanted: event if wanted(topic) else b"")

    def _send_all(self, event_for: Callable[[Wanted], bytes]) -> None:
        for stream, wanted in list(self._listeners.items()):
            event = event_for(wanted)
            if event and not stream.write(event):
                self._forget(stream)
                stream.close()

    def _close(self) -> None:
        """The broker drains, and may be told so twice."""
        if self._on_change in self._broker.engine.topic_watchers:
            self._broker.engine.topic_watchers.remove(self._on_change)
        for stream in list(self._listeners):
            self._forget(stream)
            stream.close()


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))
