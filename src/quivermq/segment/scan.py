"""Walking over the frames of a log file: the one place that decides what is whole and what is not.

Reading, recovery, verification and repair differ only in what they do with what a scan finds.

Where a header is gone, nothing shows where its frame ended, and the bytes are searched for the next one.
They are what people have sent: a message may contain a frame, made to deceive. So a candidate counts by
where the headers lead from it, each following on from the one before in position and offset: to a frame
that the index knows, or else as far through the file as any. What lies in a message leads nowhere but to
the end of that message, unless its sender knew what would be written later.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from sys import maxsize
from typing import NamedTuple, Protocol

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, UnsupportedFrame
from quivermq.frame import HEADER_BYTES, MAGIC, Frame, Header, parse_header, usual_run
from quivermq.frame import Found as Found
from quivermq.frame.header import LAYOUT
from quivermq.segment.index import SparseIndex

CHUNK_BYTES = 1024 * 1024

# How far offsets may jump over lost bytes when nothing else bounds them. A message takes at least 4 bytes
# before compression, and Zstandard makes at most 128 KiB of 4 bytes: 8192 messages a byte. Besides, one of
# the lost frames may have been a gap, which counts up to 2^32 - 1.
_MESSAGES_PER_BYTE = 8192
_GAP_MESSAGES = 2**32

# Checksums of refused candidates cost at most this many times the searched bytes, but for small frames.
_CHECKED_TIMES = 2
_SMALL_BYTES = 16 * 1024


class FrameStart(NamedTuple):
    """Where the frame of an offset begins, or would."""

    position: int
    offset: int


class ScannedFile(Protocol):
    """What can be scanned: a file, or the memory it is mapped to."""

    @property
    def path(self) -> Path: ...

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> Buffer: ...


class ResumeSearch:
    """One search from a damaged place on, through the bytes before `end`.

    `is_whole` reads a frame and checks its body.
    """

    def __init__(self, file: ScannedFile, end: int, is_whole: Callable[[int, Header], bool]) -> None:
        self._file = file
        self._end = end
        self._is_whole = is_whole
        self._leads: dict[int, FrameStart] = {}
        self._budget = 0

    def run(self, start: FrameStart, end_offset: int, goal: FrameStart | None) -> tuple[int, Header] | None:
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

    def _lead(self, position: int, header: Header, limit: int) -> FrameStart:
        """Where the headers lead from here: the end of the last frame that follows on before `limit`."""
        path = []
        at = FrameStart(position + header.frame_bytes, header.end_offset)
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
            at = FrameStart(at.position + link.frame_bytes, link.end_offset)
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


# A look-up reads little; a walk reads more with every step, up to what one read does best.
CHUNK_BYTES_MIN = 16 * 1024
CHUNK_BYTES_MAX = 1024 * 1024


class Damage(NamedTuple):
    """A range of bytes [position, end) that is not the frames it should be.

    `offsets` are the messages that should be there; their end is None when no whole frame follows,
    so that nothing says how many there were.
    """

    position: int
    end: int
    offsets: tuple[int, int | None]
    reason: str

    @property
    def is_last(self) -> bool:
        """Whether nothing whole follows in the file, as after a torn write."""
        return self.offsets[1] is None


class MappedFile(NamedTuple):
    """A file's mapped memory, read without a copy."""

    path: Path
    memory: memoryview

    def size(self) -> int:
        return len(self.memory)

    def read(self, position: int, length: int) -> memoryview:
        return self.memory[position : position + length]


