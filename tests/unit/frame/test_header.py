"""The 80 bytes: what is written, what is refused, and that nothing damaged goes unnoticed."""

from itertools import product

import pytest
from vectors import forged, int32s, padded

from quivermq.errors import InvalidFrame, UnsupportedFrame
from quivermq.frame import HEADER_BYTES, Codec, Column, Flag, Header, encode, parse_header
from quivermq.frame.header import padded as rounded_up

RAW = int32s(0, 1) + padded(b"v")

LARGEST = Header(
    body_crc=2**32 - 1,
    stored_bytes=2**32 - 1,
    raw_bytes=2**32 - 1,
    message_count=2**30 - 2,
    base_offset=2**63 - 2**30 + 1,
    append_time=2**63 - 1,
    timestamp_min=2**63 - 1,
    timestamp_max=2**63 - 1,
    producer_id=2**64 - 1,
    base_sequence=2**32 - 1,
    leader_epoch=2**32 - 1,
    producer_epoch=2**16 - 1,
    columns=63,
    flags=0,
    codec=3,
    version=1,
)
SMALLEST = Header(
    body_crc=0,
    stored_bytes=8,
    raw_bytes=8,
    message_count=1,
    base_offset=0,
    append_time=-(2**63),
    timestamp_min=-(2**63),
    timestamp_max=-(2**63),
    producer_id=0,
    base_sequence=0,
    leader_epoch=0,
    producer_epoch=0,
    columns=1,
    flags=0,
    codec=0,
    version=1,
)


@pytest.mark.parametrize("header", [LARGEST, SMALLEST], ids=["largest", "smallest"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("position", [0, 8, 13])
def test_every_field_comes_back(header: Header, kind: type, position: int) -> None:
    assert len(header.pack()) == HEADER_BYTES
    parsed = parse_header(kind(bytes(position) + header.pack()), position)
    assert parsed == header
    assert type(parsed) is Header


def test_stamping_changes_the_fields_of_the_log_and_no_other() -> None:
    stamped = SMALLEST.stamped(5, 6, 7)
    assert stamped == SMALLEST._replace(base_offset=5, append_time=6, leader_epoch=7)
    before, after = SMALLEST.pack(), stamped.pack()
    changed = {at for at in range(HEADER_BYTES) if before[at] != after[at]}
    assert changed <= {*range(4, 8), *range(24, 40), *range(68, 72)}


def test_lengths_follow_from_the_fields() -> None:
    assert [rounded_up(length) for length in (0, 1, 7, 8, 9)] == [0, 8, 8, 8, 16]
    assert SMALLEST._replace(stored_bytes=9).frame_bytes == 96
    assert SMALLEST._replace(stored_bytes=8).frame_bytes == 88
    assert LARGEST.end_offset == 2**63 - 1


def test_every_flipped_bit_is_noticed() -> None:
    data = bytearray(encode([b"v"], timestamp=5).header.pack())
    for at, bit in product(range(HEADER_BYTES), range(8)):
        data[at] ^= 1 << bit
        with pytest.raises(InvalidFrame, match="begins with" if at < 4 else "checksum"):
            parse_header(data)
        data[at] ^= 1 << bit
    assert parse_header(data).message_count == 1


@pytest.mark.parametrize("missing", [1, 40, 80])
def test_a_header_that_is_not_all_there_is_refused(missing: int) -> None:
    data = bytes(16) + SMALLEST.pack()
    with pytest.raises(InvalidFrame, match=f"only {80 - missing} are left") as caught:
        parse_header(data[: len(data) - missing], 16)
    assert caught.value.position == 16


def test_an_error_has_the_position_of_the_header() -> None:
    for data in (b"NOPE" + SMALLEST.pack()[4:], forged(RAW, version=9), forged(RAW, message_count=0)):
        with pytest.raises(InvalidFrame) as caught:
            parse_header(bytes(24) + data, 24)
        assert caught.value.position == 24


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"version": 0}, "version 0, this release knows version 1"),
        ({"version": 2}, "version 2, this release knows version 1"),
        ({"version": 255}, "version 255"),
        ({"codec": 4}, "codec 4 is not known"),
        ({"codec": 255}, "codec 255 is not known"),
        ({"flags": 16}, "flags 0x10"),
        ({"flags": 0x8000}, "flags 0x8000"),
        ({"columns": 1 | 128}, "columns 0x81"),
        ({"columns": 1 | 0x8000}, "columns 0x8001"),
    ],
)
def test_what_a_later_release_may_write_is_unsupported(fields: dict[str, int], reason: str) -> None:
    with pytest.raises(UnsupportedFrame, match=reason):
        parse_header(forged(RAW, **fields))


