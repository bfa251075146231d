"""What must hold for any bytes whatever: shared by the property tests, the corpus and the fuzzer.

A reader given bytes from an enemy either says InvalidFrame, or has a frame of which everything works:
every column, Arrow's view of it, the way back to bytes. Nothing else may happen, and none of it may
take more memory than the limits allow.
"""

from collections.abc import Sequence
from struct import pack, unpack_from
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from quivermq.errors import InvalidFrame, UnsupportedFrame
from quivermq.frame import (
    HEADER_BYTES,
    MAGIC,
    Codec,
    Column,
    Flag,
    Frame,
    arrow_batch,
    encode,
    first_messages,
)
from quivermq.frame.codec import compress
from quivermq.model.messages import Record

# Small, so that many inputs can be tried; the limits themselves are tested elsewhere.
BYTES_MAX = 64 * 1024

# What the first byte of a fuzzer's input asks for.
AS_IT_IS, WITH_CHECKSUMS, AS_BODY, AS_COMPRESSED_BODY = range(4)


def input_frame(data: bytes) -> bytes:
    """The frame to try that a fuzzer's input stands for: its first byte says how to make it.

    Random bytes hardly ever have a right checksum, so most of the ways repair the checksums and the
    lengths: what is behind these checks must be reached to be tested.
    """
    mode, rest = (data[0] % 4, data[1:]) if data else (AS_IT_IS, b"")
    if mode == AS_IT_IS:
        return rest
    if mode == WITH_CHECKSUMS or len(rest) < HEADER_BYTES:
        return with_checksums(rest)
    return with_lengths(plausible(rest), compressed=mode == AS_COMPRESSED_BODY)


def plausible(data: bytes) -> bytes:
    """The same bytes with a header that passes the checks of its fields, so that the body gets its turn."""
    columns, flags = unpack_from("<HH", data, 74)
    masks = pack("<HH", columns & 127 | Column.VALUE, flags & Flag.TRANSACTIONAL)
    codec_and_version = bytes([data[78] % len(Codec), 1])
    header = bytearray(data[:74] + masks + codec_and_version)
    header[31] &= 0x7F  # the sign of the base offset
    if not columns & Column.TIMESTAMP:
        header[48:56] = header[40:48]
    return bytes(header) + data[HEADER_BYTES:]


def with_checksums(data: bytes) -> bytes:
    """The same bytes with the magic and the checksums that they should have."""
    if len(data) < HEADER_BYTES:
        return data
    (stored_bytes,) = unpack_from("<I", data, 12)
    body_crc = crc32c(data[HEADER_BYTES : HEADER_BYTES + stored_bytes])
    behind = pack("<I", body_crc) + data[12:HEADER_BYTES]
    return MAGIC + pack("<I", crc32c(behind)) + behind + data[HEADER_BYTES:]


def with_lengths(data: bytes, *, compressed: bool = False) -> bytes:
    """The same header in front of the same body, with lengths, padding and checksums that fit.

    With `compressed` the body is what should come out of the codec that the header names.
    """
    body = data[HEADER_BYTES:]
    stored, codec = body, data[78]
    if compressed:
        stored, codec = compress(body, Codec(data[78] % len(Codec)))
    lengths = pack("<II", len(stored), len(body))
    fields = data[20:78] + bytes([codec]) + data[79:HEADER_BYTES]
    return with_checksums(data[:12] + lengths + fields + stored + bytes(-len(stored) % 8))


def check(data: bytes) -> bool:
    """Try the bytes as a frame, and say whether they are one. Fails where something else happens."""
    try:
        frame = Frame.parse(data, frame_bytes_max=BYTES_MAX, raw_bytes_max=BYTES_MAX)
    except InvalidFrame as error:
        assert_is_told_well(error, len(data))
        return False
    assert bytes(frame) == data[: frame.header.frame_bytes]
    view = view_of(data)
    try:
        frame.validate()
    except InvalidFrame as error:
        assert_is_told_well(error, BYTES_MAX)
        return False
    assert view is not None, "Arrow's view was refused, the frame was not"
    assert rows(view) == frame.records()
    assert rows(arrow_batch(frame)) == frame.records(), "another view after validation"
    if frame.is_control:
        check_control(frame)
    else:
        check_messages(frame)
    return True


def assert_is_told_well(error: InvalidFrame, bytes_max: int) -> None:
    assert error.reason
    assert 0 <= error.position <= bytes_max


def view_of(data: bytes) -> Any:
    """Arrow's view of a frame that nobody looked into before; None where it is refused."""
    frame = Frame.parse(data, frame_bytes_max=BYTES_MAX, raw_bytes_max=BYTES_MAX)
    try:
        view = arrow_batch(frame)
    except InvalidFrame:
        return None
    view.validate(full=True)
    return view


def rows(view: Any) -> list[Record]:
    """The rows of Arrow's view as records; times as numbers, because not all fit into a datetime."""
    view.validate(full=True)
    columns = []
    for name, column in zip(view.schema.names, view.columns, strict=True):
        is_time = pa.types.is_timestamp(column.type)
        values = (column.cast(pa.int64()) if is_time else column).to_pylist()
        if name == "headers":
            values = [{pair["key"]: pair["value"] for pair in pairs} for pairs in values]
        columns.append(values)
    return [Record(*row) for row in zip(*columns, strict=True)]


def check_control(frame: Frame) -> None:
    assert frame.values() == []
    assert frame.records() == []
    assert len(frame.raw) == frame.header.raw_bytes
    head = first_messages(frame, 1)
    assert len(Frame.parse(bytes(head))) == 1


def check_messages(frame: Frame) -> None:
    count = len(frame)
    accessors: Sequence[Any] = (
        frame.values,
        frame.keys,
        frame.headers,
        frame.timestamps,
        frame.expires_at,
        frame.dedup_ids,
        frame.origin_ids,
    )
    assert [len(list(each())) for each in accessors] == [count] * len(accessors)
    records = frame.records()
    assert [record.offset for record in records] == [
        *range(frame.header.base_offset, frame.header.end_offset)
    ]
    assert first_messages(frame, 1).records() == records[:1]
    again = encode(
        frame.values(),
        timestamp=list(frame.timestamps()),
        keys=list(frame.keys()),
        headers=list(frame.headers()),
        expires_at=list(frame.expires_at()),
        dedup_ids=list(frame.dedup_ids()),
        origin_ids=list(frame.origin_ids()),
    ).stamped(frame.header.base_offset, 0)
    assert Frame.parse(bytes(again)).records() == records


def is_unsupported(data: bytes) -> bool:
    """Whether the bytes are a whole frame that this release cannot read."""
    try:
        Frame.parse(data, frame_bytes_max=BYTES_MAX, raw_bytes_max=BYTES_MAX).validate()
    except UnsupportedFrame:
        return True
    except InvalidFrame:
        return False
    return False
