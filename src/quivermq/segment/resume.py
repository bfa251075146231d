"""Finding the next frame where a header is gone, so that nothing tells where its frame ended.

The bytes that are searched are what people have sent: a message may contain a frame, made to deceive. So
a place counts by where the headers lead from it, each following on from the one before in position and
offset: to a place that the index knows, or else as far through the file as any. What lies in a message
leads nowhere but to the end of that message, unless its sender knew what would be written later.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, UnsupportedFrame
from quivermq.frame import HEADER_BYTES, MAGIC, Header, parse_header
from quivermq.frame.header import LAYOUT

CHUNK_BYTES = 1024 * 1024

# How far offsets may jump over lost bytes when nothing else bounds them. A message takes at least 4 bytes
# before compression, and Zstandard makes at most 128 KiB of 4 bytes: 8192 messages a byte. Besides, one of
# the lost frames may have been a gap, which counts up to 2^32 - 1.
_MESSAGES_PER_BYTE = 8192
_GAP_MESSAGES = 2**32

# Checksums of refused candidates cost at most this many times the searched bytes, but for small frames.
_CHECKED_TIMES = 2
_SMALL_BYTES = 16 * 1024


class Place(NamedTuple):
    """Where the frame of an offset begins, or would."""

    position: int
    offset: int


class Source(Protocol):
    def read(self, position: int, length: int) -> Buffer: ...


class Search:
    """One search from a damaged place on, through the bytes before `end`.

    `is_whole` reads a frame and checks its body.
    """

    def __init__(self, file: Source, end: int, is_whole: Callable[[int, Header], bool]) -> None:
        self._file = file
        self._end = end
        self._is_whole = is_whole
        self._leads: dict[int, Place] = {}
        self._budget = 0

    def run(self, start: Place, end_offset: int, goal: Place | None) -> tuple[int, Header] | None:
        """The first whole frame from which the headers lead to `goal`; without one, lead farthest."""
        limit = self._end if goal is None else goal.position
        self._budget = _CHECKED_TIMES * (limit - start.position)
        best, best_reach = None, -1
        for position, header in self._candidates(start.position, limit):
            jump_max = _GAP_MESSAGES + _MESSAGES_PER_BYTE * (position - start.position)
            if not 0 <= header.base_offset - start.offset <= jump_max:
                continue
            reach = self._lead(position, header, limit)
            if reach.position <= best_reach or reach.offset > end_offset:
                continue
            if (goal is not None and reach != goal) or not self._check(position, header):
                continue
            if reach.position == limit:
                return position, header
            best, best_reach = (position, header), reach.position
        return best

    def _candidates(self, position: int, limit: int) -> Iterator[tuple[int, Header]]:
        """Each right header whose frame ends before `limit`; of a later release none, for want of proof."""
        while position < limit:
            # Chunks overlap by a header, so that each one lies wholly in one of them.
            chunk = bytes(self._file.read(position, min(CHUNK_BYTES + HEADER_BYTES, limit - position)))
            at = chunk.find(MAGIC)
            while 0 <= at < CHUNK_BYTES:
                header = _right_header(chunk, at) if at % 8 == 0 else None
                if header is not None and position + at + header.frame_bytes <= limit:
                    yield position + at, header
                at = chunk.find(MAGIC, at + 1)
            position += CHUNK_BYTES

    def _lead(self, position: int, header: Header, limit: int) -> Place:
        """Where the headers lead from here: the end of the last frame that follows on before `limit`."""
        path = []
        at = Place(position + header.frame_bytes, header.end_offset)
        while at.position < limit:
            # Only headers are read, and of each chain only the part that is new. One place in sixteen is
            # remembered: chains that have met stay together, and long ones need not fill the memory.
            link = _link(self._file.read(at.position, HEADER_BYTES))
            if link is None or link.base_offset != at.offset or at.position + link.frame_bytes > limit:
                break
            if (known := self._leads.get(at.position)) is not None:
                at = known
                break
            if at.position % 128 == 0:
                path.append(at.position)
            at = Place(at.position + link.frame_bytes, link.end_offset)
        self._leads.update(dict.fromkeys(path, at))
        return at

    def _check(self, position: int, header: Header) -> bool:
        if header.frame_bytes > max(self._budget, _SMALL_BYTES):
            return False
        self._budget -= header.frame_bytes
        return self._is_whole(position, header)


def _right_header(buffer: Buffer, position: int) -> Header | None:
    try:
        return parse_header(buffer, position)
    except InvalidFrame:
        return None


def _link(buffer: Buffer) -> Header | None:
    """A header to follow: of a later release too, as where it leads is the same in every one."""
    try:
        return parse_header(buffer)
    except UnsupportedFrame:
        return Header(*LAYOUT.unpack_from(buffer)[2:])
    except InvalidFrame:
        return None
