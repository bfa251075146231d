"""Damaged segments of GoQueue: all that is whole comes out, all that is not is told by file and byte."""

from pathlib import Path
from struct import pack
from typing import Any

import pytest
from support import go_files as go
from support.sources import DISK, damage, flip, offsets, only, problems

from quivermq.disk import File, SystemDisk
from quivermq.errors import StorageFailed
from quivermq.importers import segments
from quivermq.importers.goqueue import open_source
from quivermq.importers.model import ImportSource, Item

RECORDS = [
    go.record(0, b"v0"),
    go.record(1, b"v1", b"key1"),
    go.record(2, b"v2" * 10, b"key2", {"h": b"1"}),
    go.record(3, b"v3"),
    go.record(4, b"v4", b"", {"h": b"2"}),
]
STARTS = [sum(map(len, RECORDS[:index])) for index in range(len(RECORDS) + 1)]
NAME = f"{0:020}.log"
# No checksum covers the flags.
FLAGS = 3


@pytest.fixture
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def write(path: Path, *records: bytes, base: int = 0) -> Path:
    return go.write_segment(path, base, records)


def read(path: Path) -> tuple[list[Item], ImportSource]:
    source = open_source(path, DISK)
    [topic] = source.topics
    return list(topic.items()), source


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_bit_flipped_anywhere_costs_its_record_and_no_other(source_path: Path, number: int) -> None:
    path = write(source_path, *RECORDS)
    whole = path.read_bytes()
    kept = [offset for offset in range(5) if offset != number]
    for position in range(STARTS[number], STARTS[number + 1]):
        if position - STARTS[number] == FLAGS:
            continue
        path.write_bytes(whole)
        flip(path, position, position % 8)
        items, source = read(source_path)
        assert offsets(items) == kept, position
        finding = only(source.findings)
        assert finding.problem.endswith(f"; offset {number} is lost" if number < 4 else "")
        assert (finding.path, finding.position, finding.length) == (
            path,
            STARTS[number],
            len(RECORDS[number]),
        )
        assert finding.is_damage


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_flag_costs_no_message_and_is_told(source_path: Path, bit: int) -> None:
    path = write(source_path, *RECORDS)
    flip(path, STARTS[2] + FLAGS, bit)
    items, source = read(source_path)
    assert offsets(items) == list(range(5))
    assert items[2].value == b"v2" * 10
    assert items[2].headers == {"h": b"1"}
    assert only(source.findings).position == STARTS[2]


def test_a_file_cut_at_any_byte_gives_the_records_before_the_cut(source_path: Path) -> None:
    path = write(source_path, *RECORDS)
    whole = path.read_bytes()
    for size in range(STARTS[2], len(whole)):
        path.write_bytes(whole[:size])
        items, source = read(source_path)
        kept = max(index for index in range(5) if STARTS[index] <= size)
        assert offsets(items) == list(range(kept)), size
        rest = size - STARTS[kept]
        assert damage(source.findings) == ([(NAME, STARTS[kept], rest)] if rest else []), size


@pytest.mark.parametrize(
    "garbage",
    [b"x", b"garbage" * 100, bytes(3000), RECORDS[1][:30], b"GQ", b"GQ\x01" * 500, b"GQ\x02" * 30],
)
@pytest.mark.parametrize("number", [0, 2, 5])
def test_garbage_between_records_is_passed_over(source_path: Path, number: int, garbage: bytes) -> None:
    write(source_path, *RECORDS[:number], garbage, *RECORDS[number:])
    items, source = read(source_path)
    assert offsets(items) == list(range(5))
    assert damage(source.findings) == [(NAME, STARTS[number], len(garbage))]


def test_another_version_is_refused_by_its_number(source_path: Path) -> None:
    write(source_path, RECORDS[0], go.record(1, version=2), *RECORDS[2:])
    items, source = read(source_path)
    assert offsets(items) == [0, 2, 3, 4]
    assert only(source.findings).problem == "a record has the version 2, known is 1; offset 1 is lost"


def test_a_record_inside_of_a_message_is_not_taken_for_one_of_the_log(source_path: Path) -> None:
    outer = go.record(1, b"..." + go.record(1, b"not mine") + b"...")
    for position in (4, 10, 40, len(outer) - 1):
        path = write(source_path, RECORDS[0], outer, *RECORDS[2:])
        flip(path, STARTS[1] + position)
        items, source = read(source_path)
        assert offsets(items) == [0, 2, 3, 4]
        assert only(source.findings).length == len(outer)


