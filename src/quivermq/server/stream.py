"""An answer without an end, such as server-sent events: what its writer sees of the connection."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from quivermq.server.http import Stream

logger = logging.getLogger(__name__)


class LiveStream:
    """Implements `http.Stream` on a transport. The connection says when it is paused and when it ends."""

    __slots__ = ("_calls", "_task", "_transport", "is_closed", "is_paused")

    def __init__(self, transport: asyncio.Transport, *, is_paused: bool) -> None:
        self._transport = transport
        self._calls: list[Callable[[], None]] = []
        self._task: asyncio.Future[None] | None = None
        self.is_paused = is_paused
        self.is_closed = False

    def begin(self, start: Callable[[Stream], Awaitable[None] | None]) -> None:
        """Let the writer begin."""
        try:
            going = start(self)
        except Exception:
            logger.exception("a stream could not begin")
            self.close()
            return
        if going is not None:
            self._task = asyncio.ensure_future(going)
            self._task.add_done_callback(self._on_done)

    def write(self, data: bytes) -> bool:
        if self.is_paused or self.is_closed:
            return False
        self._transport.write(data)
        return True

    def on_close(self, call: Callable[[], None]) -> None:
        if self.is_closed:
            call()
        else:
            self._calls.append(call)

    def close(self) -> None:
        self._transport.close()

    def end(self) -> None:
        """Tell the writer that nobody reads any more. For the connection; calling twice is allowed."""
        self.is_closed = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, task: "asyncio.Future[None]") -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a stream failed", exc_info=error)
        self.close()
