"""Deliveries as libraries want them: the leases in one small JSON, then frames.

Where a lease holds a frame of the log, or most of it, that frame is sent as it is stored, and nobody looked
at a message in it. The layout is in docs/reference/http.md.
"""

from collections.abc import Iterable
from itertools import islice
from operator import sub
from struct import Struct

import msgspec

from quivermq.delivery.delivery import Slice, Taken
from quivermq.disk import Buffer
from quivermq.frame import Frame, Record, encode_records, part_of
from quivermq.topic.offsets import merged, runs
from quivermq.topic.partition import LANES

_length = Struct("<I")
_encode = msgspec.json.Encoder().encode


class LeaseOut(msgspec.Struct):
    """Messages that were handed out together."""

    topic: str
    partition: int
    priority: str
    attempt: int
    is_last_attempt: bool
    token: str
    deadline: int
    runs: list[int]
    frames: int


class LeasesOut(msgspec.Struct):
    """What stands before the frames."""

    leases: list[LeaseOut]


def packed(taken: Iterable[Taken], now_us: int) -> bytes:
    """All messages of a receive as one body."""
    leases: list[LeaseOut] = []
    buffers: list[Buffer] = []
    for batch in taken:
        cursor, lane, lease, records, slices = batch
        if slices:
            flat, frames = merged((start, end) for _, start, end in slices), list(map(_cut, slices))
        else:
            flat, frames = _encoded(records, now_us)
        for frame in frames:
            buffers += frame.buffers()
        leases.append(
            LeaseOut(
                cursor.topic,
                cursor.partition,
                LANES[lane],
                lease.attempt,
                cursor.is_last_attempt(lease),
                f"{lease.token:x}",
                lease.deadline,
                flat,
                len(frames),
            )
        )
    head = _encode(LeasesOut(leases))
    padding = bytes(-(_length.size + len(head)) % 8)
    return b"".join([_length.pack(len(head)), head, padding, *buffers])


def _cut(part: Slice) -> Frame:
    """The frame as it is stored, unless most of it is not delivered now."""
    frame, start, end = part
    is_most = 2 * (end - start) >= len(frame)
    return frame if is_most else part_of(frame, start, end)


def _encoded(records: list[Record], now_us: int) -> tuple[list[int], list[Frame]]:
    """Messages that had to be looked at one by one, as ranges of offsets and a frame for each."""
    ordered = sorted(records)
    flat = runs(record.offset for record in ordered)
    lengths = map(sub, flat[1::2], flat[::2])
    parts = iter(ordered)
    return flat, [encode_records(list(islice(parts, length)), now_us) for length in lengths]