@pytest.mark.parametrize(
    ("key", "value", "headers"), [(0, 2**32 - 1, 0), (65_535, 0, 65_535), (0, 2**31, 9)]
)
def test_lengths_beyond_all_are_not_believed(source_path: Path, key: int, value: int, headers: int) -> None:
    header = b"GQ\1\0" + bytes(4) + pack(">qqBBHIH", 1, go.BASE_NS, 2, 0, key, value, headers)
    write(source_path, RECORDS[0], header, *RECORDS[1:])
    items, source = read(source_path)
    assert offsets(items) == list(range(5))
    assert damage(source.findings) == [(NAME, STARTS[1], len(header))]


def test_a_negative_offset_is_refused(source_path: Path) -> None:
    write(source_path, RECORDS[0], go.record(-5), *RECORDS[1:])
    items, source = read(source_path)
    assert offsets(items) == list(range(5))
    assert only(source.findings).problem == "a record has the offset -5"


def test_a_file_made_to_keep_a_reader_busy_is_given_up(
    source_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_SEARCH_BYTES_MAX", 1_000_000)
    trap = b"GQ\1\0" + bytes(4) + pack(">qqBBHIH", 1, go.BASE_NS, 2, 0, 0, 5000, 0)
    write(source_path, RECORDS[0], trap * 2000, *RECORDS[1:])
    items, source = read(source_path)
    assert offsets(items) == [0]
    assert only(source.findings).problem.endswith("the search for what is whole behind it was given up")


def test_missing_and_overlapping_segments_are_told(source_path: Path) -> None:
    write(source_path, *RECORDS[:2])
    write(source_path, *RECORDS[3:], base=3)
    write(source_path, RECORDS[4], go.record(5), base=4)
    items, source = read(source_path)
    assert offsets(items) == [0, 1, 3, 4, 5]
    assert [(each.path.name, each.position, each.problem) for each in source.findings.kept] == [
        (f"{3:020}.log", 0, "offset 2 is missing in front of this place"),
        (f"{4:020}.log", 0, "offset 4 is here again; the first ones were taken"),
    ]


def test_files_that_are_no_segments_are_told(source_path: Path) -> None:
    write(source_path, *RECORDS)
    for name in (f"{0:020}.index", f"{0:020}.timeindex", "notes.log"):
        (source_path / name).write_bytes(b"x")
    items, source = read(source_path)
    assert offsets(items) == list(range(5))
    assert [each.path.name for each in source.findings.kept] == ["notes.log"]
    assert source.findings.damages == 0


class BadFile:
    """A file of which the disk does not give some bytes."""

    def __init__(self, file: File, bad: range) -> None:
        self._file = file
        self._bad = bad
        self.path = file.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, position: int, length: int) -> bytes:
        if position < self._bad.stop and position + length > self._bad.start:
            raise StorageFailed(
                f"cannot read {self.path} at byte {position}: Input/output error", path=self.path
            )
        return self._file.read(position, length)


class BadDisk(SystemDisk):
    def __init__(self, bad: range) -> None:
        self._bad = bad

    def open(self, path: Path, *, writable: bool = False) -> Any:
        return BadFile(super().open(path, writable=writable), self._bad)


@pytest.mark.parametrize(
    ("bad", "lost"),
    [
        # Blocks have 4096 bytes, and each of these records has four more.
        (range(20_000, 20_001), {3, 4}),
        (range(5000, 9000), {0, 1, 2}),
        (range(1), {0}),
        (range(25_000, 99_999), {5, 6, 7, 8, 9}),
    ],
)
def test_a_bad_block_costs_what_lies_in_it(source_path: Path, bad: range, lost: set[int]) -> None:
    write(source_path, *[go.record(offset, bytes([offset + 1]) * 4066) for offset in range(10)])
    source = open_source(source_path, BadDisk(bad))
    found = offsets(list(source.topics[0].items()))
    assert found == [offset for offset in range(10) if offset not in lost]
    assert any("Input/output error" in problem for problem in problems(source.findings))
    assert source.findings.damages == len(source.findings.kept)


def test_a_file_that_vanishes_meanwhile_is_told(source_path: Path) -> None:
    write(source_path, *RECORDS[:2])
    second = write(source_path, *RECORDS[2:], base=2)
    source = open_source(source_path, DISK)
    items = source.topics[0].items()
    first = next(items)
    second.unlink()
    assert offsets([first, *items]) == [0, 1]
    assert only(source.findings).path == second


def test_a_file_that_is_cut_while_it_is_read_is_told(source_path: Path) -> None:
    path = write(source_path, *[go.record(offset, bytes(500_000)) for offset in range(6)])
    source = open_source(source_path, DISK)
    items = source.topics[0].items()
    first = next(items)
    with path.open("r+b") as file:
        file.truncate(600_000)
    assert len([first, *items]) < 6
    assert source.findings.damages == 1
