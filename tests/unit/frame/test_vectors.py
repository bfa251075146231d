"""The stored format against its test vectors, read by our reader and by one that knows only the page."""

import json
import re
from pathlib import Path
from struct import calcsize
from typing import Any

import pytest
import vectors
from unit.frame import independent_reader
from unit.frame.independent_reader import Invalid, Unsupported

from quivermq import errors
from quivermq.frame import Codec, Column, Frame, Header, Producer, encode, encode_control
from quivermq.frame.header import LAYOUT
from quivermq.segment.index import SparseIndex

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/format.md").read_text(encoding="utf-8")
CONTENT = json.loads((ROOT / "tests/fixtures/format/vectors.json").read_text(encoding="utf-8"))
FRAMES, INVALID, INDEXES = CONTENT["frames"], CONTENT["invalid_frames"], CONTENT["indexes"]

Vector = dict[str, Any]


def by_name(vector: Vector) -> str:
    return str(vector["name"])


def as_messages(frame: Frame) -> list[Vector]:
    """The messages as a vector has them, but for headers: of a repeated name only the last is left."""
    messages = []
    for record in frame.records():
        message = record._asdict()
        message["value"] = record.value.hex()
        message["key"] = None if record.key is None else record.key.hex()
        message["headers"] = {name: content.hex() for name, content in record.headers.items()}
        messages.append(message)
    return messages


def expected_messages(vector: Vector) -> list[Vector]:
    return [{**message, "headers": dict(message["headers"])} for message in vector["messages"]]


def encoded(vector: Vector) -> Frame:
    """The frame that our writer makes of a vector's messages."""
    header = vector["header"]
    if "control" in vector:
        record, time = vector["control"].encode(), header["timestamp_min"]
        return encode_control(record, count=header["message_count"], timestamp=time)
    messages = vector["messages"]
    times = [message["timestamp"] for message in messages]
    headers = [[(n, bytes.fromhex(v)) for n, v in message["headers"]] for message in messages]
    return encode(
        [bytes.fromhex(message["value"]) for message in messages],
        timestamp=times if header["columns"] & Column.TIMESTAMP else header["timestamp_min"],
        keys=[None if message["key"] is None else bytes.fromhex(message["key"]) for message in messages],
        headers=[dict(pairs) for pairs in headers],
        expires_at=[message["expires_at"] for message in messages],
        dedup_ids=[message["dedup_id"] for message in messages],
        origin_ids=[message["origin_id"] for message in messages],
        producer=Producer(header["producer_id"], header["producer_epoch"], header["base_sequence"]),
    )


def test_there_are_vectors_of_every_kind() -> None:
    assert len(FRAMES) >= 14
    assert {frame["header"]["codec"] for frame in FRAMES} == set(Codec)
    columns = [frame["header"]["columns"] for frame in FRAMES]
    assert {bit for bit in range(7) if any(mask >> bit & 1 for mask in columns)} == set(range(7))
    assert {vector["error"] for vector in INVALID} == {"InvalidFrame", "UnsupportedFrame"}
    assert {vector["entries"] is None for vector in INDEXES} == {True, False}


