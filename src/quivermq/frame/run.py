"""Frames that lie one behind the other in memory: the one loop that every frame of a log is read by."""

from collections.abc import Generator
from typing import NamedTuple

from crc32c import crc32c

from quivermq.disk import Buffer
from quivermq.frame.frame import Frame
from quivermq.frame.header import HEADER_BYTES, LAYOUT, MAGIC, OFFSET_MAX, VERSION, Codec, Column, Header


class Found(NamedTuple):
    """A whole frame and where it begins."""

    position: int
    frame: Frame

    @property
    def end(self) -> int:
        return self.position + self.frame.header.frame_bytes


# All known columns, in any choice that has the values.
_COLUMNS = frozenset(range(Column.VALUE, 2 * Column.ORIGIN_ID, 2))
_CODEC = int(Codec.NONE)

_fields = LAYOUT.unpack_from
_new_tuple = tuple.__new__


def usual_run(
    buffer: Buffer,
    buffer_position: int,
    position: int,
    offset: int,
    *,
    end_offset: int,
    skip_to_offset: int,
    raw_bytes_max: int,
) -> Generator[Found, None, tuple[int, int]]:
    """Take frames from `position` on, for as long as each is whole, as most are, and follows on.

    Positions count from the beginning of the file, in which the buffer begins at `buffer_position`.
    Frames that end at or before `skip_to_offset` are stepped over by their headers. Returns where the run
    ends: there, the frame ends behind the buffer or behind `end_offset`, or is compressed, or special, or
    damaged. `parse_header` and `Frame.behind` know which; nothing passes here that they would refuse.
    """
    view = memoryview(buffer)
    size = len(view)
    start = position - buffer_position
    end_offset = min(end_offset, OFFSET_MAX)
    while 0 <= start <= size - HEADER_BYTES:
        fields = _fields(view, start)
        magic, header_crc, body_crc, stored_bytes, raw_bytes, count, base_offset, _, first, last = fields[
            :10
        ]
        columns, flags, codec, version = fields[14:]
        body = start + HEADER_BYTES
        end = body + stored_bytes
        if not (
            magic == MAGIC
            and crc32c(view[start + 8 : body]) == header_crc
            and version == VERSION
            and codec == _CODEC
            and flags == 0
            and columns in _COLUMNS
            and stored_bytes == raw_bytes >= 4 * (count + 1) > 4
            and stored_bytes % 8 == 0
            and 0 <= base_offset == offset <= end_offset - count
            and first <= last
        ):
            break
        if offset + count > skip_to_offset:
            stored = view[body:end]
            if end > size or crc32c(stored) != body_crc:
                break
            frame = Frame(_new_tuple(Header, fields[2:]), stored, raw_bytes_max)
            yield _new_tuple(Found, (buffer_position + start, frame))
        start = end
        offset += count
    return buffer_position + start, offset
