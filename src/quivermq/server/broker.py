"""What every handler has at hand: the queue, the settings, and threads for what may take a while."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from quivermq.engine import Engine
from quivermq.settings import ServerSettings

P = ParamSpec("P")
T = TypeVar("T")


class Broker:
    """One queue and the event loop that serves it."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.is_draining = False
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="quiver-worker")

    async def run(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that may wait for the disk, in a thread, and return what it returns."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: act(*args, **kwargs))

    def close(self) -> None:
        """Wait for the threads to end. The engine belongs to whoever opened it."""
        self._threads.shutdown()
