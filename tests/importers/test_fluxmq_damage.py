"""Damaged segments of FluxMQ: all that is whole comes out, all that is not is told by file and byte."""

from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest
from support import flux_files as flux
from support.flux_files import Rec
from support.sources import DISK, damage, flip, offsets, only, problems

from quivermq.importers import fluxmq_batches, segments
from quivermq.importers.fluxmq import open_source
from quivermq.importers.fluxmq_batches import LAYOUT
from quivermq.importers.model import ImportSource, Item

# Of three records each; the third one has headers and is compressed.
BATCHES = [
    flux.batch(0, flux.values(0, 3)),
    flux.batch(3, flux.values(3, 3)),
    flux.batch(6, [Rec(b"v6", b"k", {"h": b"1"}), *flux.values(7, 2)], codec=flux.S2),
    flux.batch(9, flux.values(9, 3)),
    flux.batch(12, flux.values(12, 3)),
]
STARTS = [sum(map(len, BATCHES[:index])) for index in range(len(BATCHES) + 1)]
NAME = f"{0:020}.seg"


@pytest.fixture
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def write(path: Path, *batches: bytes, base: int = 0) -> Path:
    return flux.write_segment(path / "queues" / "q", base, *batches)


def read(path: Path) -> tuple[list[Item], ImportSource]:
    source = open_source(path, DISK)
    [topic] = source.topics
    return list(topic.items()), source


