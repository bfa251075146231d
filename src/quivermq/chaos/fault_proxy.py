"""Links to a server of this machine that can be cut, and one to an object store that does more than that.

A link accepts connections and hands their bytes on, in one thread for all links. While it is cut, bytes
stay where they are, as on a network that is parted: nobody is told. When it is healed, some connections go
on with what was held back, and others are gone.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from random import Random

_PIECE_BYTES = 1 << 16
_HEAD_BYTES_MAX = 1 << 20
_DELAY_S_MAX = 0.5
# More than any connection takes from being accepted to having a task, or from being closed to its end.
_QUIET_TURNS = 10
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)
_FAILURES = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class FaultLink:
    """From a port of its own to one of a server. Any thread may cut and heal it."""

    def __init__(self, links: "FaultLinks", target: int, rng: Random) -> None:
        self._links = links
        self._target = target
        self._rng = rng
        self._open = asyncio.Event()
        self._open.set()
        self._cuts = 0
        self.port = 0

    def cut(self) -> None:
        """Let nothing through."""
        self._links.call(self._cut)

    def heal(self) -> None:
        """Let everything through again."""
        self._links.call(self._open.set)

    def _cut(self) -> None:
        self._cuts += 1
        self._open.clear()

    async def start(self) -> "FaultLink":
        """Listen. For the thread of the links."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX)
        self.port = server.sockets[0].getsockname()[1]
        self._links.servers.append(server)
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.keep(asyncio.current_task())
        try:
            # Cancelled when all of this ends.
            with suppress(*_FAILURES, asyncio.CancelledError):
                await self._open.wait()
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(self._hand_on(reader, back), self._hand_on(there, writer))
        finally:
            back.close()

    async def _hand_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            with suppress(*_FAILURES):
                while data := await source.read(_PIECE_BYTES):
                    before = self._cuts
                    await self._open.wait()
                    if self._cuts != before and self._rng.random() < 0.5:
                        return
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.close()


class StoreTrouble(Enum):
    """What becomes of a request to the store."""

    DELAY = "delay"
    DOUBLE = "double"
    LATE = "late"
    """Done when whoever asked has given up."""
    LOSE_REQUEST = "lose the request"
    LOSE_ANSWER = "lose the answer"
    REFUSE = "refuse"
    """503, and nothing was done."""
    DENY_IT = "deny it"
    """503 or 409, and it was done."""


class StoreLink(FaultLink):
    """A link for HTTP: each request by itself, some with trouble."""

    trouble = 0.0
    """How many of the requests have some."""
    troubled = 0
    """How many had."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        await self._open.wait()
        answer = await self._answer(_CONNECTION.sub(b"", head[:-2]) + b"Connection: close\r\n\r\n" + body)
        await self._open.wait()
        if answer is not None:
            writer.write(answer)
            await writer.drain()

    async def _answer(self, request: bytes) -> bytes | None:
        if self._rng.random() >= self.trouble:
            return await self._ask(request)
        self.troubled += 1
        match self._rng.choice(list(StoreTrouble)):
            case StoreTrouble.DELAY:
                await asyncio.sleep(self._rng.uniform(0, _DELAY_S_MAX))
            case StoreTrouble.DOUBLE:
                await self._ask(request)
            case StoreTrouble.LATE:
                self._links.later(self._ask_late(request))
                return None
            case StoreTrouble.LOSE_REQUEST:
                return None
            case StoreTrouble.LOSE_ANSWER:
                await self._ask(request)
                return None
            case StoreTrouble.REFUSE:
                return _refusal(b"503 Slow Down")
            case StoreTrouble.DENY_IT:
                await self._ask(request)
                return _refusal(self._rng.choice((b"503 Slow Down", b"409 Conflict")))
        return await self._ask(request)

    async def _ask_late(self, request: bytes) -> None:
        await asyncio.sleep(self._rng.uniform(0, _DELAY_S_MAX))
        with suppress(*_FAILURES):
            await self._ask(request)

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


def _refusal(status: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status


class FaultLinks:
    """All links of a trial. They live in the event loop of one thread."""

    def __init__(self) -> None:
        self.servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def link(self, target: int, rng: Random) -> FaultLink:
        """A new link to a port of this machine."""
        return self._started(FaultLink(self, target, rng))

    def store_link(self, target: int, rng: Random) -> StoreLink:
        """The same, to an object store."""
        link = StoreLink(self, target, rng)
        self._started(link)
        return link

    def _started(self, link: FaultLink) -> FaultLink:
        return asyncio.run_coroutine_threadsafe(link.start(), self._loop).result()

    def call(self, act: Callable[[], None]) -> None:
        """Do something in the thread of the links."""
        self._loop.call_soon_threadsafe(act)

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Let something go on that nobody waits for."""
        self.keep(self._loop.create_task(work))

    def keep(self, task: "asyncio.Task[None] | None") -> None:
        """Hold a task until it is done: when its caller is gone, nobody else does, and it is collected."""
        assert task is not None, "a task calls this, or hands it over"
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        # First nobody more is let in. Who just was has a task some turns of the loop later: were the server
        # closed, or the task cancelled, before that, the socket would stay open.
        for server in self.servers:
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
        await _turns(_QUIET_TURNS)
        for server in self.servers:
            server.close()
        quiet_turns = 0
        while quiet_turns < _QUIET_TURNS:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)
            quiet_turns = 0 if others else quiet_turns + 1


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@contextmanager
def fault_links() -> Iterator[FaultLinks]:
    """FaultLinks until the end of the block."""
    links = FaultLinks()
    try:
        yield links
    finally:
        links.close()
