"""Which items of a stream have been imported. Runs of numbers take little, single ids sixteen bytes."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from quivermq.importers.ranges import RangeSet

# Smaller ones are offsets or counted ids, and follow each other.
_COUNTED_END = 2**64
_ID_BYTES = 16


class Identities:
    """A set of the identities of items."""

    __slots__ = ("_counted", "_others")

    def __init__(self) -> None:
        self._counted = RangeSet()
        self._others: set[int] = set()

    def __contains__(self, identity: int) -> bool:
        return identity in self._counted if identity < _COUNTED_END else identity in self._others

    def __len__(self) -> int:
        return len(self._counted) + len(self._others)

    def add(self, identity: int) -> None:
        if identity < _COUNTED_END:
            self._counted.add(identity)
        else:
            self._others.add(identity)

    def as_json(self) -> dict[str, Any]:
        """The set as the ledger keeps it."""
        packed = b"".join(identity.to_bytes(_ID_BYTES, "little") for identity in sorted(self._others))
        return {
            "ranges": [list(each) for each in self._counted.ranges()],
            "ids": b64encode(packed).decode(),
        }

    def add_json(self, told: Mapping[str, Any]) -> None:
        """Take in what `as_json` gave."""
        for start, end in told["ranges"]:
            self._counted.add_range(start, end)
        packed = b64decode(told["ids"])
        for place in range(0, len(packed), _ID_BYTES):
            self._others.add(int.from_bytes(packed[place : place + _ID_BYTES], "little"))
