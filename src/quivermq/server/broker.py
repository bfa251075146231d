"""What every handler has at hand: the queue, the settings, and threads for what may take a while."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from quivermq.engine import Engine
from quivermq.errors import FsyncFailed, QuiverError, StorageFailed
from quivermq.settings import Durability, ServerSettings

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Broker:
    """One queue and the event loop that serves it."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.is_draining = False
        self.on_drain: list[Callable[[], None]] = []
        """Called once the broker is told to stop: whoever makes clients wait lets them go."""
        self.count_connections: Callable[[], int] = lambda: 0
        """How many connections are open: whoever accepts them knows."""
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="quiver-worker")
        self.failure: FsyncFailed | None = None
        """Why some log takes no more messages until the broker is started again."""
        self._told_failure = ""
        self._parts: dict[Any, Any] = {}

    def part(self, kind: Callable[["Broker"], T]) -> T:
        """The one object of this kind that the broker has, made when it is first asked for."""
        part = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind(self)
        return part

    async def run(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that may wait for the disk, in a thread, and return what it returns."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, lambda: act(*args, **kwargs))

    def may_wait_for_disk(self, topic: str, durability: Durability | None = None) -> bool:
        """Whether a change to a topic has to go to a thread: a sync, or a topic that is new or in trouble.

        Everything else is a copy into memory of the operating system, and done sooner than a thread begins.
        """
        try:
            hosted = self.engine.find(topic)
        except StorageFailed:
            return True
        return hosted is None or (durability or hosted.settings.durability) == "fsync"

    def note(self, error: QuiverError) -> None:
        """Take notice of what a client is told: who looks after the disk does not read answers."""
        if isinstance(error, StorageFailed):
            if isinstance(error, FsyncFailed):
                self.failure = error
            # The same file fails every request, and needs one line.
            if self._told_failure != (text := str(error)):
                self._told_failure = text
                logger.error("%s", text, extra={"code": error.code})

    def drain(self) -> None:
        """Let go of everybody who waits, and make nobody wait from now on."""
        self.is_draining = True
        for let_go in self.on_drain:
            let_go()

    def close(self) -> None:
        """Wait for the threads to end. The engine belongs to whoever opened it."""
        self.threads.shutdown()
