"""One frame: a header and the body it describes, as bytes that may be shared but are never changed."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from struct import Struct
from typing import Any

from crc32c import crc32c

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, UnsupportedFrame
from quivermq.frame.codec import decompress
from quivermq.frame.header import HEADER_BYTES, Codec, Column, Flag, Header, parse_header
from quivermq.frame.layout import Binary, Int64, Layout, PairsLayout, layout, presence
from quivermq.frame.parts import CHUNK, fields_of, is_worth_it
from quivermq.model.messages import Record

# What a reader accepts unless it is told otherwise: enough for every default setting.
FRAME_BYTES_MAX = 16 * 1024 * 1024
RAW_BYTES_MAX = 64 * 1024 * 1024


_new_tuple = tuple.__new__
_record = partial(_new_tuple, Record)
_lone_offsets = Struct("<ii").unpack_from


class Frame:
    """A batch of messages. Comes from `encode` or, out of bytes, from `Frame.parse`.

    Reading a column checks the structure of the whole body first, once. All methods raise
    InvalidFrame when the body is not what the header says.
    """

    __slots__ = ("_layout", "_raw", "_raw_bytes_max", "_shallow_layout", "header", "stored")

    def __init__(self, header: Header, stored: Buffer, raw_bytes_max: int = RAW_BYTES_MAX) -> None:
        self.header = header
        self.stored = stored
        self._raw_bytes_max = raw_bytes_max
        self._raw: memoryview | None = None
        self._layout: Layout | None = None

    @classmethod
    def parse(
        cls,
        buffer: Buffer,
        position: int = 0,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        raw_bytes_max: int = RAW_BYTES_MAX,
    ) -> "Frame":
        """The frame at `position`, its header and both checksums checked, its body not yet opened."""
        header = parse_header(buffer, position)
        if header.frame_bytes > frame_bytes_max:
            raise InvalidFrame(
                f"the frame has {header.frame_bytes} bytes, the limit is {frame_bytes_max}",
                position=position,
            )
        if len(buffer) < position + header.frame_bytes:
            raise InvalidFrame(
                f"the frame has {header.frame_bytes} bytes, only {len(buffer) - position} are there",
                position=position,
            )
        return cls.behind(header, buffer, position, raw_bytes_max)

    @classmethod
    def behind(
        cls, header: Header, buffer: Buffer, position: int, raw_bytes_max: int = RAW_BYTES_MAX
    ) -> "Frame":
        """The frame whose header, already parsed, stands at `position` and fits into the buffer."""
        start = position + HEADER_BYTES
        end = start + header.stored_bytes
        stored = memoryview(buffer)[start:end]
        if crc32c(stored) != header.body_crc:
            raise InvalidFrame("the body's checksum does not match", position=start)
        padding = -header.stored_bytes % 8
        if padding and any(buffer[end : end + padding]):
            raise InvalidFrame("padding behind the body is not zero", position=end)
        return cls(header, stored, raw_bytes_max)

    def __len__(self) -> int:
        """How many offsets the frame takes. A control frame takes some but has no messages."""
        return self.header.message_count

    def __bytes__(self) -> bytes:
        return b"".join(self.buffers())

    def buffers(self) -> list[Buffer]:
        """What to write, in order."""
        return self._behind(self.header.pack())

    def buffers_at(self, base_offset: int, append_time: int, leader_epoch: int = 0) -> list[Buffer]:
        """What to write at a place in a log: the body is handed on as it is."""
        return self._behind(self.header.pack_at(base_offset, append_time, leader_epoch))

    def _behind(self, header: bytes) -> list[Buffer]:
        padding = -self.header.stored_bytes % 8
        return [header, self.stored, bytes(padding)] if padding else [header, self.stored]

    def stamped(self, base_offset: int, append_time: int, leader_epoch: int = 0) -> "Frame":
        """The same body behind a header that has its place in a log."""
        header = self.header.stamped(base_offset, append_time, leader_epoch)
        return Frame(header, self.stored, self._raw_bytes_max)

    @property
    def is_control(self) -> bool:
        """Whether the frame speaks to the log instead of carrying messages."""
        return bool(self.header.flags & Flag.CONTROL)

    @property
    def raw(self) -> memoryview:
        """The body before compression: the same memory when there was none."""
        if self._raw is None:
            self._raw = self._opened()
        return self._raw

    def _opened(self) -> memoryview:
        header = self.header
        if header.flags & Flag.ENCRYPTED:
            raise UnsupportedFrame("this release cannot read encrypted frames", position=0)
        if header.raw_bytes > self._raw_bytes_max:
            raise InvalidFrame(
                f"the body has {header.raw_bytes} bytes when decompressed,"
                f" the limit is {self._raw_bytes_max}",
                position=0,
            )
        if header.codec == Codec.NONE:
            return memoryview(self.stored)
        return decompress(self.stored, Codec(header.codec), header.raw_bytes)

    @property
    def layout(self) -> Layout:
        """Where the columns lie, found and checked once."""
        if self._layout is None:
            self._layout = self._laid_out()
        return self._layout

    @property
    def shallow_layout(self) -> Layout:
        """Where the columns lie; what is inside of them is for whoever follows their offsets to check."""
        if self._layout is not None:
            return self._layout
        try:
            return self._shallow_layout
        except AttributeError:
            # Not set from the start: most frames are never asked, and making a frame has to be quick.
            self._shallow_layout: Layout = layout(
                self.raw, self.header.columns, self.header.message_count, deep=False
            )
            return self._shallow_layout

    @property
    def is_laid_out(self) -> bool:
        """Whether the inside of the body has been checked already."""
        return self._layout is not None

    def _laid_out(self) -> Layout:
        assert not self.is_control, "a control frame has no columns; callers ask is_control first"
        header = self.header
        found = layout(self.raw, header.columns, header.message_count)
        if found.timestamp is None:
            check_times(header, None)
        else:
            stamps = found.timestamp.values()
            check_times(header, (min(stamps), max(stamps)))
        return found

    def validate(self) -> None:
        """Check everything inside the body. What enters a log from outside goes through here."""
        _ = self.raw if self.is_control else self.layout

    @property
    def _messages(self) -> int:
        return 0 if self.is_control else self.header.message_count

    def _column(self, name: str) -> Any:
        return None if self.is_control else getattr(self.layout, name)

    def values(self) -> list[bytes]:
        """The values in order. Like every column, empty for a control frame."""
        if (value := self._lone_value()) is not None:
            return [value]
        return [] if self.is_control else self.layout.value.values()

    def _lone_value(self) -> bytes | None:
        """The value of a frame that is one message and nothing but a value; None of any other frame.

        A log that is written one by one is full of these. Nothing is spared them but the detour over a
        layout: where one thing is not right this is None too, and `layout` tells what it is.
        """
        header, stored = self.header, self.stored
        size = header.raw_bytes
        if (
            header.message_count != 1
            or header.columns != Column.VALUE
            or header.flags
            or header.codec
            or header.timestamp_min != header.timestamp_max
            or not 8 <= size == len(stored) <= self._raw_bytes_max
        ):
            return None
        start, length = _lone_offsets(stored)
        end = 8 + length
        if start or length < 0 or (end + 7) & -8 != size or (end < size and any(stored[end:])):
            return None
        return bytes(stored[8:end])

    def keys(self) -> Iterable[bytes | None]:
        """The keys in order."""
        column: Binary | None = self._column("key")
        return repeat(None, self._messages) if column is None else column.nullable_values(len(self))

    def timestamps(self) -> Iterable[int]:
        """The timestamps in order."""
        column: Int64 | None = self._column("timestamp")
        return repeat(self.header.timestamp_min, self._messages) if column is None else column.values()

    def headers(self) -> Iterable[dict[str, bytes]]:
        """The headers of each message; where a name is given twice, the last one counts."""
        pairs: PairsLayout | None = self._column("headers")
        if pairs is None:
            return map(dict, repeat((), self._messages))
        items = zip(pairs.names.texts(), pairs.values.values(), strict=True)
        offsets = pairs.offsets
        each = offsets[1]
        if each and offsets == list(range(0, each * len(offsets), each)):
            # As many names everywhere: so many pairs at a time make a dict.
            return map(dict, zip(*[items] * each, strict=True))
        listed = list(items)
        return map(dict, map(listed.__getitem__, map(slice, offsets, offsets[1:])))

    def expires_at(self) -> Iterable[int | None]:
        """When each message expires, None where it does not."""
        column: Int64 | None = self._column("expires_at")
        if column is None:
            return repeat(None, self._messages)
        present = presence(column.validity, len(self))
        return [v if p else None for v, p in zip(column.values(), present, strict=True)]

    def dedup_ids(self) -> Iterable[str | None]:
        """The producer's deduplication ids, None where it gave none."""
        return self._texts("dedup_id")

    def origin_ids(self) -> Iterable[str | None]:
        """What the messages were called where they were before, None where they were nowhere else."""
        return self._texts("origin_id")

    def _texts(self, name: str) -> Iterable[str | None]:
        column: Binary | None = self._column(name)
        if column is None:
            return repeat(None, self._messages)
        values = column.nullable_values(len(self))
        return [None if value is None else value.decode() for value in values]

    def part(self, first: int, behind: int) -> list[Record]:
        """The messages from one index up to before another, at about the cost of those alone."""
        count = self._messages
        behind = min(behind, count)
        if first >= behind:
            return []
        if not is_worth_it(behind - first, count):
            return self.records()[first:behind]
        return list(map(_record, fields_of(self.header, self.shallow_layout, first, behind)))

    def each_record(self, first: int = 0) -> Iterator[Record]:
        """The messages from an index on, one by one, for whoever may not want them all."""
        for start in range(first, self._messages, CHUNK):
            yield from self.part(start, start + CHUNK)

    def records(self) -> list[Record]:
        """All messages in order, from the frame's first offset on."""
        header = self.header
        base_offset = header.base_offset
        if (value := self._lone_value()) is not None:
            return [
                _new_tuple(Record, (base_offset, header.timestamp_min, None, value, {}, None, None, None))
            ]
        return list(
            map(
                _record,
                zip(
                    range(base_offset, base_offset + self._messages),
                    self.timestamps(),
                    self.keys(),
                    self.values(),
                    self.headers(),
                    self.expires_at(),
                    self.dedup_ids(),
                    self.origin_ids(),
                    strict=True,
                ),
            )
        )


def check_times(header: Header, found: tuple[int, int] | None) -> None:
    """Compare the header with the smallest and the largest timestamp of the column; None without one."""
    if found is None:
        if header.timestamp_min != header.timestamp_max:
            raise InvalidFrame("timestamps differ, but their column is missing", position=0)
    elif found != (header.timestamp_min, header.timestamp_max):
        raise InvalidFrame("the header has other timestamps than the column", position=0)
