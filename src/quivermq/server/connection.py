"""One connection: requests to the app, answers out in the order of their requests, an end to everything.

Nothing here makes a task where an answer is there at once, or a timer; and there is one write for all
answers to what one read brought. A request begins only when the one before it was answered and while the
client takes its answers. What it sends meanwhile waits in a queue, and then nothing more is read, so the
queue holds what one read brought. A large answer goes to the transport piece by piece, so that what a
client does not take is known, and counts: see `memory`.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import cast

from quivermq.errors import Unavailable
from quivermq.server.access import ApiKey
from quivermq.server.edge import Edge, access_log
from quivermq.server.http import (
    CLOSE,
    CONTINUE,
    Later,
    LiveStream,
    Request,
    Response,
    error_response,
    has_body,
    head,
    problem,
)
from quivermq.server.reading import UNASKED_BYTES, Reader

logger = logging.getLogger(__name__)

_NEVER = math.inf

# When more waits to be sent, the transport gets it at once, and says whether the client keeps up.
_UNSENT_BYTES_MAX = 64 * 1024
# About what a request takes in memory that waits for its turn, besides its body.
_REQUEST_BYTES = 2 * 1024
# A transport takes whatever it is given, and over TLS makes a copy of it: so it gets no more than this.
_PIECE_BYTES = 512 * 1024


class ClientConnection(asyncio.Protocol):
    """A client's connection, from its first byte to its last."""

    __slots__ = (
        "_begun",
        "_below",
        "_edge",
        "_handed_bytes",
        "_held_bytes",
        "_is_aborted",
        "_is_answering",
        "_is_blocked",
        "_is_closing",
        "_is_paused",
        "_loop",
        "_out",
        "_out_bytes",
        "_queue",
        "_reader",
        "_request",
        "_rest",
        "_rest_bytes",
        "_stream",
        "_stream_key",
        "_task",
        "_transport",
        "_unsent",
        "_unsent_bytes",
        "deadline",
    )

    _transport: asyncio.Transport
    _reader: Reader

    def __init__(
        self, edge: Edge, loop: asyncio.AbstractEventLoop, *, below: asyncio.Transport | None = None
    ) -> None:
        self._edge = edge
        # What carries the bytes of TLS.
        self._below = below
        self._loop = loop
        self.deadline = edge.read_deadline
        self._begun = 0
        self._queue: deque[Request] = deque()
        self._request: Request | None = None
        self._task: asyncio.Future[Response] | Later | None = None
        self._stream: LiveStream | None = None
        self._stream_key: ApiKey | None = None
        self._is_answering = False
        self._is_paused = False
        # Answering or paused: no request may begin.
        self._is_blocked = False
        self._is_closing = False
        self._is_aborted = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._unsent_bytes = 0
        # What to call for answers that may not have been sent as a whole.
        self._unsent: list[Callable[[], None]] = []
        # What the transport has yet to get. There is something only while it is paused.
        self._rest: deque[bytes | memoryview] = deque()
        self._rest_bytes = 0
        # The largest that was handed to the transport since it was last seen empty. All of it stays in
        # memory until its last byte is sent.
        self._handed_bytes = 0
        # What the budget was told.
        self._held_bytes = 0

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has all the methods of asyncio's, but is none by class.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        client = str(peer[0]) if isinstance(peer, tuple) else ""
        edge = self._edge
        self._reader = Reader(edge.settings, client, self._take, edge.new_id, edge.admit)
        if not edge.has_room_to_refuse():
            self._transport.abort()
            return
        is_welcome = edge.has_room() and not edge.is_draining
        edge.clients.add(self)
        if not is_welcome:
            self._refuse(
                error_response(Unavailable("the broker has no room for one more connection: retry"))
            )

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        if reader.is_reading:
            if reader.begun != self._begun:
                self._begun = reader.begun
                if not self._is_blocked:
                    self.deadline = self._edge.read_deadline
            self._hold_body()
        elif self._queue:
            self._hold_answer()
        elif self._held_bytes:
            self._account()
        if reader.wants_continue or reader.refusal is not None:
            self._go_on()
        elif self._out:
            self._flush()

    def eof_received(self) -> bool:
        # Nobody can tell a client that only stopped sending from one that is gone, and waiting for messages
        # in the name of one that is gone would keep them from others.
        self._note_sent()
        self._close()
        # The transport would close itself before it got the rest. With TLS it does so in any case.
        return bool(self._rest) and self._below is None

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and not (self._is_paused or self._is_aborted):
            # Closing waits until everything is sent, unless the client is gone.
            self._unsent.clear()
        self._edge.leave(self)
        self._held_bytes = 0
        self._is_closing = self._is_blocked = True
        self._reader.stop()
        self._queue.clear()
        self._out.clear()
        self._rest.clear()
        self._rest_bytes = 0
        if self._task is not None:
            self._task.cancel()
        if self._stream is not None:
            self._stream.end()
        for tell in self._unsent:
            tell()
        self._unsent.clear()

    def pause_writing(self) -> None:
        self._is_paused = self._is_blocked = True
        self._unsent_bytes = self._buffered_bytes()
        self._set_deadline()
        if self._stream is not None:
            self._stream.is_paused = True
            self._hold_answer()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._rest:
            self._write_rest()
            if self._is_paused:
                return
        self._is_blocked = self._is_answering or self._is_closing
        if self._held_bytes:
            self._account()
        self._set_deadline()
        if self._stream is not None:
            self._stream.is_paused = False
        self._go_on()

    # What the edge calls.

    def expire(self) -> None:
        """Cut off a client that is slow or silent for too long."""
        if self._is_paused and self._has_taken_some():
            self._set_deadline()
        elif self._reader.is_reading and not (self._is_blocked or self._is_closing):
            self._refuse(
                problem(408, "request_timeout", "the request took too long to arrive", retryable=True)
            )
        else:
            self.abort()

    def look(self) -> None:
        """Count what waits to be sent, of which the transport says nothing while it is little."""
        if (self._held_bytes or self._buffered_bytes()) and self._holding() != self._held_bytes:
            self._account()

    def drain(self) -> None:
        """Close now, or after the answers to what has arrived or begun to."""
        if self._stream is not None or not (self._is_blocked or self._queue or self._reader.is_reading):
            self._close()

    def abort(self) -> None:
        """Close without sending what was not sent."""
        self._note_sent()
        self._is_aborted = True
        # Now, not when the transport has gone: until then others may already need the room.
        self._out.clear()
        self._rest.clear()
        self._rest_bytes = 0
        self._transport.abort()

    def send_away(self, is_welcome: Callable[[ApiKey | None], bool]) -> None:
        """End a stream at once when the key for it was revoked: it may have more to tell otherwise."""
        if self._stream is None or is_welcome(self._stream_key):
            return
        self._stream.end()
        if self._is_paused:
            self.abort()
        else:
            self._close()

    def give_up(self) -> None:
        """Somebody else needs the room: a body that stands still is refused, an answer is not sent."""
        if self._reader.is_reading and not (self._is_blocked or self._is_closing):
            self._refuse(_no_memory())
        else:
            self.abort()

    # Answering.

    def _take(self, request: Request) -> None:
        if not (self._is_blocked or self._queue):
            self._begin(request)
            return
        self._queue.append(request)
        if len(self._queue) == 1:
            self._transport.pause_reading()

    def _begin(self, request: Request) -> None:
        answer = self._edge.answer(request)
        if isinstance(answer, Response):
            self._finish(request, answer)
            return
        self._is_answering = self._is_blocked = True
        self.deadline = _NEVER
        self._request = request
        if len(request.body) > UNASKED_BYTES:
            self._account()
        if isinstance(answer, Later):
            self._task = answer
            answer.then = self._on_answer
            return
        task = asyncio.ensure_future(answer, loop=self._loop)
        self._task = task
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Future[Response]") -> None:
        if task.cancelled():
            self._is_answering = False
            if self._request is not None and self._request.portion is not None:
                self._request.portion.end()
            self.abort()
        else:
            self._on_answer(task.result())

    def _on_answer(self, response: Response) -> None:
        request, self._request, self._task = self._request, None, None
        assert request is not None
        self._is_answering = False
        self._hand_over(request, response)
        if request.portion is not None:
            # Only now, because only now what the client does not take is counted here.
            request.portion.end()

    def _hand_over(self, request: Request, response: Response) -> None:
        if self._held_bytes:
            self._account()
        if self._is_closing:
            if response.unsent is not None:
                response.unsent()
            self.abort()
            return
        self._is_blocked = self._is_paused
        self._finish(request, response)
        self._go_on()

    def _finish(self, request: Request, response: Response) -> None:
        edge, reader = self._edge, self._reader
        is_last = reader.is_last or edge.is_draining
        if is_last and (reader.is_reading or self._queue or reader.refusal is not None):
            is_last = False
        if response.stream is not None:
            is_last = True
        connection = CLOSE if is_last else reader.keep_alive
        self._out.append(head(response, request.id, edge.date, connection))
        if request.method != "HEAD" and has_body(response):
            self._out.append(response.body)
            self._out_bytes += len(response.body)
        if response.unsent is not None:
            self._unsent.append(response.unsent)
        if edge.is_logging:
            _log_access(request, response)
        if not self._is_blocked:
            self.deadline = edge.idle_deadline
        if response.stream is not None and request.method != "HEAD":
            self._begin_stream(request, response)
        elif is_last:
            self._close()
        elif self._out_bytes > _UNSENT_BYTES_MAX:
            self._flush()

    def _begin_stream(self, request: Request, response: Response) -> None:
        assert response.stream is not None
        self._stream_key = request.key
        self._flush()
        self._is_answering = self._is_blocked = True
        self._reader.stop()
        if self._queue:
            self._queue.clear()
            self._transport.resume_reading()
        self._stream = LiveStream(self._transport, is_paused=self._is_paused)
        self._set_deadline()
        self._stream.begin(response.stream)

    def _go_on(self) -> None:
        """Begin what waits, as far as that is possible now, and send what there is."""
        queue, reader = self._queue, self._reader
        if queue:
            while queue and not self._is_blocked:
                self._begin(queue.popleft())
            if not (queue or self._is_closing):
                self._transport.resume_reading()
        if not (self._is_blocked or queue or self._is_closing):
            if reader.refusal is not None:
                self._refuse(reader.refusal)
                return
            if reader.wants_continue:
                reader.wants_continue = False
                self._out.append(CONTINUE)
            self._set_deadline()
        if self._out:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._out_bytes <= _UNSENT_BYTES_MAX and not self._rest:
            data = b"".join(out)
            if len(data) > self._handed_bytes:
                self._handed_bytes = len(data)
            self._transport.write(data)
        else:
            self._rest.extend(out)
            self._rest_bytes += sum(map(len, out))
            if not self._is_paused:
                self._write_rest()
        self._out_bytes = 0
        if self._unsent:
            self._note_sent()

    def _write_rest(self) -> None:
        """Give the transport what it takes."""
        while self._rest and not self._is_paused:
            self._transport.write(self._piece())
        if self._rest:
            self._hold_answer()
        elif self._is_closing:
            self._transport.close()

    def _piece(self) -> bytes:
        """The next bytes that were not sent."""
        rest, piece, room = self._rest, list[bytes | memoryview](), _PIECE_BYTES
        while rest and room:
            part = rest.popleft()
            if len(part) > room:
                whole = memoryview(part)
                part = whole[:room]
                rest.appendleft(whole[room:])
            piece.append(part)
            room -= len(part)
        self._rest_bytes -= _PIECE_BYTES - room
        # A copy, so that the whole goes as soon as this connection lets go of it.
        data = b"".join(piece)
        if len(data) > self._handed_bytes:
            self._handed_bytes = len(data)
        return data

    def _note_sent(self) -> None:
        """Nobody is called for answers that are on their way."""
        if not self._unsent or self._out or self._rest:
            return
        # A transport that failed has an empty buffer as well.
        if not (self._transport.is_closing() or self._buffered_bytes()):
            self._unsent.clear()

    # What the broker holds for the client.

    def _account(self) -> None:
        """Tell the budget what this connection holds now."""
        self._held_bytes = self._holding()
        self._edge.memory.hold(self, self._held_bytes, self._edge.now)

    def _holding(self) -> int:
        """How many bytes stay in memory for this client."""
        held = self._reader.held_bytes + sum(map(_whole_bytes, self._rest))
        if self._request is not None:
            held += len(self._request.body)
        if self._queue:
            held += sum(len(request.body) + _REQUEST_BYTES for request in self._queue)
        if buffered := self._buffered_bytes():
            held += buffered + self._handed_bytes
        else:
            self._handed_bytes = 0
        return held

    def _hold_body(self) -> None:
        """A part of a request has arrived: it is refused where there is no room for it."""
        self._account()
        if not self._edge.make_room() and self._reader.is_reading:
            self._reader.refuse(_no_memory())
            self._account()

    def _hold_answer(self) -> None:
        """The client does not take its answer as it comes: whoever takes nothing for longest has to go."""
        self._account()
        self._edge.make_room(at_any_cost=True)

    def _buffered_bytes(self) -> int:
        """What the transport has, and what carries the bytes of TLS."""
        buffered = self._transport.get_write_buffer_size()
        return buffered if self._below is None else buffered + self._below.get_write_buffer_size()

    # Ending.

    def _close(self) -> None:
        """Send what there is, then close."""
        if self._out:
            self._flush()
        self._reader.stop()
        self._is_closing = self._is_blocked = True
        self.deadline = self._edge.write_deadline
        if not self._rest:
            self._transport.close()

    def _refuse(self, response: Response) -> None:
        """Send this as the last answer, and close as soon as the client does."""
        self._reader.stop()
        self._out += (head(response, self._edge.new_id(), self._edge.date, CLOSE), response.body)
        self._flush()
        self._is_closing = self._is_blocked = True
        self.deadline = self._edge.linger_deadline
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _set_deadline(self) -> None:
        edge = self._edge
        if self._is_paused:
            self.deadline = edge.write_deadline
        elif self._is_closing:
            return
        elif self._is_blocked:
            self.deadline = _NEVER
        else:
            self.deadline = edge.read_deadline if self._reader.is_reading else edge.idle_deadline

    def _has_taken_some(self) -> bool:
        before, self._unsent_bytes = self._unsent_bytes, self._buffered_bytes() + self._rest_bytes
        return self._unsent_bytes < before


def _whole_bytes(part: bytes | memoryview) -> int:
    """What a part keeps in memory: all that it is a part of."""
    return len(part) if isinstance(part, bytes) else memoryview(part.obj).nbytes


def _no_memory() -> Response:
    return error_response(
        Unavailable("the broker holds as much as server.memory_bytes_max allows: retry later, or send less")
    )


def _log_access(request: Request, response: Response) -> None:
    access_log.debug(
        "%s %s %d",
        request.method,
        request.path,
        response.status,
        extra={
            "request_id": request.id,
            "client": request.client,
            "key": request.key.id if request.key is not None else None,
            "request_bytes": len(request.body),
            "response_bytes": len(response.body),
        },
    )
