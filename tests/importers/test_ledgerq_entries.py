"""Entries of LedgerQ, in every shape that the format allows, and in those that it does not."""

import gzip
from itertools import product
from pathlib import Path

import pytest
from support.ledgerq_files import Entry, queue_of
from support.sources import DISK, only, problems

from quivermq.importers import ledgerq_segments
from quivermq.importers.ledgerq import open_source
from quivermq.importers.model import Findings, Item

EXPIRY_NS = 2_110_132_108_424_850_093
HEADERS = {b"a": b"1", "kłucz".encode(): b"", b"": b"\xff\x00"}
SHAPES = list(product((None, 0, 1, 2), (None, EXPIRY_NS), (None, {}, HEADERS), (None, 0, 1)))


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source") / "queue"


def read(path: Path) -> tuple[list[Item], Findings]:
    opened = open_source(path, DISK)
    return list(opened.topics[0].items()), opened.findings


def test_every_combination_of_fields_is_read(source: Path) -> None:
    made = [
        Entry(id=n, priority=p, expires_at_ns=e, headers=h, compression=c, payload=b"payload %d" % n * 20)
        for n, (p, e, h, c) in enumerate(SHAPES, 1)
    ]
    queue_of(source, *made)
    items, findings = read(source)
    assert findings.count == 0
    assert [item.value for item in items] == [entry.payload for entry in made]
    assert [item.level for item in items] == [["low", "normal", "high"][e.priority or 0] for e in made]
    assert {item.expires_at_us for item in items} == {None, EXPIRY_NS // 1000}
    full = {"a": b"1", "kłucz": b"", "": b"\xff\x00"}
    assert [item.headers for item in items] == [full if entry.headers else None for entry in made]


def test_a_queue_that_never_used_priorities_has_only_normal_messages(source: Path) -> None:
    queue_of(source, Entry(id=1), Entry(id=2, expires_at_ns=EXPIRY_NS))
    items, _ = read(source)
    assert [item.level for item in items] == ["normal", "normal"]


def test_other_types_of_entries_are_no_messages(source: Path) -> None:
    queue_of(source, Entry(id=1), Entry(id=1, type=2), Entry(id=2, type=3), Entry(id=2))
    items, findings = read(source)
    assert ([item.id for item in items], findings.count) == (["1", "2"], 0)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (Entry(id=7, more_flags=0x02), "entry 7 is encrypted"),
        (Entry(id=7, more_flags=0x20), "entry 7 has the flags 0x20, and not all of them are known"),
        (Entry(id=7, compression=9), "entry 7 is compressed in the unknown way 9"),
        (Entry(id=7, payload=b"", more_flags=0x10), "entry 7 is too short for what its flags say"),
        (Entry(id=7, payload=b"1234567", more_flags=0x04), "entry 7 is too short for what its flags say"),
        (Entry(id=7, payload=b"\xff\xffx", more_flags=0x08), "entry 7 is too short for what its flags say"),
        (Entry(id=7, payload=b"", more_flags=0x01), "entry 7 is too short for what its flags say"),
        (
            Entry(id=7, payload=b"\x01" + gzip.compress(b"x" * 100)[:-5], more_flags=0x01),
            "entry 7 cannot be decompressed: it ends too early",
        ),
        (Entry(id=7, payload=b"\x01" + b"not gzip", more_flags=0x01), "entry 7 cannot be decompressed"),
    ],
)
def test_an_entry_that_makes_no_sense_is_told_and_the_others_are_read(
    source: Path, entry: Entry, problem: str
) -> None:
    queue_of(source, Entry(id=6), entry, Entry(id=8))
    items, findings = read(source)
    assert [item.id for item in items] == ["6", "8"]
    finding = only(findings)
    assert finding.problem.startswith(problem)
    start = 64 + len(bytes(Entry(id=6)))
    assert (finding.path.parent, finding.position, finding.length) == (source, start, len(bytes(entry)))


def test_what_grows_too_large_is_refused_before_it_is_there(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgerq_segments, "RAW_BYTES_MAX", 10_000)
    queue_of(
        source,
        Entry(id=1, payload=bytes(10_001), compression=1),
        Entry(id=2, payload=bytes(10_000), compression=1),
    )
    items, findings = read(source)
    assert [item.id for item in items] == ["2"]
    assert problems(findings) == ["entry 1 cannot be decompressed: it grows beyond 10000 bytes"]