def test_what_is_unsupported_is_not_judged_by_the_rules_of_this_release() -> None:
    strange = {"message_count": 0, "base_offset": -1, "columns": 0, "timestamp_min": 9, "timestamp_max": 8}
    with pytest.raises(UnsupportedFrame, match="version 2"):
        parse_header(forged(RAW, version=2, **strange))


def test_what_is_damaged_is_not_unsupported() -> None:
    data = bytearray(forged(RAW))
    data[79] = 2
    with pytest.raises(InvalidFrame, match="checksum") as caught:
        parse_header(data)
    assert type(caught.value) is InvalidFrame


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"message_count": 0}, "at least one message"),
        ({"message_count": 0, "flags": Flag.CONTROL, "columns": 0}, "at least one message"),
        ({"base_offset": -1}, "base offset -1 is out of range"),
        ({"base_offset": 2**63 - 1}, "out of range"),
        ({"base_offset": 2**63 - 2, "message_count": 2}, "out of range"),
        ({"timestamp_min": 1, "timestamp_max": 0}, "smallest timestamp is larger"),
        ({"flags": Flag.CONTROL}, "control frame has no columns"),
        ({"columns": 0}, "value column is missing"),
        ({"columns": Column.KEY}, "value column is missing"),
        ({"message_count": 4}, "4 messages cannot fit into 16 bytes"),
        ({"message_count": 2**32 - 1}, "messages cannot fit"),
        ({"raw_bytes": 24}, "as long as the raw one"),
        ({"raw_bytes": 8}, "as long as the raw one"),
        ({"stored_bytes": 15}, "as long as the raw one"),
        ({"flags": Flag.CONTROL, "columns": 0, "raw_bytes": 24}, "as long as the raw one"),
        ({"flags": Flag.ENCRYPTED}, "as long as the raw one"),
        ({"flags": Flag.ENCRYPTED, "stored_bytes": 16 + 27}, "as long as the raw one"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(fields: dict[str, int], reason: str) -> None:
    with pytest.raises(InvalidFrame, match=reason) as caught:
        parse_header(forged(RAW, **fields))
    assert type(caught.value) is InvalidFrame


@pytest.mark.parametrize(
    "fields",
    [
        {"message_count": 3},
        {"base_offset": 2**63 - 2},
        {"timestamp_min": -1, "timestamp_max": 1},
        {"flags": Flag.TRANSACTIONAL},
        {"flags": Flag.CONTROL, "columns": 0, "message_count": 2**32 - 1},
        {"flags": Flag.ENCRYPTED, "stored_bytes": 16 + 28},
        {"codec": Codec.ZSTD, "raw_bytes": 2**32 - 1},
        {"codec": Codec.ZSTD, "stored_bytes": 2**32 - 1},
        {"columns": 63},
    ],
    ids=str,
)
def test_a_header_at_the_limit_of_a_rule_is_accepted(fields: dict[str, int]) -> None:
    header = parse_header(forged(RAW, **fields))
    assert {name: getattr(header, name) for name in fields} == fields


def test_the_masks_are_those_of_the_format() -> None:
    columns = ("VALUE", "KEY", "HEADERS", "TIMESTAMP", "EXPIRES_AT", "DEDUP_ID")
    assert [getattr(Column, name) for name in columns] == [1, 2, 4, 8, 16, 32]
    assert [Flag.ENCRYPTED, Flag.TRANSACTIONAL, Flag.CONTROL] == [1, 2, 4]
    assert [Codec.NONE, Codec.ZSTD, Codec.LZ4, Codec.GZIP] == [0, 1, 2, 3]