class FrameScan:
    """Reads frames of one file, chunk by chunk, from any position at which a frame begins.

    With `end_offset`, a frame that reaches behind that offset is not whole. With `index`, damage reaches
    no farther than to the next place that it knows.
    """

    def __init__(
        self,
        file: ScannedFile,
        *,
        end: int | None = None,
        end_offset: int | None = None,
        index: SparseIndex | None = None,
        raw_bytes_max: int,
    ) -> None:
        self._file = file
        self._index = index
        self._end_offset = maxsize if end_offset is None else end_offset
        self._raw_bytes_max = raw_bytes_max
        self._end = file.size() if end is None else end
        self._chunk: Buffer = b""
        self._chunk_position = 0
        self._chunk_bytes = CHUNK_BYTES_MIN

    def frames(self, position: int, offset: int, skip_to_offset: int = 0) -> Iterator[Found | Damage]:
        """Everything from `position`, where the frame of `offset` begins, to the end of the file.

        After damage the walk goes on at the next whole frame. Frames that end at or before
        `skip_to_offset` are stepped over by their headers, their bodies unread. Raises
        UnsupportedFrame: what a later release wrote is neither readable nor damaged.
        """
        while position < self._end:
            if not self._holds(position, HEADER_BYTES):
                self._read(position, 0)
            position, offset = yield from usual_run(
                self._chunk,
                self._chunk_position,
                position,
                offset,
                end_offset=self._end_offset,
                skip_to_offset=skip_to_offset,
                raw_bytes_max=self._raw_bytes_max,
            )
            if position >= self._end:
                return
            step: Found | Header | Damage
            try:
                step = self._next(position, offset, skip_to_offset)
            except UnsupportedFrame:
                raise
            except InvalidFrame as error:
                step = self._damage(position, offset, error)
            if isinstance(step, Header):
                position, offset = position + step.frame_bytes, step.end_offset
                continue
            yield step
            if isinstance(step, Damage):
                if step.offsets[1] is None:
                    return
                position, offset = step.end, step.offsets[1]
            else:
                position, offset = step.end, step.frame.header.end_offset

    def begins(self, position: int, offset: int, *, or_unsupported: bool = False) -> bool:
        """Whether the frame of `offset` begins at `position`."""
        try:
            return position == self._end or self._header(position).base_offset == offset
        except UnsupportedFrame:
            return or_unsupported
        except InvalidFrame:
            return False

    def leads(self, position: int, offset: int, end: int, end_offset: int) -> bool:
        """Whether the headers from one frame's beginning on lead exactly to another's."""
        try:
            while position < end:
                header = self._header(position)
                if header.base_offset != offset:
                    return False
                position, offset = position + header.frame_bytes, header.end_offset
        except InvalidFrame:
            return False
        return (position, offset) == (end, end_offset)

    def _next(self, position: int, offset: int, skip_to_offset: int) -> Found | Header:
        header = self._header(position)
        if header.base_offset != offset:
            raise InvalidFrame(
                f"the frame begins with offset {header.base_offset}, not {offset}",
                position=position,
            )
        if header.end_offset > self._end_offset:
            raise InvalidFrame(
                f"the frame ends with offset {header.end_offset}, the segment with {self._end_offset}",
                position=position,
            )
        if header.end_offset <= skip_to_offset:
            return header
        return Found(position, self._frame(position, header))

    def _header(self, position: int) -> Header:
        if not self._holds(position, HEADER_BYTES):
            self._read(position, 0)
        try:
            return parse_header(self._chunk, position - self._chunk_position)
        except UnsupportedFrame as error:
            reason = f"{error.reason}, in {self._file.path}"
            raise UnsupportedFrame(reason, position=position) from None

    def _frame(self, position: int, header: Header) -> Frame:
        if not self._holds(position, header.frame_bytes):
            # Checked before reading, so that a lying length cannot make us take the memory. The
            # settings' limit does not count here: it may be smaller than when the frame came in.
            if position + header.frame_bytes > self._end:
                raise InvalidFrame(
                    f"the frame has {header.frame_bytes} bytes, {self._end - position} are there",
                    position=position,
                )
            self._read(position, header.frame_bytes)
        return Frame.behind(header, self._chunk, position - self._chunk_position, self._raw_bytes_max)

    def _holds(self, position: int, length: int) -> bool:
        start = position - self._chunk_position
        return start >= 0 and start + length <= len(self._chunk)

    def _read(self, position: int, length_min: int) -> None:
        length = min(max(length_min, self._chunk_bytes), self._end - position)
        self._chunk = self._file.read(position, max(length, 0))
        self._chunk_position = position
        self._chunk_bytes = min(self._chunk_bytes * 4, CHUNK_BYTES_MAX)

    def _damage(self, position: int, offset: int, error: InvalidFrame) -> Damage:
        found = self._resume(position, offset)
        if found is None:
            return Damage(position, self._end, (offset, None), error.reason)
        at, header = found
        return Damage(position, at, (offset, header.base_offset), error.reason)

    def _resume(self, position: int, offset: int) -> tuple[int, Header] | None:
        """The next whole frame from a damaged place on.

        A header that is right shows where its frame ends, even when the body is rotten or torn. Only
        when a header is gone are the bytes searched, up to the next place that the index knows.
        """
        while position < self._end:
            header = self._header_if_right(position)
            if header is None:
                goal = self._known_place(position, offset)
                search = ResumeSearch(self._file, self._end, self._is_intact)
                found = search.run(FrameStart(position + 8, offset), self._end_offset, goal)
                if found is not None or goal is None:
                    return found
                position, offset = goal
                continue
            if position + header.frame_bytes > self._end:
                return None
            if self._is_whole(position, header, offset):
                return position, header
            position += header.frame_bytes
            offset = max(offset, header.end_offset)
        return None

    def _known_place(self, position: int, offset: int) -> FrameStart | None:
        """The next frame that the index knows and the file has: the index may tell of another log."""
        if self._index is None:
            return None
        for place in self._index.entries_behind(position):
            if place[0] >= self._end or place[1] > self._end_offset:
                return None
            if place[1] >= offset and self.begins(*place, or_unsupported=True):
                return FrameStart(*place)
        return None

    def _header_if_right(self, position: int) -> Header | None:
        try:
            return self._header(position)
        except UnsupportedFrame:
            # The walk has come here by a length or by the index: a frame that this release cannot read
            # is not part of the damage.
            raise
        except InvalidFrame:
            return None

    def _is_whole(self, position: int, header: Header, offset_min: int) -> bool:
        if not offset_min <= header.base_offset or header.end_offset > self._end_offset:
            return False
        return self._is_intact(position, header)

    def _is_intact(self, position: int, header: Header) -> bool:
        try:
            self._frame(position, header)
        except InvalidFrame:
            return False
        return True
