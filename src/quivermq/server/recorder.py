"""Looks at the queue every few seconds, so that there is a history, and alerts that need one."""

import asyncio

from quivermq.engine.survey import Survey
from quivermq.errors import QuiverError
from quivermq.server import history
from quivermq.server.broker import Broker
from quivermq.server.figures import look
from quivermq.server.history import History

# A look never takes more than this share of the time, however many topics there are.
_SHARE_MAX = 0.02


class Recorder:
    """The history of a broker. Belongs to the event loop's thread, but for `see`."""

    def __init__(self, broker: Broker) -> None:
        self.history = History()
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self._recording: asyncio.Future[None] | None = None
        self._seen_at = float("-inf")
        broker.on_drain.append(self.stop)

    def start(self) -> None:
        """Look from now on, until the broker drains."""
        self._plan(0)

    def stop(self) -> None:
        """Look no more. Calling twice is allowed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def see(self, survey: Survey) -> None:
        """Take a look that somebody else had anyway. From any thread."""
        if self.history.see(survey, self._broker.engine.metrics):
            self._seen_at = self._broker.engine.clock.monotonic()

    def _look(self) -> None:
        """In a thread."""
        self.see(look(self._broker))

    def _plan(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        left_s = history.INTERVAL_S - (self._broker.engine.clock.monotonic() - self._seen_at)
        if left_s > 0:
            self._plan(left_s)
        elif not self._broker.is_draining:
            self._recording = asyncio.ensure_future(self._record())

    async def _record(self) -> None:
        begun = self._broker.engine.clock.monotonic()
        try:
            await self._broker.figure(self._look)
        except QuiverError:
            # The queue cannot tell now: then there is a gap.
            self._seen_at = begun
        finally:
            self._recording = None
        took_s = self._broker.engine.clock.monotonic() - begun
        if not self._broker.is_draining:
            self._plan(max(history.INTERVAL_S, took_s / _SHARE_MAX))
