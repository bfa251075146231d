"""Arrow's view: the same memory, the same messages, and never a frame that lies."""

import gc
import mmap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fuzz.oracle import rows
from unit.frame.test_frame import COMBINATIONS, OPTIONAL, batch
from vectors import forged, int32s, lying_bodies, padded

from quivermq.errors import InvalidFrame, InvalidRequest, UnsupportedFrame
from quivermq.frame import Codec, Column, Flag, Frame, arrow_batch, encode, encode_control
from quivermq.frame.arrow import SCHEMA

NAMES = ["offset", "timestamp", "key", "value", "headers", "expires_at", "dedup_id"]


def address_of(data: Any) -> int:
    return int(pa.py_buffer(data).address)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("columns", COMBINATIONS, ids="+".join)
def test_it_has_the_same_messages(columns: tuple[str, ...], codec: Codec) -> None:
    frame = batch(*columns, codec=codec).stamped(2**40, 5)
    for source in (frame, bytes(frame), bytearray(bytes(frame)), memoryview(bytes(frame))):
        view = arrow_batch(source)
        view.validate(full=True)
        assert view.schema == SCHEMA
        assert rows(view) == frame.records()


def test_its_types_are_those_of_the_page() -> None:
    assert [f"{field.name}: {field.type}" for field in SCHEMA] == [
        "offset: int64",
        "timestamp: timestamp[us, tz=UTC]",
        "key: binary",
        "value: binary",
        "headers: list<item: struct<key: string, value: binary>>",
        "expires_at: timestamp[us, tz=UTC]",
        "dedup_id: string",
        "origin_id: string",
    ]
    assert [field.name for field in SCHEMA if not field.nullable] == ["offset", "timestamp", "value"]


def test_extreme_numbers_come_through() -> None:
    times = [-(2**63), 2**63 - 1, 0]
    frame = encode([b"a", b"b", b"c"], timestamp=times, expires_at=times).stamped(2**63 - 4, 0)
    view = arrow_batch(frame)
    view.validate(full=True)
    assert rows(view) == frame.records()
    assert view["offset"].to_pylist() == [2**63 - 4, 2**63 - 3, 2**63 - 2]


@pytest.mark.parametrize("count", [1, 2, 3, 1023, 1024, 1025])
def test_messages_are_numbered_from_the_base_offset(count: int) -> None:
    view = arrow_batch(encode([b""] * count, timestamp=1).stamped(77, 1), ["offset"])
    assert view["offset"].to_pylist() == list(range(77, 77 + count))


class TestMemory:
    def buffers(self, view: Any) -> list[tuple[int, int]]:
        """Address and size of what the columns of a frame with every column are read from."""
        used = []
        for name in ("timestamp", "key", "value", "expires_at", "dedup_id"):
            used += [b for b in view[name].buffers() if b is not None and b.size]
        headers = view["headers"]
        used.append(headers.buffers()[1])
        used += [b for b in headers.values.field("key").buffers() if b is not None]
        used += [b for b in headers.values.field("value").buffers() if b is not None]
        return [(int(b.address), int(b.size)) for b in used]

    def test_no_byte_is_copied(self) -> None:
        data = bytes(batch(*OPTIONAL))
        start = address_of(data)
        places = self.buffers(arrow_batch(data))
        assert len(places) == 16
        assert all(start + 80 <= at and at + size <= start + len(data) for at, size in places)

    def test_the_values_lie_where_the_frame_has_them(self) -> None:
        data = bytes(encode([b"hello", b"world"], timestamp=1))
        value = arrow_batch(data)["value"].buffers()[2]
        assert value.address == address_of(data) + data.index(b"helloworld")
        assert value.size == 10

    def test_a_frame_of_the_encoder_is_not_copied_either(self) -> None:
        frame = encode([b"hello"], timestamp=1)
        address = arrow_batch(frame)["value"].buffers()[2].address
        start = address_of(frame.stored)
        assert start <= address < start + len(frame.stored)

    @pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4, Codec.GZIP])
    def test_with_a_codec_it_is_one_decompression(self, codec: Codec) -> None:
        frame = Frame.parse(bytes(batch(*OPTIONAL, codec=codec)))
        assert frame.header.codec == codec
        start = address_of(frame.raw)
        places = self.buffers(arrow_batch(frame))
        assert all(start <= at and at + size <= start + len(frame.raw) for at, size in places)

    def test_mapped_memory_is_not_copied(self, tmp_path: Path) -> None:
        frames = [batch(*OPTIONAL).stamped(0, 1), batch().stamped(3, 1)]
        path = tmp_path / "frames"
        path.write_bytes(b"".join(map(bytes, frames)))
        with path.open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        start, position = address_of(mapped), 0
        for frame in frames:
            view = arrow_batch(Frame.parse(mapped, position))
            view.validate(full=True)
            assert rows(view) == frame.records()
            value = view["value"].buffers()[2]
            assert start + position < value.address < start + position + frame.header.frame_bytes
            position += frame.header.frame_bytes

    def test_the_batch_keeps_the_memory_alive(self) -> None:
        data = bytearray(bytes(batch(*OPTIONAL)))
        expected = Frame.parse(bytes(data)).records()
        frame = Frame.parse(data)
        view = arrow_batch(frame)
        with pytest.raises(BufferError):
            data.clear()
        del frame
        gc.collect()
        with pytest.raises(BufferError):
            data.clear()
        assert rows(view) == expected
        del view
        gc.collect()
        data.clear()

    def test_the_batch_outlives_a_closed_file(self, tmp_path: Path) -> None:
        path = tmp_path / "frame"
        path.write_bytes(bytes(batch(*OPTIONAL)))
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        path.unlink()
        view = arrow_batch(memoryview(mapped))
        with pytest.raises(BufferError):
            mapped.close()
        gc.collect()
        assert rows(view) == batch(*OPTIONAL).records()

    @pytest.mark.parametrize("shift", range(1, 8))
    def test_memory_that_is_not_aligned_serves_too(self, shift: int) -> None:
        frame = batch(*OPTIONAL)
        view = arrow_batch(memoryview(bytes(shift) + bytes(frame))[shift:])
        view.validate(full=True)
        assert rows(view) == frame.records()


