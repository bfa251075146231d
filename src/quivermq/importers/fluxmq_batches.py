"""The batches of a FluxMQ segment: a header of 44 bytes, then records, compressed or not."""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import cramjam

from quivermq.disk import Buffer
from quivermq.importers.files import SourceFiles, Unreadable
from quivermq.importers.segments import (
    RecordHead,
    RecordLayout,
    StoredRecord,
    lost_offsets,
    whole_records,
)

_LITERAL, _COPY_1, _COPY_2 = 0, 1, 2
_LENGTH_BITS_MAX = 32

# What a repeat of these lengths has behind it, and what that is added to.
_REPEAT_BYTES = {9: (1, 8), 10: (2, 260), 11: (3, 65_540)}


def _invalid(reason: str, position: int) -> Unreadable:
    """Why bytes are no S2 block, and where in them they go wrong."""
    return Unreadable(f"{reason}, at byte {position} of the block")


def decode_block(block: Buffer, *, bytes_max: int) -> bytes:
    """The bytes that a block stands for. Raises Unreadable, for over `bytes_max` before it begins."""
    length, position = _decoded_length(block)
    if length > bytes_max:
        raise _invalid(f"it would have {length} bytes, the limit is {bytes_max}", 0)
    try:
        # A block without repeats is one of Snappy, which refuses every other: it has no distance of 0.
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return decode_tags(bytes(block), position, length)


def _decoded_length(block: Buffer) -> tuple[int, int]:
    length = 0
    for position, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            if length >> _LENGTH_BITS_MAX:
                break
            return length, position + 1
    raise _invalid("its length is no number of 32 bits", 0)


