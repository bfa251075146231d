"""Messages that compaction has taken out: how a frame says so, and how frames are told from others.

A message that was taken out keeps its offset, its timestamp and its deduplication id, and nothing else: its
value is empty, it has no key and no headers, and it expired at `REMOVED`, a moment that no clock shows. So
whoever never delivers what has expired never delivers it either, whatever release it is. Where nothing
is left of many messages in a row, a control frame takes their offsets.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from crc32c import crc32c

from quivermq.errors import InvalidFrame
from quivermq.frame.encode import COUNT_MAX, encode_control
from quivermq.frame.frame import Frame
from quivermq.frame.header import Column, Header
from quivermq.frame.parts import is_worth_it
from quivermq.model.messages import Record

REMOVED = -(2**63)
"""When a message expired that compaction has taken out."""

_KIND = "compacted"
_BODY = json.dumps({"kind": _KIND}).encode()


def left_of(frame: Frame, records: list[Record]) -> list[Record]:
    """Of records of a frame, those that compaction has not taken out."""
    if not frame.header.columns & Column.EXPIRES_AT:
        return records
    return [record for record in records if record.expires_at != REMOVED]


def each_left(frame: Frame, start: int = 0) -> Iterator[Record]:
    """The messages of a frame from an offset on, one by one, without those that compaction took out."""
    records = frame.each_record(max(0, start - frame.header.base_offset))
    if not frame.header.columns & Column.EXPIRES_AT:
        return records
    return (record for record in records if record.expires_at != REMOVED)


def records_at(frame: Frame, indexes: Sequence[int]) -> list[Record]:
    """The messages at some indexes of a frame."""
    if is_worth_it(len(indexes), len(frame)):
        return [record for index in indexes for record in frame.part(index, index + 1)]
    records = frame.records() if indexes else []
    return [records[index] for index in indexes]


def has_removed(frame: Frame) -> bool:
    """Whether compaction has taken a message out of the frame."""
    if frame.is_control or not frame.header.columns & Column.EXPIRES_AT:
        return False
    return REMOVED in frame.expires_at()


def removed_offsets(frame: Frame) -> list[int]:
    """The offsets of the messages that compaction has taken out of a frame."""
    if not has_removed(frame):
        return []
    return [o for o, time in enumerate(frame.expires_at(), frame.header.base_offset) if time == REMOVED]


def compacted_run(
    offsets: tuple[int, int], *, append_time: int, timestamp: int, leader_epoch: int = 0
) -> list[Frame]:
    """Control frames over offsets [start, end) of which nothing is left: one, if it can count that far."""
    return [
        encode_control(_BODY, count=min(COUNT_MAX, offsets[1] - start), timestamp=timestamp).stamped(
            start, append_time, leader_epoch
        )
        for start in range(*offsets, COUNT_MAX)
    ]


def is_compacted_run(frame: Frame) -> bool:
    """Whether the frame stands where compaction has left nothing."""
    if not frame.is_control:
        return False
    try:
        record = json.loads(bytes(frame.raw).rstrip(b"\0"))
    except (ValueError, RecursionError, InvalidFrame):
        return False
    return isinstance(record, dict) and record.get("kind") == _KIND


def is_bound(header: Header) -> bool:
    """Whether others rely on a frame as it is: its producer may repeat it, or a message in it.

    Such a frame keeps its header and its deduplication ids, even when nothing else is left.
    """
    return bool(header.producer_id or header.columns & Column.DEDUP_ID)


def stamp_of(headers: Iterable[Header]) -> str:
    """What frames in a row are recognised by: any change of any of them makes it another one."""
    size = crc = 0
    for header in headers:
        # A header has the checksum of its body, so the headers stand for everything.
        crc = crc32c(header.pack(), crc)
        size += header.frame_bytes
    return f"{size}-{crc:08x}"