def all_but(*lost: int) -> list[int]:
    """The offsets of all batches but those of these numbers."""
    return [offset for offset in range(3 * len(BATCHES)) if offset // 3 not in lost]


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_bit_flipped_anywhere_costs_its_batch_and_no_other(source_path: Path, number: int) -> None:
    path = write(source_path, *BATCHES)
    whole = path.read_bytes()
    for position in range(STARTS[number], STARTS[number + 1]):
        path.write_bytes(whole)
        flip(path, position, position % 8)
        items, source = read(source_path)
        assert offsets(items) == all_but(number), position
        # To the end of the file, where nothing behind it says how many there were.
        lost = f"; offsets {3 * number} to {3 * number + 2} are lost" if number < 4 else ""
        finding = only(source.findings)
        assert finding.problem.endswith(lost)
        assert (finding.path, finding.position, finding.length) == (
            path,
            STARTS[number],
            len(BATCHES[number]),
        )
        assert finding.is_damage


def test_a_file_cut_at_any_byte_gives_the_batches_before_the_cut(source_path: Path) -> None:
    path = write(source_path, *BATCHES)
    whole = path.read_bytes()
    for size in range(STARTS[3], len(whole)):
        path.write_bytes(whole[:size])
        items, source = read(source_path)
        kept = 3 if size < STARTS[4] else 4
        assert offsets(items) == list(range(kept * 3)), size
        rest = size - STARTS[kept]
        assert damage(source.findings) == ([(NAME, STARTS[kept], rest)] if rest else []), size


@pytest.mark.parametrize(
    "garbage", [b"x", b"garbage" * 100, bytes(5000), BATCHES[1][:40], b"XULF", b"XULF" * 500, b"\xff" * 44]
)
@pytest.mark.parametrize("number", [0, 2, 5])
def test_garbage_between_batches_is_passed_over(source_path: Path, number: int, garbage: bytes) -> None:
    write(source_path, *BATCHES[:number], garbage, *BATCHES[number:])
    items, source = read(source_path)
    assert offsets(items) == list(range(15))
    assert damage(source.findings) == [(NAME, STARTS[number], len(garbage))]


def test_two_places_are_two_findings(source_path: Path) -> None:
    path = write(source_path, *BATCHES)
    flip(path, STARTS[1] + 50)
    flip(path, STARTS[3] + 17, 7)
    items, source = read(source_path)
    assert offsets(items) == all_but(1, 3)
    left = STARTS[5] - STARTS[3]
    cut = f"a batch has {len(BATCHES[3]) ^ 0x8000} bytes, and the file ends behind {left}"
    assert problems(source.findings) == [
        "the checksum of a batch does not match; offsets 3 to 5 are lost",
        f"{cut}; offsets 9 to 11 are lost",
    ]


def test_a_batch_inside_of_a_message_is_not_taken_for_one_of_the_log(source_path: Path) -> None:
    inner = flux.batch(3, [Rec(b"not mine")])
    outer = flux.batch(3, [Rec(b"a"), Rec(b"......" + inner), Rec(b"c")])
    path = write(source_path, BATCHES[0], outer, *BATCHES[2:])
    for position in (STARTS[1] + 5, STARTS[1] + 40, STARTS[1] + 50):
        path.write_bytes(b"".join([BATCHES[0], outer, *BATCHES[2:]]))
        flip(path, position)
        items, source = read(source_path)
        assert offsets(items) == all_but(1)
        assert only(source.findings).length == len(outer)


def test_what_is_far_from_the_next_offset_is_taken_when_there_is_nothing_nearer(source_path: Path) -> None:
    write(source_path, BATCHES[0], b"garbage", flux.batch(2**40, flux.values(0, 1)))
    items, source = read(source_path)
    assert offsets(items) == [0, 1, 2, 2**40]
    assert f"offsets 3 to {2**40 - 1} are lost" in only(source.findings).problem


@pytest.mark.parametrize("hostile", [2**32 - 1, 2**31, 300 * 1024 * 1024])
def test_a_length_beyond_all_is_not_believed(source_path: Path, hostile: int) -> None:
    header = pack("<IIQIHHBBHqq", 0x464C5558, 0, 3, hostile, 3, 0, 0, 1, 0, 0, 0)
    write(source_path, BATCHES[0], header, *BATCHES[1:])
    items, source = read(source_path)
    assert offsets(items) == list(range(15))
    assert damage(source.findings) == [(NAME, STARTS[1], len(header))]


def test_a_batch_over_the_limit_is_not_read_even_if_it_is_there(
    source_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxmq_batches, "LAYOUT", replace(LAYOUT, size_bytes_max=4000))
    write(source_path, BATCHES[0], flux.batch(3, [Rec(bytes(5000)), *flux.values(4, 2)]), *BATCHES[2:])
    items, source = read(source_path)
    assert offsets(items) == all_but(1)
    assert "the limit is 4000" in only(source.findings).problem


def test_a_file_made_to_keep_a_reader_busy_is_given_up(
    source_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_SEARCH_BYTES_MAX", 1_000_000)
    trap = pack("<IIQIHHBBHqq", 0x464C5558, 0, 3, 4000, 1, 0, 0, 1, 0, 0, 0)
    write(source_path, BATCHES[0], trap * 2000, *BATCHES[1:])
    items, source = read(source_path)
    assert offsets(items) == [0, 1, 2]
    assert only(source.findings).problem.endswith("the search for what is whole behind it was given up")
    assert only(source.findings).length == len(trap) * 2000 + STARTS[5] - STARTS[1]


def test_a_missing_segment_is_a_hole(source_path: Path) -> None:
    write(source_path, BATCHES[0])
    path = write(source_path, *BATCHES[2:], base=6)
    items, source = read(source_path)
    assert offsets(items) == all_but(1)
    finding = only(source.findings)
    assert (finding.path, finding.position) == (path, 0)
    assert finding.problem == "offsets 3 to 5 are missing in front of this place"


@pytest.mark.parametrize(("orphan", "is_told"), [(6, True), (15, True), (3, False)])
def test_an_index_without_its_segment_tells_that_it_is_missing(
    source_path: Path, orphan: int, is_told: bool
) -> None:
    path = write(source_path, *BATCHES[2:], base=6)
    for ending in ("idx", "tix"):
        (path.parent / f"{6:020}.{ending}").write_bytes(b"x")
        (path.parent / f"{orphan:020}.{ending}").write_bytes(b"x")
    if orphan == 6:
        path.unlink()
    items, source = read(source_path)
    assert offsets(items) == ([] if orphan == 6 else list(range(6, 15)))
    # One older than all others was removed by the queue itself.
    missing = [f"the segment that begins with offset {orphan} is missing"] if is_told else []
    assert problems(source.findings) == missing


def test_a_log_may_begin_anywhere(source_path: Path) -> None:
    write(source_path, *BATCHES[2:], base=6)
    items, source = read(source_path)
    assert offsets(items) == list(range(6, 15))
    assert source.findings.count == 0


def test_a_first_segment_that_lost_its_beginning_is_told(source_path: Path) -> None:
    write(source_path, *BATCHES[2:], base=0)
    items, source = read(source_path)
    assert offsets(items) == list(range(6, 15))
    assert only(source.findings).problem == "offsets 0 to 5 are missing in front of this place"


def test_a_segment_in_which_nothing_is_whole_tells_what_is_missing_by_its_name(source_path: Path) -> None:
    write(source_path, *BATCHES[:2])
    path = write(source_path, b"garbage", base=9)
    write(source_path, BATCHES[4], base=12)
    items, source = read(source_path)
    assert offsets(items) == all_but(2, 3)
    assert [(each.path.name, each.position, each.problem) for each in source.findings.kept] == [
        (path.name, 0, "the file ends inside of the header of a batch"),
        (path.name, None, "offsets 6 to 8 are missing"),
        (f"{12:020}.seg", 0, "offsets 9 to 11 are missing in front of this place"),
    ]


def test_overlapping_segments_give_each_offset_once(source_path: Path) -> None:
    write(source_path, *BATCHES[:3])
    overlap = [flux.batch(5, [Rec(b"again5"), Rec(b"again6"), Rec(b"again7")]), BATCHES[2], BATCHES[3]]
    path = write(source_path, *overlap, base=5)
    items, source = read(source_path)
    assert offsets(items) == list(range(12))
    assert items[6].value == b"v6"
    finding = only(source.findings)
    assert (finding.path, finding.position) == (path, 0)
    assert finding.problem == "offsets 5 to 8 are here again; the first ones were taken"


def test_a_batch_that_overlaps_in_part_gives_the_rest_of_it(source_path: Path) -> None:
    write(source_path, BATCHES[0], flux.batch(1, flux.values(1, 5)), *BATCHES[2:])
    items, source = read(source_path)
    assert offsets(items) == list(range(15))
    assert only(source.findings).problem == "offsets 1 to 2 are here again; the first ones were taken"


def test_an_empty_segment_is_fine(source_path: Path) -> None:
    write(source_path, *BATCHES)
    write(source_path, base=15)
    items, source = read(source_path)
    assert offsets(items) == list(range(15))
    assert source.findings.count == 0


def test_zeros_at_the_end_are_told_as_one(source_path: Path) -> None:
    write(source_path, *BATCHES, bytes(100_000))
    items, source = read(source_path)
    assert offsets(items) == list(range(15))
    assert damage(source.findings) == [(NAME, STARTS[5], 100_000)]


def test_a_link_is_not_followed_and_told(source_path: Path) -> None:
    path = write(source_path, *BATCHES[:2])
    elsewhere = source_path / "elsewhere"
    write(elsewhere, *BATCHES[2:], base=6)
    (path.parent / f"{6:020}.seg").symlink_to(elsewhere / "queues/q/segments" / f"{6:020}.seg")
    items, source = read(source_path)
    assert offsets(items) == list(range(6))
    assert [(each.path.name, each.is_damage) for each in source.findings.kept] == [
        ("elsewhere", False),
        (f"{6:020}.seg", True),
    ]


def test_files_that_are_no_segments_are_told(source_path: Path) -> None:
    path = write(source_path, *BATCHES)
    for name in ("copy.seg", f"{0:020}.idx", f"{0:020}.tix", f"{3:020}.seg.tmp"):
        (path.parent / name).write_bytes(b"x")
    items, source = read(source_path)
    assert offsets(items) == list(range(15))
    assert [(each.path.name, each.problem) for each in source.findings.kept] == [
        (f"{3:020}.seg.tmp", "it is not imported"),
        ("copy.seg", "it is not imported"),
    ]
    assert source.findings.damages == 0


def test_nothing_is_changed_by_reading(source_path: Path) -> None:
    path = write(source_path, *BATCHES, b"torn")
    before = {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in [path]}
    read(source_path)
    assert {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in [path]} == before
    assert [each.name for each in path.parent.iterdir()] == [NAME]


def test_reading_again_finds_the_same(source_path: Path) -> None:
    path = write(source_path, *BATCHES)
    flip(path, STARTS[2] + 60)
    source = open_source(source_path, DISK)
    [topic] = source.topics
    first = offsets(list(topic.items())), list(source.findings.kept)
    source.findings.clear()
    assert (offsets(list(topic.items())), list(source.findings.kept)) == first
