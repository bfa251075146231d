"""Deliveries as libraries want them: the leases in one small JSON, then frames.

Where a lease holds a whole frame of the log, that frame is sent as it is stored. The layout is in
docs/reference/http.md.
"""

from collections.abc import Iterable, Iterator
from struct import Struct

import msgspec

from quivermq.delivery.delivery import Taken
from quivermq.disk import Buffer
from quivermq.frame import Frame, Record, encode_records
from quivermq.topic.offsets import runs
from quivermq.topic.partition import LANES

_length = Struct("<I")
_encode = msgspec.json.Encoder().encode


class LeaseOut(msgspec.Struct):
    """Messages that were handed out together."""

    topic: str
    partition: int
    priority: str
    attempt: int
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
        cursor, lane, lease, records = batch
        flat = _runs(records)
        frames = list(_frames(batch, flat, now_us))
        for frame in frames:
            buffers += frame.buffers()
        token = f"{lease.token:x}"
        leases.append(
            LeaseOut(
                cursor.topic,
                cursor.partition,
                LANES[lane],
                lease.attempt,
                token,
                lease.deadline,
                flat,
                len(frames),
            )
        )
    head = _encode(LeasesOut(leases))
    padding = bytes(-(_length.size + len(head)) % 8)
    return b"".join([_length.pack(len(head)), head, padding, *buffers])


def _runs(records: list[Record]) -> list[int]:
    """The offsets as ranges: one, unless some are retries."""
    offsets = [record.offset for record in records]
    first, behind = offsets[0], offsets[0] + len(offsets)
    return [first, behind] if offsets == list(range(first, behind)) else runs(offsets)


def _frames(batch: Taken, flat: list[int], now_us: int) -> Iterator[Frame]:
    """Frames that hold these messages, each run of them for itself."""
    records = batch.records if len(flat) == 2 else sorted(batch.records)
    place = 0
    for start, end in zip(flat[::2], flat[1::2], strict=True):
        for count, stored in _pieces(batch, start, end):
            yield stored or encode_records(records[place : place + count], now_us)
            place += count


def _pieces(batch: Taken, start: int, end: int) -> Iterator[tuple[int, Frame | None]]:
    """A run of messages, cut where a whole frame of the log, which was just read, can go as it is."""
    for frame in batch.cursor.lanes[batch.lane].frames:
        base, behind = frame.header.base_offset, frame.header.end_offset
        if base < start or behind > end or frame.is_control:
            continue
        if start < base:
            yield base - start, None
        yield behind - base, frame
        start = behind
    if start < end:
        yield end - start, None
