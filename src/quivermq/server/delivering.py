"""Deliveries as libraries want them: the leases in one small JSON, then frames.

Where a lease holds a whole frame of the log, that frame is sent as it is stored. The layout is in
docs/reference/http.md.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct

import msgspec

from quivermq.delivery.delivery import Delivery
from quivermq.disk import Buffer
from quivermq.engine import Engine
from quivermq.errors import OffsetOutOfRange
from quivermq.frame import Frame, Record, encode_records
from quivermq.log import Log
from quivermq.topic.offsets import runs

# For fewer messages than this, making a frame takes no longer than looking for the one in the log.
_STORED_MESSAGES_MIN = 64

_length = Struct("<I")
_encode = msgspec.json.Encoder().encode
_lease_of = attrgetter("_lease")


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


def packed_deliveries(deliveries: Sequence[Delivery], engine: Engine) -> bytes:
    """All deliveries of a receive as one body."""
    leases: list[LeaseOut] = []
    buffers: list[Buffer] = []
    for lease, group in groupby(deliveries, key=_lease_of):
        held = list(group)
        first = held[0]
        log = engine.hosted(first.topic).topic.partitions[first.partition].log(first._lane)
        records = [delivery._record for delivery in held]
        frames = list(_frames(log, records, engine.clock.now_us()))
        for frame in frames:
            buffers += frame.buffers()
        leases.append(
            LeaseOut(
                first.topic,
                first.partition,
                first.priority,
                lease.attempt,
                f"{lease.token:x}",
                lease.deadline,
                runs(record.offset for record in records),
                len(frames),
            )
        )
    head = _encode(LeasesOut(leases))
    padding = bytes(-(_length.size + len(head)) % 8)
    return b"".join([_length.pack(len(head)), head, padding, *buffers])


def _frames(log: Log, records: list[Record], now_us: int) -> Iterator[Frame]:
    """Frames that hold these messages, each run of them for itself."""
    place = 0
    flat = runs(record.offset for record in records)
    by_offset = sorted(records) if len(flat) > 2 or records[0].offset != flat[0] else records
    for start, end in zip(flat[::2], flat[1::2], strict=True):
        left = end - start
        for frame in _stored_frames(log, start, end) if left >= _STORED_MESSAGES_MIN else ():
            yield frame
            place, left = place + len(frame), left - len(frame)
        if left:
            yield encode_records(by_offset[place : place + left], now_us)
            place += left


def _stored_frames(log: Log, start: int, end: int) -> Iterator[Frame]:
    """The frames of the log from an offset on, as long as they hold nothing else."""
    try:
        for frame in log.frames(start):
            if frame.header.base_offset < start or frame.header.end_offset > end or frame.is_control:
                return
            yield frame
            if frame.header.end_offset == end:
                return
    except OffsetOutOfRange:
        # Retention was faster; the messages are still in hand.
        return
