"""Damaged LedgerQ segments: everything that is whole comes out, everything else is told by its place."""

from pathlib import Path
from struct import pack
from typing import Any

import pytest
from support.ledgerq_files import Entry, Queue, queue_of, segment_header
from support.sources import DISK, damage, flip, only, problems

from quivermq.disk import SystemDisk
from quivermq.importers import ledgerq_segments, segments
from quivermq.importers.ledgerq import open_source
from quivermq.importers.model import Findings

ENTRIES = [
    Entry(id=1, payload=b"first"),
    Entry(id=2, payload=b"second" * 5, priority=2, expires_at_ns=2**60, headers={b"name": b"value"}),
    Entry(id=3, payload=b"third" * 50, compression=1),
    Entry(id=4, payload=b""),
    Entry(id=5, payload=b"fifth"),
]
SIZES = [len(bytes(entry)) for entry in ENTRIES]
STARTS = [64 + sum(SIZES[:place]) for place in range(len(SIZES))]
SECOND = range(STARTS[1], STARTS[2])
# The four zeros at the end of an entry are in no checksum, and nobody needs them.
SUMMED = range(STARTS[1], STARTS[2] - 4)


@pytest.fixture
def queue(tmp_path_factory: pytest.TempPathFactory) -> Queue:
    return queue_of(tmp_path_factory.mktemp("source") / "queue", *ENTRIES)


def read(path: Path) -> tuple[list[str], Findings]:
    source = open_source(path, DISK)
    return [item.id for item in source.topics[0].items()], source.findings


def segment(queue: Queue, base: int = 1) -> Path:
    return queue.path / f"{base:020d}.log"


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_bit_that_is_flipped_anywhere_costs_the_entry_it_is_in(queue: Queue, bit: int) -> None:
    path, data = segment(queue), segment(queue).read_bytes()
    for position in SUMMED:
        flip(path, position, bit)
        ids, findings = read(queue.path)
        assert ids == ["1", "3", "4", "5"], f"byte {position}"
        assert damage(findings) == [(path.name, STARTS[1], SIZES[1])], f"byte {position}"
        path.write_bytes(data)


def test_priorities_are_seen_behind_damage(queue: Queue) -> None:
    flip(segment(queue), STARTS[0] + 2)
    source = open_source(queue.path, DISK)
    assert [item.level for item in source.topics[0].items()] == ["high", "low", "low", "low"]


def test_a_priority_that_is_only_damage_is_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    queue = queue_of(tmp_path_factory.mktemp("source") / "queue", Entry(id=1), Entry(id=2))
    flip(segment(queue), 64 + 5, 4)
    source = open_source(queue.path, DISK)
    assert [(item.id, item.level) for item in source.topics[0].items()] == [("2", "normal")]


class CutDisk(SystemDisk):
    """Files that have become shorter since they were opened."""

    def open(self, path: Path, *, writable: bool = False) -> Any:
        file = super().open(path)
        size = file.size()
        file.size = lambda: size + 5_000_000 if size > 64 else size  # type: ignore[method-assign]
        return file


def test_a_file_that_is_cut_while_it_is_read_ends_there(queue: Queue) -> None:
    source = open_source(queue.path, CutDisk())
    assert [item.id for item in source.topics[0].items()] == ["1", "2", "3", "4", "5"]
    [(name, position, _)] = damage(source.findings)
    assert (name, position) == (segment(queue).name, segment(queue).stat().st_size)


def test_the_zeros_behind_an_entry_may_be_anything(queue: Queue) -> None:
    for position in range(STARTS[2] - 4, STARTS[2]):
        flip(segment(queue), position)
    ids, findings = read(queue.path)
    assert (ids, findings.count) == (["1", "2", "3", "4", "5"], 0)


def test_a_segment_that_is_cut_anywhere_keeps_what_is_whole(queue: Queue) -> None:
    data = segment(queue).read_bytes()
    for end in range(STARTS[2], len(data)):
        segment(queue).write_bytes(data[:end])
        # An entry is whole without the zeros behind it.
        whole = sum(start + size - 4 <= end for start, size in zip(STARTS, SIZES, strict=True))
        ids, findings = read(queue.path)
        assert ids == [str(entry.id) for entry in ENTRIES[:whole]], f"cut at {end}"
        rest = end - STARTS[whole] if whole < len(STARTS) else 0
        expected = [(segment(queue).name, STARTS[whole], rest)] if rest > 0 else []
        assert damage(findings) == expected, f"cut at {end}"


@pytest.mark.parametrize("garbage", [b"\xff" * 100, b"\0" * 100, b"\x01\x00\x00\x00" * 30, b"x"])
def test_garbage_between_entries_is_passed_over(queue: Queue, garbage: bytes) -> None:
    parts = [bytes(entry) for entry in ENTRIES]
    data = segment_header() + b"".join(parts[:2]) + garbage + b"".join(parts[2:])
    segment(queue).write_bytes(data)
    ids, findings = read(queue.path)
    assert ids == ["1", "2", "3", "4", "5"]
    assert damage(findings) == [(segment(queue).name, STARTS[2], len(garbage))]


