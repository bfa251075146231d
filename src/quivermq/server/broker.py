"""What every handler has at hand: the queue, the settings, and threads for what may take a while."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from quivermq.engine import Engine
from quivermq.errors import DiskFull, FsyncFailed, InvalidSettings, QuiverError, StorageFailed
from quivermq.model.names import Pattern, is_pattern
from quivermq.server.access import ApiKey
from quivermq.server.http import Hiding, Request
from quivermq.server.memory import Making, Memory, Portion
from quivermq.settings import Durability, ServerSettings

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


# So many threads compute figures at a time: each keeps others from the interpreter. But one that opens
# thousands of topics for it must not keep all other figures waiting.
_FIGURING_MAX = 2
# So long after the disk refused something, it counts as full.
_FULL_S = 5.0


class Broker:
    """One queue and the event loop that serves it."""

    def __init__(self, engine: Engine, settings: ServerSettings, *, memory: Memory | None = None) -> None:
        self.engine = engine
        self.settings = settings
        self.hiding = Hiding(engine.path)
        self.is_draining = False
        self.on_drain: list[Callable[[], None]] = []
        """Called once the broker is told to stop: whoever makes clients wait lets them go."""
        self.is_welcome: Callable[[ApiKey | None], bool] = lambda _: True
        """Whether who came with this key, or without one, may stay: whoever knows the keys says so."""
        self.look_at_keys: Callable[[], bool] = lambda: False
        """Read the keys again; whether they have changed."""
        self.on_keys: list[Callable[[], None]] = []
        """Called when keys have changed: whoever makes clients wait sends those away that may not stay."""
        self.count_connections: Callable[[], int] = lambda: 0
        """How many connections are open: whoever accepts them knows."""
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="quiver-worker")
        # On a disk that has its truth elsewhere, who asked is told when that has come so far.
        self._commits = engine.commits
        self._figuring = asyncio.Semaphore(_FIGURING_MAX)
        self.memory = memory or Memory(settings.memory_bytes_max)
        # As many again as there are threads, so that none of them waits for the event loop.
        self.making = Making(self.memory, 2 * settings.threads, engine.clock.monotonic)
        self.failure: FsyncFailed | None = None
        """Why some log takes no more messages until the broker is started again."""
        self._logged_failure = ""
        self._full_until = 0.0
        self._parts: dict[Any, Any] = {}

    def part(self, kind: Callable[["Broker"], T]) -> T:
        """The one object of this kind that the broker has, made when it is first asked for."""
        part = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind(self)
        return part

    async def run(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that may wait for the disk, in a thread, and return what it returns."""
        return await self._run(lambda: self._together(lambda: act(*args, **kwargs)))

    async def _run(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, act)

    def _together(self, act: Callable[[], T]) -> T:
        return act() if self._commits is None else self._commits.together(act)

    def in_order(self, act: Callable[[], T]) -> T:
        """Do something that no client is told of: nobody waits for it to be durable."""
        return act() if self._commits is None else self._commits.ordered(act)

    async def figure(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for what computes rather than waits: few do so at a time, whoever else asks."""
        async with self._figuring:
            return await self._run(lambda: self.in_order(lambda: act(*args, **kwargs)))

    async def make(
        self,
        request: Request,
        count: int,
        act: Callable[[], T],
        undo: Callable[["Future[T]"], None] | None = None,
    ) -> T:
        """Call something that makes an answer, in a thread, once there is room for about so many bytes.

        The request keeps the room until its answer was handed over. When nobody waits any more, the room is
        given back after the thread is done, and `undo` is called with what it has done.
        """
        if request.portion is not None:
            request.portion.end()
        portion = request.portion = await self.making.begin(count)
        loop = asyncio.get_running_loop()
        work = self.threads.submit(self._together, act)
        try:
            return await asyncio.shield(asyncio.wrap_future(work))
        except asyncio.CancelledError:
            request.portion = None
            work.cancel()
            if undo is not None:
                work.add_done_callback(undo)
            work.add_done_callback(lambda _: _end_soon(loop, portion))
            raise

    def may_wait_for_disk(self, topic: str, durability: Durability | None = None) -> bool:
        """Whether a change to a topic has to go to a thread: a sync, or a topic that is new or in trouble.

        Everything else is a copy into memory of the operating system, and done sooner than a thread begins.
        """
        if self._commits is not None:
            return True
        try:
            found = self.engine.catalog.find(topic)
        except StorageFailed:
            return True
        return found is None or (durability or found.settings.durability) == "fsync"

    def has_to_open(self, topic: str) -> bool:
        """Whether a topic, or one that a pattern matches, is there and not open."""
        if not is_pattern(topic):
            return self.engine.catalog.table.is_closed(topic)
        return self.engine.catalog.table.has_closed

    def open_topic(self, topic: str) -> None:
        """Open a topic, or those that a pattern matches. For a thread.

        One that cannot be opened is told to whoever asks for it. Raises DiskRefused, InvalidName.
        """
        if is_pattern(topic):
            self.engine.catalog.find_matching(Pattern(topic))
        else:
            with suppress(StorageFailed, InvalidSettings):
                self.engine.catalog.find(topic)

    def note(self, error: QuiverError) -> None:
        """Take notice of what a client is told: who looks after the disk does not read answers."""
        if isinstance(error, DiskFull) and error.free_bytes_min is None:
            # The figures of the file system may say otherwise, as where there is a quota.
            self._full_until = self.engine.clock.monotonic() + _FULL_S
        if isinstance(error, StorageFailed):
            if isinstance(error, FsyncFailed):
                self.failure = error
            # The same file fails every request, and needs one line.
            if self._logged_failure != (text := str(error)):
                self._logged_failure = text
                logger.error("%s", text, extra={"code": error.code})

    def check_keys(self) -> bool:
        """Look whether keys have changed, and if so, send away who may not stay."""
        if not self.look_at_keys():
            return False
        for look in self.on_keys:
            look()
        return True

    @property
    def was_full(self) -> bool:
        """Whether the disk refused something just now."""
        return self.engine.clock.monotonic() < self._full_until

    def drain(self) -> None:
        """Let go of everybody who waits, and make nobody wait from now on."""
        self.is_draining = True
        for let_go in self.on_drain:
            let_go()

    def close(self) -> None:
        """Wait for the threads to end. The engine belongs to whoever opened it."""
        self.threads.shutdown()


def _end_soon(loop: asyncio.AbstractEventLoop, portion: Portion) -> None:
    # The loop may have ended before its threads; then nobody counts any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(portion.end)
