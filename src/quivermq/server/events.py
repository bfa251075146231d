"""Live events for everybody who listens, in the format of server-sent events.

There is one timer and one look at the queue a second, however many listen, and none while nobody does.
Those who listen to the same share the bytes, compressed or not. A listener that does not keep up is
dropped: it would read of a past that nobody is interested in, and may come back.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from quivermq.errors import QuiverError
from quivermq.server.broker import Broker
from quivermq.server.figures import Version, Wanted, look, next_version
from quivermq.server.history import Recorder
from quivermq.server.http import ResponseStream, encode_json

# Nothing of a name or a time, and no hint of the system.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_END = b"\x03\x00"
_RAW_WINDOW = -15
_LEVEL = 6

EVENTS = "text/event-stream"

_INTERVAL_S = 1.0


# Gzip.


def compressed(data: bytes) -> bytes:
    """A part, as it can stand anywhere in a stream."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_WINDOW)
    return squeeze.compress(data) + squeeze.flush(zlib.Z_FULL_FLUSH)


def accepts_gzip(accepted: str) -> bool:
    """Whether a header Accept-Encoding allows it by name."""
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class GzipStream:
    """A stream of gzip out of parts that many streams share: each is compressed once, whoever gets it.

    A part ends with a full flush, so it refers to nothing before it and fits behind any other. That costs
    a little of the ratio, and saves the processor the work for each listener. The end says how much there
    was, so nobody takes a cut for an end.
    """

    __slots__ = ("_crc", "_is_begun", "_size", "_stream")

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._crc = 0
        self._size = 0
        self._is_begun = False

    def write(self, data: bytes, block: bytes) -> bool:
        """Send a part, which is there as it is and as `compressed` made it. False when it was dropped."""
        if not self._stream.write(block if self._is_begun else _HEADER + block):
            return False
        self._is_begun = True
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        return True

    def close(self) -> None:
        """End the stream as a whole one."""
        if self._is_begun and not (self._stream.is_paused or self._stream.is_closed):
            size = self._size & 0xFFFFFFFF
            self._stream.write(_END + self._crc.to_bytes(4, "little") + size.to_bytes(4, "little"))
        self._stream.close()


# Events.


class _Part(NamedTuple):
    """Something to send, as it is and compressed."""

    data: bytes
    block: bytes


class _Asked(NamedTuple):
    """What a listener is to be told with one look. Equal ones get the same bytes, made once."""

    wanted: Wanted
    form: str
    """`stats`: everything, each time. `full`: the same with its version. `changes`: what is new since."""


@dataclass(slots=True, eq=False)
class _Listener:
    stream: ResponseStream
    wanted: Wanted
    wants_changes: bool
    gzip: GzipStream | None
    has_all: bool = False
    """Whether it was told everything once."""

    def asks(self) -> _Asked:
        form = "stats" if not self.wants_changes else "changes" if self.has_all else "full"
        return _Asked(self.wanted, form)

    def send(self, part: _Part) -> bool:
        return self.stream.write(part.data) if self.gzip is None else self.gzip.write(*part)

    def close(self) -> None:
        (self.gzip or self.stream).close()


def _part(data: bytes) -> _Part:
    return _Part(data, compressed(data))


# What keeps proxies from thinking that nothing comes any more, when there is nothing else to say.
_ALIVE = _part(b": alive\n\n")
# A browser that was dropped comes back after this many milliseconds.
_HELLO = _part(b"retry: 2000\n\n")


class Events:
    """Those who listen. Belongs to the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[ResponseStream, _Listener] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Future[None] | None = None
        self._version: Version | None = None
        self._recorder = broker.part(Recorder)
        broker.engine.catalog.watchers.append(self._on_change)
        broker.on_drain.append(self._close)

    def listen(
        self, stream: ResponseStream, wanted: Wanted, *, changes: bool = False, gzip: bool = False
    ) -> None:
        """Send events to a stream until it is closed: of changes only, after the first; as gzip."""
        if self._broker.is_draining:
            stream.close()
            return
        listener = _Listener(stream, wanted, changes, GzipStream(stream) if gzip else None)
        self._listeners[stream] = listener
        stream.on_close(lambda: self._forget(stream))
        listener.send(_HELLO)
        if self._timer is None:
            self._plan(0)

    def _forget(self, stream: ResponseStream) -> None:
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
        # Who comes meanwhile is told the next time.
        asked = {listener: listener.asks() for listener in self._listeners.values()}
        try:
            version, parts = await self._broker.figure(self._made, self._version, set(asked.values()))
        except QuiverError:
            # The queue cannot tell now; whoever asks for it by name is told why.
            self._send_all(lambda _: _ALIVE)
        else:
            self._version = version
            for listener in asked:
                listener.has_all = True
            self._send_all(lambda listener: parts[asked[listener]] if listener in asked else None)
        finally:
            self._looking = None
            if not self._listeners:
                # Whoever comes next is told everything, and nobody else has to remember it.
                self._version = None

    def _made(self, before: Version | None, asked: Iterable[_Asked]) -> tuple[Version, dict[_Asked, _Part]]:
        """In a thread: many listeners of many patterns would keep the event loop from everybody else."""
        survey = look(self._broker)
        self._recorder.see(survey)
        version = next_version(before, survey)
        # Listeners of the same topics get the same bytes.
        made: dict[tuple[frozenset[str], str], _Part] = {}
        parts: dict[_Asked, _Part] = {}
        for each in asked:
            place = (version.names(each.wanted), each.form)
            if place not in made:
                made[place] = _part(_figures(version, *place))
            parts[each] = made[place]
        return version, parts

    # When something happens.

    def _on_change(self, topic: str, change: str) -> None:
        """In whatever thread: a topic was created, altered or deleted."""
        # The loop may have ended before the queue is closed; then nobody listens.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._send_change, topic, change)

    def _send_change(self, topic: str, change: str) -> None:
        if self._listeners:
            part = _part(_event("topic", {"topic": topic, "change": change}))
            self._send_all(lambda listener: part if listener.wanted(topic) else None)

    def _send_all(self, part_for: Callable[[_Listener], _Part | None]) -> None:
        for listener in list(self._listeners.values()):
            part = part_for(listener)
            if part is not None and not listener.send(part):
                self._forget(listener.stream)
                listener.close()

    def _close(self) -> None:
        """The broker drains, and may be told so twice."""
        if self._on_change in self._broker.engine.catalog.watchers:
            self._broker.engine.catalog.watchers.remove(self._on_change)
        for listener in list(self._listeners.values()):
            self._forget(listener.stream)
            listener.close()


def _figures(version: Version, names: frozenset[str], form: str) -> bytes:
    if form == "changes" and not version.has_removed:
        return _event("changes", version.changes(names))
    whole = version.full(names)
    if form == "stats":
        del whole["version"]
    return _event("stats", whole)


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_json(data))
