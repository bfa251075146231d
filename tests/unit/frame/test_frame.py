"""A frame as a whole: out of bytes and back, with any columns, at any place in a log."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from vectors import forged, int32s, padded

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, UnsupportedFrame
from quivermq.frame import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    Codec,
    Column,
    Flag,
    Frame,
    Producer,
    encode,
    encode_control,
)
from quivermq.model.messages import Record

TIME = 1_700_000_000_000_000
OPTIONAL = ("keys", "headers", "timestamp", "expires_at", "dedup_ids", "origin_ids")
FILLED: dict[str, list[Any]] = {
    "keys": [b"k", None, b""],
    "headers": [{"n": b"v", "m": b""}, {}, {"größe": b"\xff"}],
    "timestamp": [TIME + 2, TIME - 1, TIME],
    "expires_at": [None, TIME + 5, 0],
    "dedup_ids": [None, "", "№ 3"],
    "origin_ids": ["a-1-0", None, "b-1-1"],
}
EMPTY: dict[str, list[Any]] = {
    "keys": [None] * 3,
    "headers": [{}] * 3,
    "timestamp": [TIME] * 3,
    "expires_at": [None] * 3,
    "dedup_ids": [None] * 3,
    "origin_ids": [None] * 3,
}
VALUES = [b"first", b"", b"third" * 50]
COMBINATIONS = [
    tuple(name for name, chosen in zip(OPTIONAL, choice, strict=True) if chosen)
    for choice in product([False, True], repeat=len(OPTIONAL))
]


def batch(*columns: str, codec: Codec = Codec.NONE) -> Frame:
    given: dict[str, Any] = {"timestamp": TIME} | {name: FILLED[name] for name in columns}
    return encode(VALUES, **given, codec=codec)


def records_of(columns: tuple[str, ...], base_offset: int) -> list[Record]:
    source = EMPTY | {name: FILLED[name] for name in columns}
    rows = zip(source["timestamp"], source["keys"], VALUES, source["headers"], strict=True)
    rest = zip(source["expires_at"], source["dedup_ids"], source["origin_ids"], strict=True)
    both = zip(rows, rest, strict=True)
    return [Record(base_offset + i, *row, *more) for i, (row, more) in enumerate(both)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("columns", COMBINATIONS, ids="+".join)
def test_every_combination_of_columns_comes_back(columns: tuple[str, ...], codec: Codec) -> None:
    frame = batch(*columns, codec=codec).stamped(500, TIME + 9)
    parsed = Frame.parse(bytes(frame))
    assert parsed.header == frame.header
    assert parsed.header.codec == codec
    assert parsed.records() == frame.records() == records_of(columns, 500)
    mask = parsed.header.columns
    assert {n for bit, n in enumerate(OPTIONAL, start=1) if mask >> bit & 1} == set(columns)


def test_each_accessor_gives_its_column() -> None:
    frame = Frame.parse(bytes(batch(*OPTIONAL)))
    assert frame.values() == VALUES
    assert list(frame.keys()) == FILLED["keys"]
    assert list(frame.headers()) == FILLED["headers"]
    assert list(frame.timestamps()) == FILLED["timestamp"]
    assert list(frame.expires_at()) == FILLED["expires_at"]
    assert list(frame.dedup_ids()) == FILLED["dedup_ids"]
    assert list(frame.origin_ids()) == FILLED["origin_ids"]
    assert len(frame) == 3
    assert not frame.is_control


def test_headers_of_messages_without_any_are_not_shared() -> None:
    first, second = encode([b"a", b"b"], timestamp=1).headers()
    first["added"] = b"by the reader"
    assert second == {}


def test_of_a_name_that_is_given_twice_the_last_counts() -> None:
    pairs = int32s(0, 2) + int32s(0, 1, 2) + padded(b"nn") + int32s(0, 1, 2) + padded(b"12")
    frame = Frame.parse(forged(int32s(0, 1) + padded(b"v") + pairs, columns=Column.VALUE | Column.HEADERS))
    assert list(frame.headers()) == [{"n": b"2"}]


class TestOneValue:
    """A frame of one message that is just a value is read a shorter way, which must lead to the same."""

    @pytest.mark.parametrize("length", [*range(17), 100])
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_it_is_read_as_any_other(self, length: int, kind: Callable[[bytes], Buffer]) -> None:
        value = b"\xff" * length
        encoded = encode([value], timestamp=TIME).stamped(7, TIME)
        parsed = Frame.parse(kind(bytes(encoded)))
        for frame in (encoded, parsed):
            assert frame.values() == frame.layout.value.values() == [value]
            assert frame.records() == [Record(7, TIME, None, value, {}, None, None)]
            assert all(type(given) is bytes for given in frame.values())

    @pytest.mark.parametrize(
        ("body", "fields"),
        [
            (int32s(0, -1) + bytes(8), {}),
            (int32s(1, 8) + bytes(8), {}),
            (int32s(-1, 8) + bytes(8), {}),
            (int32s(0, 9) + bytes(8), {}),
            (int32s(0, 2**31 - 1) + bytes(8), {}),
            (int32s(0, 0) + bytes(8), {}),
            (int32s(0, 8) + bytes(16), {}),
            (int32s(0, 3) + b"abc\0\0\0\0\1", {}),
            (int32s(0, 3) + b"abc\0\0", {}),
            (int32s(0, 5) + b"abcde", {}),
            (int32s(0, 8) + bytes(8), {"timestamp_min": 0}),
        ],
    )
    def test_one_that_is_wrong_is_refused(self, body: bytes, fields: dict[str, int]) -> None:
        for read in (Frame.values, Frame.records):
            with pytest.raises(InvalidFrame):
                read(Frame.parse(forged(body, **fields)))

    def test_the_limit_counts(self) -> None:
        data = bytes(encode([b"x" * 100], timestamp=TIME))
        assert Frame.parse(data, raw_bytes_max=112).values() == [b"x" * 100]
        for read in (Frame.values, Frame.records):
            with pytest.raises(InvalidFrame, match="the limit is 111"):
                read(Frame.parse(data, raw_bytes_max=111))


class TestBytes:
    @pytest.mark.parametrize("codec", Codec)
    def test_what_is_written_is_header_body_and_padding(self, codec: Codec) -> None:
        frame = batch(codec=codec)
        buffers = frame.buffers()
        assert buffers[0] == frame.header.pack()
        assert buffers[1] is frame.stored
        assert b"".join(buffers) == bytes(frame)
        assert len(bytes(frame)) == frame.header.frame_bytes
        assert len(bytes(frame)) % 8 == 0
        padding = bytes(frame)[HEADER_BYTES + frame.header.stored_bytes :]
        assert padding == bytes(-frame.header.stored_bytes % 8)

    def test_a_compressed_body_needs_padding(self) -> None:
        lengths = {batch(codec=codec).header.stored_bytes % 8 for codec in Codec}
        assert len(lengths) > 1, "no codec here gives an odd length: the test above says nothing"

    def test_stamping_shares_the_body(self) -> None:
        frame = batch(*OPTIONAL)
        stamped = frame.stamped(7, 8, 9)
        assert stamped.stored is frame.stored
        header = stamped.header
        assert (header.base_offset, header.append_time, header.leader_epoch) == (7, 8, 9)
        assert header == frame.header._replace(base_offset=7, append_time=8, leader_epoch=9)
        assert bytes(stamped)[HEADER_BYTES:] == bytes(frame)[HEADER_BYTES:]
        assert frame.header.base_offset == 0

    def test_stamping_while_writing_gives_the_same_bytes(self) -> None:
        frame = batch(*OPTIONAL, codec=Codec.GZIP)
        buffers = frame.buffers_at(7, 8, 9)
        assert b"".join(buffers) == bytes(frame.stamped(7, 8, 9))
        assert buffers[1] is frame.stored

    def test_a_parsed_body_is_the_memory_it_came_in(self) -> None:
        data = bytearray(bytes(8) + bytes(batch()))
        frame = Frame.parse(data, 8)
        assert isinstance(frame.stored, memoryview)
        assert frame.stored.obj is data
        assert frame.raw.obj is data
        assert frame.layout.value.data.obj is data


class TestParse:
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    @pytest.mark.parametrize("position", [0, 8, 13])
    def test_a_frame_lies_anywhere_in_any_buffer(
        self, kind: Callable[[bytes], Buffer], position: int
    ) -> None:
        data = b"x" * position + bytes(batch(*OPTIONAL)) + b"what follows"
        frame = Frame.parse(kind(data), position)
        assert frame.records() == records_of(OPTIONAL, 0)

    def test_frames_lie_back_to_back(self) -> None:
        frames = [batch().stamped(0, 1), batch("keys").stamped(3, 2), batch("headers").stamped(6, 3)]
        data, position, read = b"".join(map(bytes, frames)), 0, []
        while position < len(data):
            read.append(Frame.parse(data, position))
            position += read[-1].header.frame_bytes
        assert [frame.records() for frame in read] == [frame.records() for frame in frames]

    def test_every_truncation_is_noticed(self) -> None:
        data = bytes(batch(*OPTIONAL))
        for length in range(len(data)):
            with pytest.raises(InvalidFrame, match=r"are left|are there") as caught:
                Frame.parse(data[:length])
            assert caught.value.position == 0

    def test_every_flipped_bit_of_the_body_is_noticed(self) -> None:
        data = bytearray(bytes(batch("keys", codec=Codec.GZIP)))
        end = HEADER_BYTES + Frame.parse(data).header.stored_bytes
        assert end < len(data), "there is no padding to look at"
        for at, bit in product(range(HEADER_BYTES, len(data)), range(8)):
            data[at] ^= 1 << bit
            reason = "body's checksum" if at < end else "padding behind the body"
            with pytest.raises(InvalidFrame, match=reason) as caught:
                Frame.parse(data)
            assert caught.value.position == (HEADER_BYTES if at < end else end)
            data[at] ^= 1 << bit
        assert len(Frame.parse(data).records()) == 3

    def test_the_size_of_a_frame_is_limited(self) -> None:
        data = bytes(batch())
        assert Frame.parse(data, frame_bytes_max=len(data)).values() == VALUES
        with pytest.raises(InvalidFrame, match=f"has {len(data)} bytes, the limit is {len(data) - 1}"):
            Frame.parse(data, frame_bytes_max=len(data) - 1)

    def test_the_limit_comes_before_the_length(self) -> None:
        header = forged(bytes(8), stored_bytes=2**32 - 8, raw_bytes=2**32 - 8)[:HEADER_BYTES]
        with pytest.raises(InvalidFrame, match=f"the limit is {FRAME_BYTES_MAX}"):
            Frame.parse(header)

    def test_what_is_wrong_with_the_body_shows_when_it_is_opened(self) -> None:
        frame = Frame.parse(forged(int32s(0, 9) + padded(b"v")))
        for method in ("validate", "values", "keys", "headers", "timestamps", "expires_at", "dedup_ids"):
            with pytest.raises(InvalidFrame, match="runs past the end"):
                getattr(frame, method)()
        with pytest.raises(InvalidFrame, match="runs past the end"):
            frame.records()


class TestControl:
    FRAME = encode_control(b'{"kind": "gap"}', count=30, timestamp=TIME).stamped(40, TIME + 1)

    def test_it_takes_offsets_but_has_no_messages(self) -> None:
        frame = Frame.parse(bytes(self.FRAME))
        frame.validate()
        assert frame.is_control
        assert len(frame) == 30
        assert (frame.header.base_offset, frame.header.end_offset) == (40, 70)
        assert frame.values() == []
        assert frame.records() == []
        assert bytes(frame.raw) == b'{"kind": "gap"}\0'

    @pytest.mark.parametrize("length", [0, 1, 8, 9])
    def test_any_record_is_accepted(self, length: int) -> None:
        frame = Frame.parse(forged(b"x" * length, columns=0, flags=Flag.CONTROL))
        frame.validate()
        assert bytes(frame.raw) == b"x" * length

    def test_a_record_that_does_not_decompress_is_not_valid(self) -> None:
        frame = Frame.parse(forged(bytes(16), columns=0, flags=Flag.CONTROL, codec=Codec.ZSTD))
        with pytest.raises(InvalidFrame, match="does not decompress"):
            frame.validate()


class TestEncrypted:
    RAW = int32s(0, 1) + padded(b"v")
    DATA = forged(RAW, b"n" * 12 + RAW + b"t" * 16, flags=Flag.ENCRYPTED, base_offset=5)

    def test_it_can_be_moved_but_not_opened(self) -> None:
        frame = Frame.parse(self.DATA)
        assert len(frame) == 1
        assert bytes(frame) == self.DATA
        assert frame.stamped(6, 7).header.base_offset == 6
        for method in ("validate", "values", "records"):
            with pytest.raises(UnsupportedFrame, match="cannot read encrypted frames"):
                getattr(frame, method)()

    def test_it_may_be_compressed_as_well(self) -> None:
        data = forged(bytes(800), bytes(60), flags=Flag.ENCRYPTED, codec=Codec.ZSTD)
        frame = Frame.parse(data)
        with pytest.raises(UnsupportedFrame):
            frame.validate()


def test_the_producer_comes_back() -> None:
    frame = encode([b"v"], timestamp=1, producer=Producer(producer_id=7, epoch=8, base_sequence=9))
    header = Frame.parse(bytes(frame.stamped(1, 2, 3))).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
