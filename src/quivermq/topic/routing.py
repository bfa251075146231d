"""Which partition a message goes to: the one of its key, or each in turn.

Of a wide topic, a shard has some of the partitions, and a key may lead to one that it does not have.

The hash is part of the stored format: with another one, the messages of a key would continue in another
partition, and their order would be lost.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import count, repeat
from operator import mod
from struct import Struct

from quivermq.errors import InvalidRequest

_MASK = 0xFFFFFFFF
_WORD_BYTES = 4

# Longer keys are hashed each time: what is remembered must stay small, and a key can be large.
_SHORT_BYTES_MAX = 64
_REMEMBERED_KEYS_MAX = 4096
_UNPACK_WORDS = [Struct(f"<{words}I").unpack_from for words in range(_SHORT_BYTES_MAX // _WORD_BYTES + 1)]


class Router:
    """Spreads the messages of one topic over its partitions. Any thread may ask."""

    __slots__ = ("_turns", "is_wide", "own", "partitions")

    def __init__(self, partitions: int, own: range | None = None) -> None:
        assert partitions > 0, partitions
        self.partitions = partitions
        self.own = range(partitions) if own is None else own
        """Those that messages without a key go to."""
        self.is_wide = len(self.own) != partitions
        # To take the next number is one step of the interpreter: no two threads get the same.
        self._turns = count()

    def partition_of(self, key: bytes | None) -> int:
        """The partition of a key, always the same; without a key, each in turn."""
        if key is None:
            return self.own[next(self._turns) % len(self.own)]
        return murmur3(key) % self.partitions

    def wide_partition_of(self, key: bytes | None, dedup_id: str | None) -> int:
        """The same in a wide topic, where an id leads to a partition as a key does, if there is no key.

        Each shard knows only the ids that came to it.
        """
        return self.partition_of(key if key is not None or dedup_id is None else dedup_id.encode())

    def check_own(self, number: int) -> None:
        """Raise InvalidRequest for a partition that another shard has."""
        if number not in self.own:
            raise InvalidRequest(
                f"partition {number} is on another shard: this one has every {self.own.step}th from"
                f" {self.own.start} on"
            )

    def partitions_of(self, keys: Sequence[bytes]) -> list[int]:
        """The partition of each of some keys."""
        is_short = max(map(len, keys)) <= _SHORT_BYTES_MAX
        return list(map(mod, map(_murmur3_short if is_short else murmur3, keys), repeat(self.partitions)))


def murmur3(key: bytes) -> int:
    """MurmurHash3, the variant of 32 bits for x86, with seed 0, without a sign."""
    if len(key) <= _SHORT_BYTES_MAX:
        return _murmur3_short(key)
    words = len(key) // _WORD_BYTES
    return _mix(key, Struct(f"<{words}I").unpack_from(key))


@lru_cache(_REMEMBERED_KEYS_MAX)
def _murmur3_short(key: bytes) -> int:
    return _mix(key, _UNPACK_WORDS[len(key) // _WORD_BYTES](key))


def _mix(key: bytes, words: tuple[int, ...]) -> int:
    """The hash of a key, whose whole words are given; what is left of it is fewer than four bytes.

    A rotation is not cut to 32 bits before it is multiplied: the bits above cannot reach those below.
    """
    result = 0
    for word in words:
        word = word * 0xCC9E2D51 & _MASK  # noqa: PLW2901  A second name would only cost time.
        result ^= (word << 15 | word >> 17) * 0x1B873593 & _MASK
        result = (result << 13 | result >> 19) * 5 + 0xE6546B64 & _MASK
    length = len(key)
    if length % _WORD_BYTES:
        word = int.from_bytes(key[length & -_WORD_BYTES :], "little") * 0xCC9E2D51 & _MASK
        result ^= (word << 15 | word >> 17) * 0x1B873593 & _MASK
    result ^= length
    result = (result ^ result >> 16) * 0x85EBCA6B & _MASK
    result = (result ^ result >> 13) * 0xC2B2AE35 & _MASK
    return result ^ result >> 16