def test_zeros_up_to_the_end_are_one_finding(queue: Queue) -> None:
    size = segment(queue).stat().st_size
    segment(queue).write_bytes(segment(queue).read_bytes() + bytes(5000))
    ids, findings = read(queue.path)
    assert ids == ["1", "2", "3", "4", "5"]
    assert only(findings).problem == "there are 5000 zeros"
    assert damage(findings) == [(segment(queue).name, size, 5000)]


def test_an_entry_inside_of_a_payload_is_not_taken_for_one(queue: Queue) -> None:
    # The outer entry is damaged, and its length leads to the next one, past what it holds.
    inner = bytes(Entry(id=99, payload=b"not a message"))
    outer = bytes(Entry(id=2, payload=b"prefix" + inner + b"suffix"))
    damaged = outer[:30] + bytes([outer[30] ^ 1]) + outer[31:]
    data = segment_header() + bytes(ENTRIES[0]) + damaged + bytes(ENTRIES[4])
    segment(queue).write_bytes(data)
    ids, findings = read(queue.path)
    assert ids == ["1", "5"]
    assert damage(findings) == [(segment(queue).name, STARTS[1], len(outer))]


@pytest.mark.parametrize("length", [0, 1, 25, 26, 2**31, 2**32 - 1])
def test_a_length_that_lies_allocates_nothing_and_hides_nothing(queue: Queue, length: int) -> None:
    data = bytearray(segment(queue).read_bytes())
    data[STARTS[1] : STARTS[1] + 4] = pack("<I", length)
    segment(queue).write_bytes(data)
    ids, findings = read(queue.path)
    assert ids == ["1", "3", "4", "5"]
    assert damage(findings) == [(segment(queue).name, STARTS[1], SIZES[1])]


def test_a_header_that_is_damaged_costs_no_entry(queue: Queue) -> None:
    for position in (*range(4, 64), 0):
        flip(segment(queue), position)
        if position:
            ids, findings = read(queue.path)
            assert ids == ["1", "2", "3", "4", "5"], f"byte {position}"
            assert damage(findings) == [(segment(queue).name, 0, 64)], f"byte {position}"
        flip(segment(queue), position)


def test_a_magic_that_is_damaged_costs_no_entry_of_the_segment(queue: Queue) -> None:
    queue.write([Entry(id=6)], base=11)
    flip(segment(queue), 0)
    ids, findings = read(queue.path)
    assert ids == ["1", "2", "3", "4", "5", "6"]
    assert damage(findings) == [(segment(queue).name, 0, 64)]


def test_a_version_that_is_not_known_is_not_guessed_at(queue: Queue) -> None:
    queue.write([Entry(id=6)], base=11)
    segment(queue).write_bytes(segment_header(version=2) + bytes(ENTRIES[0]))
    ids, findings = read(queue.path)
    assert ids == ["6"]
    assert problems(findings)[0] == "its version 2 is not known"


@pytest.mark.parametrize("size", [0, 1, 63])
def test_a_segment_without_a_whole_header_has_nothing(queue: Queue, size: int) -> None:
    queue.write([Entry(id=6)], base=11)
    segment(queue).write_bytes(segment_header()[:size])
    ids, findings = read(queue.path)
    assert ids == ["6"]
    assert damage(findings) == [(segment(queue).name, 0, size)]


def test_windows_are_no_borders(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(segment(queue), STARTS[1])
    for size in (22, 23, 40, 64, 100):
        monkeypatch.setattr(segments, "_WINDOW_BYTES", size)
        monkeypatch.setattr(ledgerq_segments, "_SEARCHED_BYTES", size)
        ids, findings = read(queue.path)
        assert ids == ["1", "3", "4", "5"], f"windows of {size}"
        assert damage(findings) == [(segment(queue).name, STARTS[1], SIZES[1])]


def test_a_file_made_to_keep_us_busy_is_given_up(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgerq_segments, "_SEARCH_BYTES_MAX", 100_000)
    # Every fourth byte looks like an entry that fits and ends with zeros, and has to be summed up.
    trap = pack("<IBBQq", 26, 1, 0, 1, 1) * 2000 + bytes(64)
    segment(queue).write_bytes(segment_header() + b"\xff" * 3 + trap)
    queue.write([Entry(id=6)], base=11)
    ids, findings = read(queue.path)
    assert ids == ["6"]
    assert "was given up" in problems(findings)[0]


def test_a_hostile_file_has_no_more_findings_than_there_is_room_for() -> None:
    findings = Findings(kept_max=3)
    for number in range(10):
        findings.add(Path("x"), number, "damaged", is_damage=number % 2 == 0)
    assert (len(findings.kept), findings.count, findings.damages) == (3, 10, 5)
