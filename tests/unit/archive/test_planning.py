"""Which ranges become files, and which files become one."""

from quivermq.archive import ArchivedFile, ArchivedLane
from quivermq.archive.archiving import ArchivePace, mergers, pieces
from quivermq.model.lanes import Lane
from quivermq.model.operations import LaneBounds

LANE = Lane("t", 0, "normal")
NOW = 10_000_000_000
MINUTE = 60_000_000
PACE = ArchivePace(NOW, age_us=10 * MINUTE, file_bytes=1000)


def file(start: int, end: int, size: int = 10, day: str = "d") -> ArchivedFile:
    return ArchivedFile(f"{start}-{end}", day, start, end, end - start, 9, size, 7)


def live(start: int, end: int, size: int) -> LaneBounds:
    return LaneBounds(start, start, end, size)


def ranges(held: LaneBounds, oldest_us: int, archived: ArchivedLane | None = None) -> list[tuple[int, int]]:
    found = pieces(LANE, archived or ArchivedLane(), held, oldest_us, PACE)
    return [(piece.start, piece.end) for piece in found]


def test_little_and_young_waits() -> None:
    assert ranges(live(0, 10, 999), NOW - 9 * MINUTE) == []


def test_little_and_old_does_not_wait() -> None:
    assert ranges(live(0, 10, 999), NOW - 10 * MINUTE) == [(0, 10)]


def test_much_and_young_does_not_wait_and_is_divided() -> None:
    assert ranges(live(0, 100, 4000), NOW) == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_what_is_archived_is_not_archived_again() -> None:
    archived = ArchivedLane((file(0, 40), file(40, 60)))
    assert ranges(live(0, 100, 4000), NOW, archived) == [(60, 80), (80, 100)]
    assert ranges(live(70, 100, 4000), 0, archived) == [(70, 78), (78, 86), (86, 94), (94, 100)]
    assert ranges(live(0, 60, 10), 0, archived) == []


def test_more_than_a_few_small_neighbours_of_a_day_become_one() -> None:
    small = [file(n, n + 1) for n in range(9)]
    assert mergers(ArchivedLane(tuple(small)), 1000) == [small]
    assert mergers(ArchivedLane(tuple(small[:8])), 1000) == []


def test_only_neighbours_of_one_day_that_are_small_become_one() -> None:
    files = [*(file(n, n + 1) for n in range(3)), file(3, 4, 900), *(file(n, n + 1) for n in range(4, 7))]
    files += [file(7, 8, day="e"), file(8, 9, day="e"), file(10, 11, day="e"), file(11, 12, day="e")]
    merged = mergers(ArchivedLane(tuple(files), ((9, 10),)), 1000, few=1)
    assert [[(f.start, f.end) for f in group] for group in merged] == [
        [(0, 1), (1, 2), (2, 3)],
        [(4, 5), (5, 6), (6, 7)],
        [(7, 8), (8, 9)],
        [(10, 11), (11, 12)],
    ]


def test_no_file_becomes_larger_than_it_should() -> None:
    files = tuple(file(n, n + 1, 100) for n in range(12))
    assert [len(group) for group in mergers(ArchivedLane(files), 1000)] == [5, 5, 2]