def decode_tags(source: bytes, position: int, length_max: int) -> bytes:
    """What the tags from `position` on make, which must be exactly `length_max` bytes. Raises Unreadable.

    Each turn of the loop is a tag, and moves its bytes as slices.
    """
    end = len(source)
    made = bytearray()
    here = distance = 0
    while position < end:
        start = position
        tag = source[position]
        kind = tag & 3
        if kind == _LITERAL:
            length = (tag >> 2) + 1
            position += 1
            if length > 60:
                behind = length - 60
                length = int.from_bytes(source[position : position + behind], "little") + 1
                position += behind
            if length > length_max - here or length > end - position:
                raise _invalid(f"a literal has {length} bytes, which do not fit", start)
            made += source[position : position + length]
            position += length
            here += length
            continue
        if kind == _COPY_1:
            position += 2
            length = (tag >> 2 & 7) + 4
            near = (tag & 0xE0) << 3 | (source[start + 1] if position <= end else 0)
            if near:
                distance = near
            elif length > 8:
                behind, base = _REPEAT_BYTES[length]
                length = int.from_bytes(source[position : position + behind], "little") + base
                position += behind
        else:
            length = (tag >> 2) + 1
            position += 3 if kind == _COPY_2 else 5
            distance = int.from_bytes(source[start + 1 : position], "little")
        if position > end:
            raise _invalid("it ends inside of a tag", start)
        if not 0 < distance <= here:
            raise _invalid(f"a copy begins {distance} bytes back, behind {here}", start)
        if length > length_max - here:
            raise _invalid(f"a copy has {length} bytes, which do not fit", start)
        first = here - distance
        if distance >= length:
            made += made[first : first + length]
        else:
            # It runs into what it makes: the same few bytes again and again.
            made += (made[first:] * (length // distance + 1))[:length]
        here += length
    if here != length_max:
        raise _invalid(f"it has {here} bytes, not the {length_max} it says", end)
    return bytes(made)


# Magic, CRC32C of everything behind it, base offset, bytes of records, count, flags, codec, version,
# reserved, base and largest timestamp in milliseconds.
_HEADER = Struct("<IIQIHHBBHqq")
_MAGIC = 0x464C5558
_VERSION = 1
_COMPRESSED = 1
_NONE, _S2, _ZSTD = 0, 1, 2

# FluxMQ makes batches of a megabyte by default. What has more is not read, whatever it says.
_BATCH_BYTES_MAX = 256 * 1024 * 1024

_FIRST_ROOM_BYTES = 1024 * 1024

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# By the two upper bits of a zstd frame's descriptor, how many bytes tell its length, and what is added.
_ZSTD_LENGTHS = {0: (1, 0), 1: (2, 256), 2: (4, 0), 3: (8, 0)}


class FluxRecord(NamedTuple):
    """One message of a batch, as it is stored."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes]]


class FluxBatch(NamedTuple):
    """What the header of a batch says of its records."""

    base_offset: int
    record_count: int
    flags: int
    codec: int
    base_timestamp_ms: int


def _parse(header: bytes) -> RecordHead:
    magic, _crc, base_offset, length, count, _flags, _codec, version, *_ = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise Unreadable("there is no batch where one should begin")
    if version > _VERSION:
        raise Unreadable(f"a batch has the version {version}, known is {_VERSION}")
    return RecordHead(_HEADER.size + length, base_offset, base_offset + count)


LAYOUT = RecordLayout(
    suffix=".seg",
    beside=(".idx", ".tix"),
    noun="batch",
    mark=_MAGIC.to_bytes(4, "little"),
    header_bytes=_HEADER.size,
    byteorder="little",
    parse=_parse,
    size_bytes_max=_BATCH_BYTES_MAX,
    offsets_max=0xFFFF,
)


def batch_of(stored: StoredRecord) -> FluxBatch:
    """The header of a whole batch."""
    _, _, base_offset, _, count, flags, codec, _, _, base_ms, _ = _HEADER.unpack_from(stored.data)
    return FluxBatch(base_offset, count, flags, codec, base_ms)


def records_of(stored: StoredRecord, batch: FluxBatch) -> Iterator[FluxRecord]:
    """The records of a whole batch in order. Raises Unreadable where they end to make sense."""
    return _records(_body(stored, batch), batch)


def _body(stored: StoredRecord, batch: FluxBatch) -> bytes:
    body = stored.data[_HEADER.size :]
    # Not the codec decides: it is named also where compression saved nothing and was left out.
    if not batch.flags & _COMPRESSED or batch.codec == _NONE:
        return body
    if batch.codec == _S2:
        try:
            return decode_block(body, bytes_max=_BATCH_BYTES_MAX)
        except Unreadable as error:
            raise Unreadable(f"the records are no S2 block: {error}") from None
    if batch.codec == _ZSTD:
        return _zstd(body)
    raise Unreadable(f"the records have the codec {batch.codec}, which is not known")


def _zstd(body: bytes) -> bytes:
    length = _zstd_length(body)
    if length is not None and length > _BATCH_BYTES_MAX:
        raise Unreadable(f"the records would have {length} bytes, the limit is {_BATCH_BYTES_MAX}")
    # A frame that does not tell gets more room and more, up to as much as is allowed.
    room_bytes = min(_FIRST_ROOM_BYTES, _BATCH_BYTES_MAX) if length is None else length
    while True:
        room = bytearray(room_bytes)
        try:
            made = cramjam.zstd.decompress_into(body, room)
        except cramjam.DecompressionError as error:
            if length is not None or room_bytes == _BATCH_BYTES_MAX:
                problem = f"the records are no zstd frame of at most {room_bytes} bytes: {error}"
                raise Unreadable(problem) from None
            room_bytes = min(4 * room_bytes, _BATCH_BYTES_MAX)
        else:
            return bytes(memoryview(room)[:made])


def _zstd_length(body: bytes) -> int | None:
    """How long a zstd frame says that its contents are; None when it does not."""
    if body[:4] != _ZSTD_MAGIC or len(body) < 5:
        raise Unreadable("the records are no zstd frame")
    descriptor = body[4]
    is_single = bool(descriptor & 0x20)
    if not descriptor >> 6 and not is_single:
        return None
    length_bytes, base = _ZSTD_LENGTHS[descriptor >> 6]
    # Before it stand a window, unless all is one, and the number of a dictionary.
    start = 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(body[start : start + length_bytes], "little") + base


def _records(body: bytes, batch: FluxBatch) -> Iterator[FluxRecord]:
    position = 0
    for number in range(batch.record_count):
        try:
            delta, position = _unsigned(body, position)
            delta_ms, position = _signed(body, position)
            key, position = _optional(body, position)
            value, position = _optional(body, position)
            headers, position = _headers(body, position)
        except IndexError:
            raise Unreadable(f"record {number} of {batch.record_count} is cut off") from None
        yield FluxRecord(batch.base_offset + delta, batch.base_timestamp_ms + delta_ms, key, value, headers)
    if position != len(body):
        raise Unreadable(
            f"behind the {batch.record_count} records there are {len(body) - position} bytes more"
        )


def _headers(body: bytes, position: int) -> tuple[list[tuple[bytes, bytes]], int]:
    count, position = _unsigned(body, position)
    # Each has two lengths at least.
    if 2 * count > len(body) - position:
        raise IndexError
    headers = []
    for _ in range(count):
        length, position = _unsigned(body, position)
        name, position = _taken(body, position, length)
        length, position = _unsigned(body, position)
        content, position = _taken(body, position, length)
        headers.append((name, content))
    return headers, position


def _optional(body: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _signed(body, position)
    if length < 0:
        return None, position
    return _taken(body, position, length)


def _taken(body: bytes, position: int, length: int) -> tuple[bytes, int]:
    end = position + length
    if end > len(body):
        raise IndexError
    return body[position:end], end


def _signed(body: bytes, position: int) -> tuple[int, int]:
    number, position = _unsigned(body, position)
    return number >> 1 ^ -(number & 1), position


def _unsigned(body: bytes, position: int) -> tuple[int, int]:
    """The varint there and what is behind it. Raises IndexError for one that is cut off or has no end."""
    byte = body[position]
    if byte < 0x80:
        return byte, position + 1
    number, shift = byte & 0x7F, 7
    while shift < 64:
        position += 1
        byte = body[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    raise IndexError


def segments_of(files: SourceFiles, queue: Path) -> Path:
    """Where the segments of a queue are: in a directory of its own, or all there is of it."""
    inside = queue / "segments"
    return inside if files.disk.is_directory(inside) else queue


def records_in(files: SourceFiles, queue: Path) -> Iterator[tuple[StoredRecord, FluxRecord]]:
    """The whole records of a queue in the order of their offsets, each with the batch it is in."""
    for stored, first in whole_records(files, segments_of(files, queue), LAYOUT):
        following = first
        try:
            for record in records_of(stored, batch_of(stored)):
                if record.offset < first:
                    continue  # It was there before.
                if not following <= record.offset < stored.head.end:
                    raise Unreadable(f"it has a record of offset {record.offset}, which is out of order")
                following = record.offset + 1
                yield stored, record
        except Unreadable as error:
            problem = (
                f"a batch cannot be read, but its checksum is right: {error}"
                f"{lost_offsets(following, stored.head.end)}"
            )
            files.report(stored.path, stored.position, problem, length=len(stored.data))