class TestColumns:
    @pytest.mark.parametrize("name", NAMES)
    def test_one_column(self, name: str) -> None:
        view = arrow_batch(batch(*OPTIONAL), [name])
        assert view.schema.names == [name]
        assert view.column(0).equals(arrow_batch(batch(*OPTIONAL))[name])

    def test_their_order_is_the_callers(self) -> None:
        view = arrow_batch(batch(*OPTIONAL), ["value", "offset", "key"])
        assert view.schema.names == ["value", "offset", "key"]
        assert view.to_pylist()[0] == {"value": b"first", "offset": 0, "key": b"k"}

    def test_no_column_leaves_the_number_of_rows(self) -> None:
        view = arrow_batch(batch(), [])
        assert (view.num_columns, view.num_rows) == (0, 3)
        assert arrow_batch(encode_control(b"", count=9, timestamp=1), []).num_rows == 0

    @pytest.mark.parametrize("columns", [["valeu"], ["value", "topic"], "value", [1], [None]])
    def test_a_column_that_does_not_exist_is_named(self, columns: Any) -> None:
        wrong = next(name for name in columns if name not in NAMES)
        with pytest.raises(InvalidRequest, match=f"no column {wrong!r}: .*offset, timestamp, key, value"):
            arrow_batch(batch(), columns)

    def test_what_is_not_asked_for_is_not_made(self) -> None:
        allocated = pa.total_allocated_bytes()
        view = arrow_batch(encode([b""] * 10_000, timestamp=1), ["value"])
        assert view.num_rows == 10_000
        assert pa.total_allocated_bytes() == allocated


class TestControl:
    def test_it_has_no_rows(self) -> None:
        view = arrow_batch(encode_control(b"{}", count=30, timestamp=5))
        view.validate(full=True)
        assert view.num_rows == 0
        assert view.schema == SCHEMA

    def test_columns_can_be_chosen(self) -> None:
        view = arrow_batch(encode_control(b"{}", count=30, timestamp=5), ["value", "offset"])
        assert (view.num_rows, view.schema.names) == (0, ["value", "offset"])


LIES = dict(lying_bodies())
WRONG_TIMES = LIES.pop("timestamps-differ")


class TestLies:
    def test_times_of_the_header_are_left_to_validate(self) -> None:
        view = arrow_batch(WRONG_TIMES)
        view.validate(full=True)
        assert view.num_rows == 2
        with pytest.raises(InvalidFrame):
            Frame.parse(WRONG_TIMES).validate()

    @pytest.mark.parametrize("name", LIES)
    def test_a_frame_that_lies_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidFrame):
            arrow_batch(LIES[name])

    @pytest.mark.parametrize("name", LIES)
    def test_it_is_refused_after_it_was_looked_into_as_well(self, name: str) -> None:
        frame = Frame.parse(LIES[name])
        with pytest.raises(InvalidFrame):
            frame.validate()
        with pytest.raises(InvalidFrame):
            arrow_batch(frame)

    def test_a_lie_in_a_column_that_is_not_asked_for_counts(self) -> None:
        key = padded(b"\1") + int32s(0, 2**31 - 1)
        frame = Frame.parse(forged(int32s(0, 0) + key, columns=Column.VALUE | Column.KEY))
        with pytest.raises(InvalidFrame, match="runs past the end"):
            arrow_batch(frame, ["value"])

    def test_bytes_are_checked_like_any_from_outside(self) -> None:
        data = bytearray(bytes(batch()))
        data[90] ^= 1
        with pytest.raises(InvalidFrame, match="body's checksum"):
            arrow_batch(data)

    def test_an_encrypted_frame_is_unsupported(self) -> None:
        data = forged(bytes(16), bytes(44), flags=Flag.ENCRYPTED)
        with pytest.raises(UnsupportedFrame):
            arrow_batch(data)
