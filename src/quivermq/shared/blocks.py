"""What was read by range of stored objects: blocks in memory, as many as a limit allows, those used last.

Who goes through an object from front to back is noticed by the blocks before, which are still here: as
many as lie before one are fetched with it in one request. So a walk takes few requests, a look-up little.
"""

from quivermq.clock import Clock
from quivermq.helping import Condition
from quivermq.shared.checkpoint import Part, checked_part
from quivermq.shared.chunks import ChunkSource
from quivermq.shared.limits import SharedLimits
from quivermq.shared.patience import patiently

_Key = tuple[str, int]


class Blocks:
    """Reads parts of files from a store. Thread-safe; two who want the same block fetch it once.

    A store that does not answer is asked again for as long as a sync would wait. Raises StoreUnreachable
    then, and DamagedChunk where an object is gone or too short. The bytes of a range are as the store gives
    them: only the frames in them say whether they are right.
    """

    def __init__(self, chunks: ChunkSource, limits: SharedLimits, clock: Clock) -> None:
        self._chunks = chunks
        self._limits = limits
        self._clock = clock
        self._block_bytes = limits.block_bytes
        # Half of the memory at most for one walk, or its blocks push out each other.
        ahead = min(limits.read_ahead_bytes, limits.read_cache_bytes // 2)
        self._ahead_max = max(1, ahead // limits.block_bytes)
        self._changed = Condition()
        # The one that was used last comes last.
        self._blocks: dict[_Key, bytes] = {}
        self._held_bytes = 0
        self._fetching: set[_Key] = set()

    @property
    def held_bytes(self) -> int:
        """How much is in memory."""
        return self._held_bytes

    def whole(self, part: Part) -> bytes:
        """All of an object, checked. It is not kept here."""
        data = patiently(lambda: self._chunks.get_file(part.name, part.size), self._limits, self._clock)
        return checked_part(part, data)

    def read(self, part: Part, start: int, end: int) -> bytes:
        """The bytes [start, end) of an object, which has them."""
        size = self._block_bytes
        last = (end - 1) // size
        pieces = []
        for number in range(start // size, last + 1):
            block = self._block(part, number, last - number + 1)
            at = number * size
            pieces.append(block[max(start - at, 0) : end - at])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def forget(self, name: str) -> None:
        """Free the memory of an object that nobody reads any more."""
        with self._changed.lock:
            for key in [key for key in self._blocks if key[0] == name]:
                self._held_bytes -= len(self._blocks.pop(key))

    def _block(self, part: Part, number: int, wanted: int) -> bytes:
        """One block, for somebody who wants so many from there on."""
        key = part.name, number
        keys: list[_Key] = []
        try:
            with self._changed.lock:
                while key in self._fetching:
                    self._changed.wait()
                block = self._blocks.pop(key, None)
                if block is not None:
                    self._blocks[key] = block
                    return block
                keys = self._run(part, number, wanted)
                self._fetching.update(keys)
            return self._fetch(part, keys)
        finally:
            if keys:
                with self._changed.lock:
                    self._fetching.difference_update(keys)
                    self._changed.notify_all()

    def _run(self, part: Part, number: int, wanted: int) -> list[_Key]:
        """The blocks to fetch together: neither here nor on their way."""
        before = number
        while number - before < self._ahead_max and (part.name, before - 1) in self._blocks:
            before -= 1
        count = min(max(wanted, number - before), self._ahead_max)
        end = min(number + count, -(-part.size // self._block_bytes))
        run = [(part.name, number)]
        for each in range(number + 1, end):
            key = part.name, each
            if key in self._blocks or key in self._fetching:
                break
            run.append(key)
        return run

    def _fetch(self, part: Part, keys: list[_Key]) -> bytes:
        """Fetch blocks that follow on each other, and return the first."""
        size = self._block_bytes
        start = keys[0][1] * size
        length = min(len(keys) * size, part.size - start)
        data = patiently(
            lambda: self._chunks.get_file_range(part.name, start, length), self._limits, self._clock
        )
        blocks = [data[at : at + size] for at in range(0, length, size)]
        with self._changed.lock:
            # The first one last: it is used now, the others perhaps.
            for key, block in reversed(list(zip(keys, blocks, strict=True))):
                self._blocks[key] = block
                self._held_bytes += len(block)
            while self._held_bytes > self._limits.read_cache_bytes:
                self._held_bytes -= len(self._blocks.pop(next(iter(self._blocks))))
        return blocks[0]
