"""What an earlier attempt of the same task has written already, and is not to be written again.

Attempts may have the same rows in another order and cut into other frames, so rows are compared one by one,
as often as they occur. A task that is not repeated never comes here.
"""

from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from quivermq.frame import Frame
from quivermq.frame.arrow import arrow_batch
from quivermq.frame.rewriting import left_rows
from quivermq.spark.sink.routing import lanes_of
from quivermq.topic.partition import lane_number

_READ = ("key", "value", "headers", "timestamp", "expires_at")
_DIGEST_BYTES = 16
_Pairs = list[dict[str, Any]] | None


class RowPlace(NamedTuple):
    """What a row may ask for; None where it takes what it gets."""

    partition: int | None
    timestamp: int | None
    expires_at: int | None

    def takes(self, other: "RowPlace") -> bool:
        """Whether a message there is what the row wants."""
        return all(mine is None or mine == its for mine, its in zip(self, other, strict=True))


class WrittenRows:
    """The messages of one producer in one topic."""

    def __init__(self) -> None:
        self._places: defaultdict[bytes, list[RowPlace]] = defaultdict(list)
        self.count = 0
        self.removed = 0
        """How many more there were, which compaction has taken out: of these nothing is known."""

    def add(self, frame: Frame, partition: int, priority: str) -> None:
        """Take in the messages of a frame."""
        batch = left_rows(arrow_batch(frame, _READ))
        self.removed += len(frame) - len(batch)
        lane = lane_number(priority)
        keys, values, headers = (batch.column(name).to_pylist() for name in ("key", "value", "headers"))
        moments = (batch.column(name).view(pa.int64()).to_pylist() for name in ("timestamp", "expires_at"))
        for key, value, pairs, timestamp, expires_at in zip(keys, values, headers, *moments, strict=True):
            place = RowPlace(partition, timestamp, expires_at)
            self._places[_digest(lane, key, value, pairs)].append(place)
        self.count += len(batch)

    def subtract(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not here; each message stands for one row, and is gone then.

        A row that does not care where it goes may take the message of one that does and is the same
        otherwise: that one is then written, and the outcome is what both wanted.
        """
        is_new = [not self._take(*row) for row in zip(_digests(rows), _wishes(rows), strict=True)]
        return rows if all(is_new) else rows.filter(pa.array(is_new))

    def _take(self, digest: bytes, wish: RowPlace) -> bool:
        places = self._places.get(digest, [])
        for index, place in enumerate(places):
            if wish.takes(place):
                del places[index]
                self.count -= 1
                return True
        return False


def _digests(rows: pa.RecordBatch) -> Iterable[bytes]:
    count = len(rows)
    keys, values, headers = (_list(rows, name, count) for name in ("key", "value", "headers"))
    return map(_digest, np.asarray(lanes_of(rows)).tolist(), keys, values, headers)


def _wishes(rows: pa.RecordBatch) -> Iterable[RowPlace]:
    count = len(rows)
    partitions = _list(rows, "partition", count)
    return map(RowPlace, partitions, _moments(rows, "timestamp"), _moments(rows, "expires_at"))


def _list(rows: pa.RecordBatch, name: str, count: int) -> list[Any]:
    return rows.column(name).to_pylist() if name in rows.schema.names else [None] * count


def _moments(rows: pa.RecordBatch, name: str) -> list[int | None]:
    if name not in rows.schema.names:
        return [None] * len(rows)
    found: list[int | None] = rows.column(name).view(pa.int64()).to_pylist()
    return found


def _digest(lane: int, key: bytes | None, value: bytes, headers: _Pairs) -> bytes:
    """Of everything by which two messages of a topic differ but for times and partitions."""
    pairs = [part for pair in headers or () for part in (pair["key"].encode(), pair["value"])]
    parts = [value, *([] if key is None else [key]), *pairs]
    # The lengths come first, so that no two lists of parts read alike.
    lengths = f"{lane} {key is not None} {' '.join(str(len(part)) for part in parts)}\n"
    hashed = blake2b(lengths.encode(), digest_size=_DIGEST_BYTES)
    for part in parts:
        hashed.update(part)
    return hashed.digest()
