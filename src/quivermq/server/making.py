"""Answers that are being made: they take memory before there is anything that a client could take.

The threads are faster than the event loop that hands their answers over, so without this many large answers
would wait in between, and nobody would have counted them. An answer begins when there is room for it, and
counts here until the connection has it. One may always begin, so that all of them get on.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from quivermq.server.memory import Memory

# Of the memory for all clients, this part of the whole may go to answers in the making: bodies that arrive
# must not be refused because many read.
_PART = 4


class Making:
    """Who makes answers, and who waits to. Belongs to the event loop's thread."""

    def __init__(self, memory: Memory, count_max: int, now: Callable[[], float]) -> None:
        self._memory = memory
        self._bytes_max = memory.bytes_max // _PART
        self._count_max = count_max
        self._now = now
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.count = 0
        """How many are being made."""
        self.held_bytes = 0

    async def begin(self, count: int) -> "Portion":
        """Wait until there is room for an answer that takes about so many bytes to make."""
        count = min(count, self._bytes_max)
        if not self._waiting and self._has_room(count):
            return self._grant(count)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (count, waiter)
        self._waiting.append(place)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiting.remove(place)
            else:
                Portion(self, count).end()
            raise
        return Portion(self, count)

    def _has_room(self, count: int) -> bool:
        is_alone = not self.count
        if not is_alone and self.count >= self._count_max:
            return False
        if not is_alone and self.held_bytes + count > self._bytes_max:
            return False
        return self._memory.make_room(self._now(), count) or is_alone

    def _grant(self, count: int) -> "Portion":
        self.count += 1
        self.held_bytes += count
        self._memory.reserve(count)
        return Portion(self, count)

    def give_back(self, count: int) -> None:
        """An answer was made, and is somebody's now. For `Portion`."""
        self.count -= 1
        self.held_bytes -= count
        self._memory.reserve(-count)
        while self._waiting and self._has_room(self._waiting[0][0]):
            wanted, waiter = self._waiting.popleft()
            self._grant(wanted)
            waiter.set_result(None)


class Portion:
    """The room that one answer has."""

    __slots__ = ("_count", "_making")

    def __init__(self, making: Making, count: int) -> None:
        self._making: Making | None = making
        self._count = count

    def end(self) -> None:
        """Give it back. Calling twice is allowed."""
        making, self._making = self._making, None
        if making is not None:
            making.give_back(self._count)
