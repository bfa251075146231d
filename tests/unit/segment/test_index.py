from collections.abc import Callable
from struct import pack

import pytest
from crc32c import crc32c

from quivermq.segment.index import ENTRY_BYTES, TIMESTAMP_NONE, SparseIndex

ENTRIES = [(10, 100, 4096), (25, 100, 8200), (31, 170, 12504), (32, 170, 20000)]


def filled(base_offset: int = 3, entries: list[tuple[int, int, int]] = ENTRIES) -> SparseIndex:
    index = SparseIndex(base_offset)
    for entry in entries:
        index.add(*entry)
    return index


def entries_of(index: SparseIndex | None) -> list[tuple[int, int, int]]:
    assert index is not None
    return list(zip(index.offsets, index.timestamps, index.positions, strict=True))


# The file


def test_an_index_is_read_back_as_it_was_written() -> None:
    data = filled().encode()
    loaded = SparseIndex.load(data, 3)
    assert entries_of(loaded) == ENTRIES
    assert loaded is not None
    assert loaded.file_bytes == len(data) == ENTRY_BYTES * (1 + len(ENTRIES))
    assert loaded.mark == (32, 170, 20000)


def test_an_index_without_entries_is_a_header_that_marks_the_beginning() -> None:
    data = SparseIndex(3).encode()
    loaded = SparseIndex.load(data, 3)
    assert loaded is not None
    assert (len(loaded), loaded.mark, len(data)) == (0, (3, TIMESTAMP_NONE, 0), ENTRY_BYTES)


@pytest.mark.parametrize("size", range(ENTRY_BYTES * (1 + len(ENTRIES)) + 1))
def test_a_torn_file_has_its_longest_whole_prefix(size: int) -> None:
    loaded = SparseIndex.load(filled().encode()[:size], 3)
    if size < ENTRY_BYTES:
        assert loaded is None
    else:
        assert entries_of(loaded) == ENTRIES[: size // ENTRY_BYTES - 1]


@pytest.mark.parametrize("position", range(ENTRY_BYTES * (1 + len(ENTRIES))))
def test_nothing_from_a_changed_byte_on_is_believed(position: int) -> None:
    data = bytearray(filled().encode())
    data[position] ^= 0x40
    loaded = SparseIndex.load(bytes(data), 3)
    if position < ENTRY_BYTES:
        assert loaded is None
    else:
        assert entries_of(loaded) == ENTRIES[: position // ENTRY_BYTES - 1]


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 32, b"\xff" * 45, b"QVI1" * 16])
def test_garbage_behind_the_entries_is_not_read(garbage: bytes) -> None:
    loaded = SparseIndex.load(filled().encode() + garbage, 3)
    assert entries_of(loaded) == ENTRIES


def test_an_entry_of_another_index_does_not_fit_in() -> None:
    data = filled().encode()
    other = filled(entries=[(11, 100, 4096), *ENTRIES[1:]]).encode()
    mixed = data[: 2 * ENTRY_BYTES] + other[2 * ENTRY_BYTES :]
    assert entries_of(SparseIndex.load(mixed, 3)) == ENTRIES[:1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"QVI1",
        bytes(ENTRY_BYTES),
        b"\xff" * 4096,
        b"QVF1" + SparseIndex(3).encode()[4:],
        SparseIndex(4).encode(),
        b"\0" + SparseIndex(3).encode(),
    ],
    ids=["empty", "torn", "zeros", "garbage", "magic", "base offset", "shifted"],
)
def test_a_file_that_is_no_index_of_this_segment_is_none(data: bytes) -> None:
    assert SparseIndex.load(data, 3) is None


def test_another_version_is_not_understood() -> None:
    def header(version: int) -> bytes:
        content = pack("<4sIq12x", b"QVI1", version, 3)
        crc = crc32c(content)
        return content + pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    assert header(1) == SparseIndex(3).encode()
    assert SparseIndex.load(header(1), 3) is not None
    assert SparseIndex.load(header(2), 3) is None


# Writing more


