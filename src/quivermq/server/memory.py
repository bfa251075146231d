"""One budget for all that clients make the broker hold: bodies that arrive, answers from when they are made
until they are taken, handshakes.

Each client alone has limits; without this, many of them together had none. Who holds something is known in
the order of who got on last, so that whoever stands still for longest has to make room for the others.
What is counted is what cannot be freed yet: a body or an answer counts as a whole until its last byte is
gone, because memory is not given back by halves.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

# Who has not got on for so long stands still, and may be sent away for somebody who does get on.
STALLED_S = 1.0
# About what a TLS connection takes while it comes to be.
HANDSHAKE_BYTES = 64 * 1024
# Of the memory for all clients, this part of the whole may go to answers in the making: bodies that arrive
# must not be refused because many read.
_PART = 4


class Holder(Protocol):
    """Who makes the broker hold bytes."""

    def give_up(self) -> None:
        """Let go of them, now: somebody else needs the room."""
        ...


class Memory:
    """The budget. Belongs to the event loop's thread."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._held: dict[Holder, int] = {}
        # Ordered by when each got on last.
        self._moved_at: dict[Holder, float] = {}

    def hold(self, holder: Holder, count: int, now: float) -> None:
        """Note what somebody holds now, who got on with it now. This may be more than there is room for."""
        self.held_bytes += count - self._held.pop(holder, 0)
        self._moved_at.pop(holder, None)
        if count:
            self._held[holder] = count
            self._moved_at[holder] = now

    def reserve(self, count: int) -> None:
        """Note bytes that nobody can be sent away for: those of an answer that is being made."""
        self.held_bytes += count

    def make_room(self, now: float, count: int = 0, *, at_any_cost: bool = False) -> bool:
        """Send away who stands still until so many bytes more fit in; whether they do then.

        At any cost, whoever got on least recently has to go, even if that was just now; but for the last
        one, who would never get an answer that is larger than all there is.
        """
        while self.held_bytes + count > self.bytes_max and len(self._moved_at) > at_any_cost:
            oldest, moved_at = next(iter(self._moved_at.items()))
            if not at_any_cost and now - moved_at < STALLED_S:
                break
            self.hold(oldest, 0, now)
            oldest.give_up()
        return self.held_bytes + count <= self.bytes_max


class Making:
    """Who makes answers, and who waits to. Belongs to the event loop's thread.

    Answers take memory before there is anything that a client could take. The threads are faster than the
    event loop that hands their answers over, so without this many large answers would wait in between, and
    nobody would have counted them. An answer begins when there is room for it, and counts here until the
    connection has it. One may always begin, so that all of them get on.
    """

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