def test_gzip_of_several_members_is_one_payload() -> None:
    assert ledgerq_segments.gunzip(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


def test_a_name_that_is_not_utf8_is_written_out(source: Path) -> None:
    queue_of(source, Entry(id=1, headers={b"\xff": b"1"}))
    items, _ = read(source)
    assert items[0].headers == {"\\xff": b"1"}


def test_an_id_that_is_there_twice_is_two_messages(source: Path) -> None:
    queue = queue_of(
        source, Entry(id=1, payload=b"a"), Entry(id=2, payload=b"b"), Entry(id=2, payload=b"c")
    )
    queue.write([Entry(id=2, payload=b"d"), Entry(id=3, payload=b"e")], base=1_000_001)
    queue.metadata()
    first, findings = read(source)
    again, _ = read(source)
    assert [item.value for item in first] == [b"a", b"b", b"c", b"d", b"e"]
    assert len({item.identity for item in first}) == 5
    assert [item.identity for item in first] == [item.identity for item in again]
    assert all("second time" in problem for problem in problems(findings, is_damage=False))


def test_the_number_in_the_name_of_a_segment_is_only_its_order(source: Path) -> None:
    queue = queue_of(source, Entry(id=5), Entry(id=6))
    queue.write([], base=1_000_001)
    queue.write([Entry(id=7)], base=2_000_001)
    queue.metadata(read_id=6)
    items, findings = read(source)
    assert [(item.identity, item.is_consumed) for item in items] == [(5, True), (6, False), (7, False)]
    assert findings.count == 0


def test_ids_that_are_missing_between_others_are_told(source: Path) -> None:
    queue = queue_of(source, Entry(id=1), Entry(id=2), Entry(id=3, type=3))
    queue.write([Entry(id=6), Entry(id=7)], base=1_000_001)
    queue.write([Entry(id=9)], base=2_000_001)
    queue.metadata()
    items, findings = read(source)
    assert [item.identity for item in items] == [1, 2, 6, 7, 9]
    assert [(each.path.name, each.position, each.problem, each.is_damage) for each in findings.kept] == [
        (f"{1_000_001:020}.log", 64, "the ids 4 to 5 are missing in front of this place", False),
        (f"{2_000_001:020}.log", 64, "the id 8 is missing in front of this place", False),
    ]


def test_a_segment_of_which_only_the_index_is_left_is_told(source: Path) -> None:
    queue = queue_of(source, Entry(id=3))
    gone = queue.write([Entry(id=4)], base=2)
    queue.write([Entry(id=5)], base=5)
    queue.metadata()
    for base in (0, 1, 2, 5):
        (source / f"{base:020}.idx").write_bytes(b"index")
    gone.unlink()
    items, findings = read(source)
    assert [item.identity for item in items] == [3, 5]
    # The queue itself removes the oldest, and its index behind it.
    assert problems(findings) == ["the segment 00000000000000000002.log is missing"]


def test_a_queue_of_which_nothing_is_left_tells_what_is_missing(source: Path) -> None:
    queue = queue_of(source)
    for read_id, told in ((3, ["the ids 3 to 9 are not in the log, though given out"]), (10, [])):
        queue.metadata(read_id=read_id, next_id=10)
        items, findings = read(source)
        assert (items, problems(findings, is_damage=False)) == ([], told)


def test_a_topic_is_known_again_by_any_of_its_segments(source: Path) -> None:
    queue = queue_of(source, Entry(id=1))
    before = open_source(source, DISK).topics[0].witnesses
    queue.write([Entry(id=2)], base=11)
    both = open_source(source, DISK).topics[0].witnesses
    (source / f"{1:020d}.log").unlink()
    after = open_source(source, DISK).topics[0].witnesses
    # Its header and its first entry, of each.
    assert (len(before), len(both), len(after)) == (2, 4, 2)
    assert set(before) < set(both)
    assert set(after) < set(both)
    assert set(before).isdisjoint(after)


def test_a_topic_gives_its_messages_as_often_as_it_is_asked(source: Path) -> None:
    queue_of(source, Entry(id=1), Entry(id=2))
    topic = open_source(source, DISK).topics[0]
    assert [i.id for i in topic.items()] == [i.id for i in topic.items()] == ["1", "2"]
    assert topic.size_bytes == 64 + 2 * len(bytes(Entry(id=1)))