def test_entries_reach_the_file_only_once_the_log_is_durable_there() -> None:
    index = filled(entries=[])
    data = index.encode()
    for entry in ENTRIES:
        index.add(*entry)
    assert index.encode_more(4095) == b""
    data += index.encode_more(4096)
    assert entries_of(SparseIndex.load(data, 3)) == ENTRIES[:1]
    assert index.encode_more(8199) == b""
    data += index.encode_more(12504)
    assert entries_of(SparseIndex.load(data, 3)) == ENTRIES[:3]
    assert index.encode_more(0) == b""
    data += index.encode_more(10**9)
    assert index.encode_more(10**9) == b""
    assert data == filled().encode()


def test_a_loaded_index_goes_on_where_its_file_ends() -> None:
    data = filled(entries=ENTRIES[:2]).encode()
    index = SparseIndex.load(data + b"torn", 3)
    assert index is not None
    assert index.encode_more(10**9) == b""
    for entry in ENTRIES[2:]:
        index.add(*entry)
    assert data + index.encode_more(10**9) == filled().encode()


def test_an_entry_that_is_being_added_is_not_written_in_half() -> None:
    index = filled()
    index.encode()
    # As `add` is when another thread interrupts it: the columns grow one after the other.
    index.positions.append(30000)
    assert index.encode_more(10**9) == b""
    index.offsets.append(40)
    assert index.encode_more(10**9) == b""
    index.timestamps.append(170)
    assert len(index.encode_more(10**9)) == ENTRY_BYTES


def test_encoding_as_a_whole_can_be_repeated() -> None:
    index = filled()
    assert index.encode() == index.encode()
    index.add(50, 180, 30000)
    assert index.encode() == filled(entries=[*ENTRIES, (50, 180, 30000)]).encode()


@pytest.mark.parametrize(
    ("position", "kept"),
    [(0, 0), (4095, 0), (4096, 1), (12503, 2), (20000, 4), (10**9, 4)],
)
def test_a_cut_forgets_what_lies_behind(position: int, kept: int) -> None:
    index = filled()
    index.cut(position)
    assert entries_of(index) == ENTRIES[:kept]
    assert index.encode() == filled(entries=ENTRIES[:kept]).encode()


# Looking up


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, (0, 3)),
        (3, (0, 3)),
        (9, (0, 3)),
        (10, (4096, 10)),
        (24, (4096, 10)),
        (25, (8200, 25)),
        (31, (12504, 31)),
        (32, (20000, 32)),
        (10**9, (20000, 32)),
    ],
)
def test_an_offset_is_looked_for_from_the_last_frame_that_may_hold_it(
    offset: int, found: tuple[int, int]
) -> None:
    assert filled().find_offset(offset) == found


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (TIMESTAMP_NONE, (0, 3)),
        (99, (0, 3)),
        # Every message before the first two entries may be exactly this old.
        (100, (0, 3)),
        (101, (8200, 25)),
        (170, (8200, 25)),
        (171, (20000, 32)),
        (10**9, (20000, 32)),
    ],
)
def test_a_time_is_looked_for_from_where_everything_before_is_older(
    timestamp: int, found: tuple[int, int]
) -> None:
    assert filled().find_time(timestamp) == found


def test_without_entries_every_look_up_begins_at_the_beginning() -> None:
    assert SparseIndex(3).find_offset(100) == SparseIndex(3).find_time(100) == (0, 3)


class Column(list[int]):
    """A column that, each time it grows, looks things up as another thread might."""

    look_up: Callable[[], object]

    def append(self, item: int) -> None:
        super().append(item)
        self.look_up()


def test_a_look_up_in_the_middle_of_an_addition_finds_whole_entries() -> None:
    index = SparseIndex(3)
    seen = []

    def look_up() -> None:
        seen.append((index.find_offset(10**9), index.find_time(10**9)))

    for name in ("offsets", "timestamps", "positions"):
        column = Column()
        column.look_up = look_up
        setattr(index, name, column)
    for entry in ENTRIES:
        index.add(*entry)
    whole = {(0, 3), *((position, offset) for offset, _, position in ENTRIES)}
    assert len(seen) == 3 * len(ENTRIES)
    assert {found for pair in seen for found in pair} == whole
