"""Records of GoQueue: every flag, every priority, and flags that no checksum covers."""

import gzip
import zlib
from pathlib import Path

import pytest
from support import go_files as go
from support.sources import DISK, offsets, only, problems

from quivermq.errors import InvalidRequest
from quivermq.importers import goqueue_records
from quivermq.importers.goqueue import open_source
from quivermq.importers.model import ImportSource, Item


@pytest.fixture
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def read(path: Path, *records: bytes) -> tuple[list[Item], ImportSource]:
    """The items of a broker's topic that has these records in its only segment."""
    go.write_segment(path / "logs/t/0", 0, records)
    (path / "transactions").mkdir(exist_ok=True)
    source = open_source(path, DISK)
    [topic] = source.topics
    return list(topic.items()), source


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def test_every_shape_of_a_record(source_path: Path) -> None:
    headers = {"a": b"1", "": b"", "ž": b"\xff", "n" * 300: b"v" * 300}
    items, source = read(
        source_path,
        go.record(0, b"plain"),
        go.record(1, b"", b"key"),
        go.record(2, bytes(range(256)) * 9000, b"k" * 65_535, headers),
        go.record(3, b"GQ\x01 is the mark", b"GQ\x01"),
        go.record(4, b"early", timestamp_ns=-1),
    )
    assert [(item.key, item.value) for item in items] == [
        (None, b"plain"),
        (b"key", b""),
        (b"k" * 65_535, bytes(range(256)) * 9000),
        (b"GQ\x01", b"GQ\x01 is the mark"),
        (None, b"early"),
    ]
    assert items[2].headers == headers
    assert [item.timestamp_us for item in items] == [go.BASE_NS // 1000] * 4 + [-1]
    assert source.findings.count == 0


@pytest.mark.parametrize(
    ("priority", "level", "own"),
    [
        (0, "high", "critical"),
        (1, "high", None),
        (2, "normal", None),
        (3, "low", None),
        (4, "low", "background"),
    ],
)
def test_priorities(source_path: Path, priority: int, level: str, own: str | None) -> None:
    [item], source = read(source_path, go.record(0, priority=priority))
    assert (item.level, item.priority) == (level, own)
    assert source.findings.count == 0


def test_a_priority_that_there_is_not_is_normal_and_told_once(source_path: Path) -> None:
    items, source = read(source_path, go.record(0, priority=9), go.record(1, priority=9))
    assert [(item.level, item.priority) for item in items] == [("normal", None)] * 2
    assert problems(source.findings, is_damage=False) == [
        "a record has the priority 9; it is taken as normal"
    ]


@pytest.mark.parametrize("packed", [gzip.compress(b"x" * 500), deflated(b"x" * 500)])
def test_a_compressed_value_is_opened(source_path: Path, packed: bytes) -> None:
    [item, other], source = read(
        source_path,
        go.record(0, packed, b"k", {"h": b"1"}, flags=go.COMPRESSED | go.HEADERS),
        go.record(1, packed),
    )
    assert (item.value, item.key, item.headers) == (b"x" * 500, b"k", {"h": b"1"})
    assert other.value == packed
    assert source.findings.count == 0


@pytest.mark.parametrize(
    "value", [b"", b"not compressed at all", gzip.compress(b"x" * 99)[:-3], gzip.compress(b"x") + b"more"]
)
def test_what_is_said_to_be_compressed_and_is_not_is_kept_as_it_is_and_told(
    source_path: Path, value: bytes
) -> None:
    records = [go.record(0), go.record(1, value, flags=go.COMPRESSED)]
    items, source = read(source_path, *records)
    assert items[1].value == value
    finding = only(source.findings)
    assert finding.problem.startswith("offset 1 is imported, but its flags say that it is compressed, and ")
    assert (finding.position, finding.length, finding.is_damage) == (len(records[0]), len(records[1]), True)


def test_a_bomb_is_not_opened(source_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goqueue_records, "_VALUE_BYTES_MAX", 10_000)
    packed = [gzip.compress(bytes(size)) for size in (10_000, 1_000_000)]
    items, source = read(
        source_path, *(go.record(index, each, flags=go.COMPRESSED) for index, each in enumerate(packed))
    )
    assert items[0].value == bytes(10_000)
    assert items[1].value == packed[1]
    assert "more than 10000 bytes when decompressed" in only(source.findings).problem


def test_a_tombstone_is_an_item_without_a_value(source_path: Path) -> None:
    [item], source = read(source_path, go.record(0, b"", b"k", flags=go.TOMBSTONE))
    assert (item.key, item.value) == (b"k", b"")
    assert source.findings.count == 0


def test_ends_of_transactions_are_no_items(source_path: Path) -> None:
    items, source = read(
        source_path,
        go.record(0),
        go.control(1, "txn-a", is_commit=True),
        go.record(2),
        go.control(3, "txn-b", is_commit=False),
        go.control(4, "", is_commit=True),
        go.record(5),
    )
    assert offsets(items) == [0, 2, 5]
    assert source.findings.count == 0


@pytest.mark.parametrize(
    ("flags", "value", "problem"),
    [
        (go.HEADERS, b"v", "whether it has headers, its flags and its lengths tell differently"),
        (go.CONTROL, b"v", "its flags say that it ends a transaction, and its value does not"),
        (
            go.CONTROL | go.COMMIT,
            bytes(11),
            "its flags say that it ends a transaction, and its value does not",
        ),
        (go.COMMIT, bytes(12) + b"x", "its flags say that it ends a transaction, and its value does not"),
        (go.TOMBSTONE, b"v", "its flags say that it is a tombstone, and it has a value"),
    ],
)
def test_flags_that_do_not_go_with_the_rest_are_told_and_the_message_is_kept(
    source_path: Path, flags: int, value: bytes, problem: str
) -> None:
    [item], source = read(source_path, go.record(0, value, flags=flags))
    assert item.value == value
    assert only(source.findings).problem == f"offset 0 is imported, but {problem}"
    assert source.findings.damages == 1


def test_headers_without_their_flag_are_kept_and_told(source_path: Path) -> None:
    [item], source = read(source_path, go.record(0, b"v", b"", {"h": b"1"}, flags=0))
    assert item.headers == {"h": b"1"}
    assert source.findings.damages == 1


def test_an_end_of_a_transaction_that_lost_one_of_its_flags_is_still_one(source_path: Path) -> None:
    whole = bytearray(go.control(1, "txn", is_commit=True))
    whole[3] &= ~go.CONTROL
    items, _ = read(source_path, go.record(0), bytes(whole), go.record(2))
    assert offsets(items) == [0, 2]


@pytest.mark.parametrize("flag", [32, 64, 128])
def test_flags_that_nobody_knows_are_told_once(source_path: Path, flag: int) -> None:
    items, source = read(source_path, go.record(0, flags=flag), go.record(1, flags=flag))
    assert offsets(items) == [0, 1]
    assert problems(source.findings, is_damage=False) == [
        f"a record has the flags 0x{flag:02x}, which are not known"
    ]


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (b"\0", "its headers are cut off"),
        (b"\0\1", "its headers are cut off"),
        (b"\0\1\0\5ab", "its headers are cut off"),
        (b"\0\1\0\1a\xff\xff", "its headers are cut off"),
        (b"\xff\xff\0\1a\0\1b", "its headers are cut off"),
        (b"\0\1\0\1a\0\1bmore", "behind its headers there are 4 bytes more"),
    ],
)
def test_headers_that_make_no_sense_cost_the_message(source_path: Path, tail: bytes, problem: str) -> None:
    records = [go.record(0), go.record(1, b"v", b"", tail), go.record(2)]
    items, source = read(source_path, *records)
    assert offsets(items) == [0, 2]
    finding = only(source.findings)
    assert finding.problem == f"offset 1 cannot be read, but its checksum is right: {problem}"
    assert (finding.position, finding.length, finding.is_damage) == (len(records[0]), len(records[1]), True)


def test_a_name_of_a_header_that_is_not_utf8_is_written_out(source_path: Path) -> None:
    [item], source = read(source_path, go.record(0, b"v", b"", {b"\xffx": b"1"}))
    assert item.headers == {"\\xffx": b"1"}
    assert only(source.findings).is_damage is False


def test_a_directory_of_something_else_is_refused_with_what_is_missing(source_path: Path) -> None:
    (source_path / "readme.txt").write_text("nothing")
    with pytest.raises(InvalidRequest, match="no logs/, no partitions such as 0/ and no files such as"):
        open_source(source_path, DISK)
    with pytest.raises(InvalidRequest, match="no directory of GoQueue"):
        open_source(source_path / "missing", DISK)
