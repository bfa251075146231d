"""Walking over the frames of a log file: the one place that decides what is whole and what is not.

Reading, recovery, verification and repair differ only in what they do with what a scan finds.
"""

from collections.abc import Iterator
from pathlib import Path
from sys import maxsize
from typing import NamedTuple, Protocol

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, UnsupportedFrame
from quivermq.frame import HEADER_BYTES, Frame, Header, parse_header, usual_run
from quivermq.frame import Found as Found
from quivermq.segment.index import Index
from quivermq.segment.resume import Place, Search

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


class Readable(Protocol):
    """What can be scanned: a file, or the memory it is mapped to."""

    @property
    def path(self) -> Path: ...

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> Buffer: ...


class Mapped(NamedTuple):
    """A file's mapped memory, read without a copy."""

    path: Path
    memory: memoryview

    def size(self) -> int:
        return len(self.memory)

    def read(self, position: int, length: int) -> memoryview:
        return self.memory[position : position + length]


class Scan:
    """Reads frames of one file, chunk by chunk, from any position at which a frame begins.

    With `end_offset`, a frame that reaches behind that offset is not whole. With `index`, damage reaches
    no farther than to the next place that it knows.
    """

    def __init__(
        self,
        file: Readable,
        *,
        end: int | None = None,
        end_offset: int | None = None,
        index: Index | None = None,
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

        A header that is right tells where its frame ends, even when the body is rotten or torn. Only
        when a header is gone are the bytes searched, up to the next place that the index knows.
        """
        while position < self._end:
            header = self._header_if_right(position)
            if header is None:
                goal = self._known_place(position, offset)
                search = Search(self._file, self._end, self._is_intact)
                found = search.run(Place(position + 8, offset), self._end_offset, goal)
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

    def _known_place(self, position: int, offset: int) -> Place | None:
        """The next frame that the index knows and the file has: the index may tell of another log."""
        if self._index is None:
            return None
        for place in self._index.places_behind(position):
            if place[0] >= self._end or place[1] > self._end_offset:
                return None
            if place[1] >= offset and self.begins(*place, or_unsupported=True):
                return Place(*place)
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