@pytest.mark.parametrize("vector", FRAMES, ids=by_name)
def test_a_frame_is_read_as_stated(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    frame = Frame.parse(data)
    frame.validate()
    header = dict(vector["header"])
    assert header.pop("magic").encode() == data[:4]
    assert header.pop("header_crc") == int.from_bytes(data[4:8], "little")
    assert frame.header._asdict() == header
    assert frame.header.frame_bytes == len(data)
    if "control" in vector:
        assert bytes(frame.raw).rstrip(b"\0").decode() == vector["control"]
        assert frame.records() == []
    else:
        assert as_messages(frame) == expected_messages(vector)


@pytest.mark.parametrize("vector", [v for v in FRAMES if v["canonical"]], ids=by_name)
def test_a_canonical_frame_is_written_as_stated(vector: Vector) -> None:
    header = vector["header"]
    frame = encoded(vector).stamped(header["base_offset"], header["append_time"], header["leader_epoch"])
    assert bytes(frame).hex() == vector["hex"]


@pytest.mark.parametrize("vector", FRAMES, ids=by_name)
def test_a_frame_that_was_read_is_written_back_unchanged(vector: Vector) -> None:
    assert bytes(Frame.parse(bytes.fromhex(vector["hex"]))).hex() == vector["hex"]


@pytest.mark.parametrize("vector", INVALID, ids=by_name)
def test_an_invalid_frame_is_refused_as_stated(vector: Vector) -> None:
    with pytest.raises(errors.InvalidFrame) as caught:
        Frame.parse(bytes.fromhex(vector["hex"])).validate()
    assert type(caught.value).__name__ == vector["error"]
    assert caught.value.reason.startswith(vector["reason"])
    assert caught.value.position == vector["position"]


@pytest.mark.parametrize("vector", INDEXES, ids=by_name)
def test_an_index_is_read_as_stated(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    index = SparseIndex.load(data, vector["base_offset"])
    if vector["entries"] is None:
        assert index is None
        return
    assert index is not None
    rows = list(zip(index.offsets, index.timestamps, index.positions, strict=True))
    assert rows == [(e["offset"], e["timestamp"], e["position"]) for e in vector["entries"]]
    assert data.startswith(index.encode())


class TestIndependentReader:
    @pytest.mark.parametrize("vector", [v for v in FRAMES if v["name"] != "zstd"], ids=by_name)
    def test_it_reads_the_same(self, vector: Vector) -> None:
        header, content = independent_reader.read_frame(bytes.fromhex(vector["hex"]))
        assert header == vector["header"]
        assert content == vector.get("control", vector.get("messages"))

    @pytest.mark.parametrize("vector", INVALID, ids=by_name)
    def test_it_refuses_the_same(self, vector: Vector) -> None:
        if vector["name"] in {"decompresses-to-more", "decompresses-to-less", "not-compressed"}:
            expected: type[Exception] = NotImplementedError  # It has no zstd to find that out with.
        else:
            expected = Unsupported if vector["error"] == "UnsupportedFrame" else Invalid
        with pytest.raises(expected):
            independent_reader.read_frame(bytes.fromhex(vector["hex"]))

    @pytest.mark.parametrize("vector", INDEXES, ids=by_name)
    def test_it_reads_the_same_index(self, vector: Vector) -> None:
        data = bytes.fromhex(vector["hex"])
        assert independent_reader.read_index(data, vector["base_offset"]) == vector["entries"]

    def test_its_checksum_is_the_one_of_the_page(self) -> None:
        assert independent_reader.crc32c(b"123456789") == 0xE3069283
        assert independent_reader.crc32c(b"") == 0
        assert "`0xE3069283`" in PAGE

    def test_it_imports_nothing_of_ours(self) -> None:
        source = Path(independent_reader.__file__).read_text()
        imports = re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE)
        assert imports == ["gzip", "struct", "typing"]


class TestPage:
    def test_the_tool_writes_what_is_there(self) -> None:
        content = vectors.vectors()
        assert vectors.as_json(content) == vectors.VECTORS.read_text(encoding="utf-8")
        assert vectors.page_with_vectors(PAGE, content) == PAGE

    def test_its_vectors_are_those_of_the_file(self) -> None:
        blocks = re.findall(r"<!-- vector: (\S+) -->\n```text\n(.*?)```\n", PAGE, re.DOTALL)
        assert len(blocks) >= 3
        known = {vector["name"]: vector["hex"] for vector in (*FRAMES, *INDEXES)}
        for name, block in blocks:
            data = b""
            for line in block.splitlines():
                match = re.fullmatch(r" *(\d+)  ((?:[0-9a-f]{2} ?)+?) +\S.*", line)
                assert match is not None, line
                assert int(match[1]) == len(data)
                data += bytes.fromhex(match[2])
            assert data.hex() == known[name]

    def test_its_table_of_the_header_is_the_layout(self) -> None:
        rows = re.findall(r"^\| (\d+) \| (\d+) \| (\S+) \| `(\w+)` \|", PAGE, re.MULTILINE)
        assert [name for _, _, _, name in rows] == ["magic", "header_crc", *Header._fields]
        kinds = {"bytes": "4s", "`u8`": "B", "`u16`": "H", "`u32`": "I", "`u64`": "Q", "`i64`": "q"}
        assert "<" + "".join(kinds[kind] for _, _, kind, _ in rows) == LAYOUT.format.replace(" ", "")
        end = 0
        for position, size, kind, _ in rows:
            assert int(position) == end
            assert int(size) == calcsize("<" + kinds[kind])
            end += int(size)
        assert end == LAYOUT.size == 80

    @pytest.mark.parametrize("codec", Codec)
    def test_its_table_of_codecs_has_each(self, codec: Codec) -> None:
        assert f"| {codec.value} | {codec.name.lower()} |" in PAGE

    @pytest.mark.parametrize("name", ["value", "key", "headers", "timestamp", "expires_at", "dedup_id"])
    def test_its_table_of_columns_has_each(self, name: str) -> None:
        value = getattr(Column, name.upper())
        assert f"| {value.bit_length() - 1} | {value} | `{name}` |" in PAGE
