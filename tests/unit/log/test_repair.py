"""Mending every kind of damage: what can be read afterwards, and that nothing was thrown away."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.damage import cut, flip, insert, overwrite, remove
from support.faulty_disk import FaultyDisk
from support.logs import Logs, contents, kinds, offsets, tree, values
from support.segments import frame_at, new_segment, put

from quivermq.errors import Corruption, DirectoryLocked, DiskFull, NotFound, UnsupportedFrame
from quivermq.frame import HEADER_BYTES
from quivermq.log import DataDirectory, Mended, repair, total_bytes
from quivermq.segment.index import SparseIndex
from quivermq.segment.recovery import QUARANTINE

EVERY: dict[str, Any] = {"index_interval_bytes": 1}
FRAME_BYTES = 96
FLAT = [b"%d" % n for n in range(12)]


def filled(logs: Logs, name: str = "log") -> Path:
    """Twelve messages, one a frame, four a segment, closed in order; the directory of the log."""
    with logs.open(name, **EVERY, segment_messages=4) as log:
        for value in FLAT:
            log.append(value)
    return log.directory


def log_file(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.log"


def index_file(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.idx"


def side_files(directory: Path) -> dict[str, bytes]:
    return contents(directory / QUARANTINE)


# (what is done to the log, the messages that are lost, the side files: segment, range, where the
# bytes were before the repair)
Break = Callable[[Path], object]


def all_of(*breaks: Break) -> Break:
    """Several things that happen to a log."""

    def break_it(directory: Path) -> None:
        for each in breaks:
            each(directory)

    return break_it


Case = tuple[Break, list[int], list[tuple[int, int, int]]]

CASES: dict[str, Case] = {
    "flipped byte in a body": (lambda d: flip(log_file(d, 4), 96 + 80), [5], [(4, 96, 192)]),
    "flipped byte in a header": (lambda d: flip(log_file(d, 4), 96 + 20), [5], [(4, 96, 192)]),
    "first frame of the log": (lambda d: flip(log_file(d, 0), 3), [0], [(0, 0, 96)]),
    "last frame of a sealed segment": (lambda d: flip(log_file(d, 4), 288), [7], [(4, 288, 384)]),
    "last frame of the log": (lambda d: flip(log_file(d, 8), 288 + 80), [11], [(8, 288, 384)]),
    "several ranges": (
        all_of(
            lambda d: flip(log_file(d, 0), 0),
            lambda d: flip(log_file(d, 0), 200),
            lambda d: flip(log_file(d, 4), 100),
            lambda d: flip(log_file(d, 8), 10),
        ),
        [0, 2, 5, 8],
        [(0, 0, 96), (0, 192, 288), (4, 96, 192), (8, 0, 96)],
    ),
    "neighbours": (lambda d: overwrite(log_file(d, 4), 96, bytes(192)), [5, 6], [(4, 96, 288)]),
    "torn sealed segment": (lambda d: cut(log_file(d, 4), 200), [6, 7], [(4, 192, 200)]),
    "short sealed segment": (lambda d: cut(log_file(d, 4), 192), [6, 7], []),
    "empty sealed segment": (lambda d: cut(log_file(d, 4), 0), [4, 5, 6, 7], []),
    "missing middle segment": (
        all_of(lambda d: log_file(d, 4).unlink(), lambda d: index_file(d, 4).unlink()),
        [4, 5, 6, 7],
        [],
    ),
    "missing frame": (lambda d: remove(log_file(d, 4), 96, 192), [5], []),
    "duplicated frame": (
        lambda d: insert(log_file(d, 4), 192, log_file(d, 4).read_bytes()[96:192]),
        [],
        [(4, 192, 288)],
    ),
    "garbage between frames": (lambda d: insert(log_file(d, 4), 96, b"\xee" * 40), [], [(4, 96, 136)]),
    "garbage before all": (lambda d: insert(log_file(d, 0), 0, b"\xee" * 8), [], [(0, 0, 8)]),
    "garbage behind a sealed segment": (
        lambda d: insert(log_file(d, 4), 384, b"\xee" * 7),
        [],
        [(4, 384, 391)],
    ),
    "garbage behind all": (lambda d: insert(log_file(d, 8), 384, b"\xee" * 7), [], [(8, 384, 391)]),
    "torn end of the log": (
        lambda d: insert(log_file(d, 8), 384, bytes(frame_at(12, b"x"))[:-8]),
        [],
        [(8, 384, 472)],
    ),
    "zeroed sealed segment": (
        lambda d: overwrite(log_file(d, 4), 0, bytes(384)),
        [4, 5, 6, 7],
        [(4, 0, 384)],
    ),
    "zeroed last segment": (
        lambda d: overwrite(log_file(d, 8), 0, bytes(384)),
        [8, 9, 10, 11],
        [(8, 0, 384)],
    ),
    "sealed segment replaced by garbage": (
        lambda d: log_file(d, 4).write_bytes(b"\xff" * 1001),
        [4, 5, 6, 7],
        [(4, 0, 1001)],
    ),
    "last segment replaced by garbage": (
        lambda d: log_file(d, 8).write_bytes(b"\xff" * 1001),
        [8, 9, 10, 11],
        [(8, 0, 1001)],
    ),
    "last segment cut to nothing": (lambda d: cut(log_file(d, 8), 0), [8, 9, 10, 11], []),
    "last segment cut between frames": (lambda d: cut(log_file(d, 8), 192), [10, 11], []),
    "last segment cut inside a frame": (lambda d: cut(log_file(d, 8), 200), [10, 11], [(8, 192, 200)]),
    "everything zeroed": (
        all_of(
            lambda d: overwrite(log_file(d, 0), 0, bytes(384)),
            lambda d: overwrite(log_file(d, 4), 0, bytes(384)),
            lambda d: overwrite(log_file(d, 8), 0, bytes(384)),
        ),
        list(range(12)),
        [(0, 0, 384), (4, 0, 384), (8, 0, 384)],
    ),
    "missing index": (lambda d: index_file(d, 4).unlink(), [], []),
    "garbage for an index": (lambda d: index_file(d, 8).write_bytes(b"\xff" * 64), [], []),
    "index of another segment": (lambda d: index_file(d, 4).write_bytes(SparseIndex(3).encode()), [], []),
    "index that lies": (lambda d: index_file(d, 4).write_bytes(lying_index()), [], []),
    "no index at all": (
        all_of(
            lambda d: index_file(d, 0).unlink(),
            lambda d: index_file(d, 4).unlink(),
            lambda d: index_file(d, 8).unlink(),
        ),
        [],
        [],
    ),
}


def lying_index() -> bytes:
    index = SparseIndex(4)
    index.add(6, 0, 96)
    return index.encode()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_after_a_repair_everything_that_was_not_lost_is_there(logs: Logs, case: Case) -> None:
    break_it, lost, aside = case
    directory = filled(logs)
    break_it(directory)
    broken = {base: path.read_bytes() for base in (0, 4, 8) if (path := log_file(directory, base)).exists()}

    done = repair(logs.path, clock=logs.clock)

    # Nothing was thrown away: the side files are exactly the bytes that were taken out.
    assert side_files(directory) == {
        f"{base:020}.{start}-{end}.bytes": broken[base][start:end] for base, start, end in aside
    }
    log = logs.open(**EVERY, segment_messages=4)
    assert [record.offset for record in log.records()] == [n for n in range(12) if n not in lost]
    assert values(log) == [FLAT[n] for n in range(12) if n not in lost]
    assert (log.start, log.end) == (0, 12)
    assert [offset for span in offsets(log.frames()) for offset in range(*span)] == list(range(12))
    assert log.append(b"new", durability="fsync") == 12
    log.close()
    assert set(kinds(logs.verify().findings)) == ({"gap"} if lost else set())
    assert {m.side_file.name for m in done.mended if m.side_file} == side_files(directory).keys()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_repairing_twice_does_nothing_the_second_time(logs: Logs, case: Case) -> None:
    directory = filled(logs)
    case[0](directory)
    first = repair(logs.path, clock=logs.clock)
    assert first.mended or first.indexes_rebuilt
    before = list(tree(directory))
    second = repair(logs.path, clock=logs.clock)
    assert (second.mended, second.indexes_rebuilt) == ([], 0)
    assert (second.logs, second.segments) == (first.logs, first.segments)
    assert list(tree(directory)) == before


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_sound_log_beside_it_is_not_touched(logs: Logs, case: Case) -> None:
    other = filled(logs, "other")
    before = list(tree(other))
    case[0](filled(logs))
    assert repair(logs.path).logs == 2
    assert list(tree(other)) == before


# What it says


def test_a_repair_tells_what_it_did(logs: Logs) -> None:
    directory = filled(logs)
    flip(log_file(directory, 4), FRAME_BYTES + HEADER_BYTES)
    remove(log_file(directory, 0), 0, FRAME_BYTES)
    steps: list[int] = []
    bytes_before = total_bytes(logs.path)
    done = repair(logs.path, clock=logs.clock, progress=steps.append)
    assert (done.logs, done.segments, done.indexes_rebuilt) == (1, 3, 2)
    missing = "the frame begins with offset 1, not 0"
    rotten = "the body's checksum does not match"
    side_file = directory / QUARANTINE / f"{4:020}.96-192.bytes"
    assert done.mended == [
        Mended(log_file(directory, 0), 0, 0, (0, 1), missing, None),
        Mended(log_file(directory, 4), 96, 192, (5, 6), rotten, side_file),
    ]
    assert sum(steps) == bytes_before


def test_a_gap_says_when_and_why(logs: Logs) -> None:
    directory = filled(logs)
    flip(log_file(directory, 4), FRAME_BYTES + HEADER_BYTES)
    logs.clock.advance(100)
    repair(logs.path, clock=logs.clock)
    gap = next(frame for frame in logs.follow().frames(5))
    assert gap.is_control
    assert gap.header.append_time == gap.header.timestamp_max == logs.clock.now_us()
    (finding,) = logs.verify().findings
    assert finding.reason == f"the body's checksum does not match; set aside in {4:020}.96-192.bytes"


def test_readers_skip_a_gap(logs: Logs) -> None:
    directory = filled(logs)
    overwrite(log_file(directory, 4), FRAME_BYTES, bytes(2 * FRAME_BYTES))
    log = logs.open(**EVERY)
    with pytest.raises(Corruption):
        list(log.records(5))
    log.close()
    repair(logs.path, clock=logs.clock)
    log = logs.open(**EVERY)
    for start in (5, 6, 7):
        assert next(log.records(start)).offset == 7
    assert log.find_time(0) == 0
    assert [frame.values() for frame in log.frames(6)][:2] == [[], [b"7"]]


def test_damage_in_a_repaired_log_is_repaired_again(logs: Logs) -> None:
    directory = filled(logs)
    for number, at in enumerate((FRAME_BYTES, 0, 3 * FRAME_BYTES), start=1):
        path = log_file(directory, 4)
        flip(path, at + 20)
        repair(logs.path, clock=logs.clock)
        assert len(side_files(directory)) == number
        assert logs.verify().is_sound
    assert logs.follow().end == 12


def test_a_damaged_gap_becomes_a_gap(logs: Logs) -> None:
    directory = filled(logs)
    flip(log_file(directory, 4), FRAME_BYTES + 20)
    repair(logs.path, clock=logs.clock)
    flip(log_file(directory, 4), FRAME_BYTES + 20)
    repair(logs.path, clock=logs.clock)
    assert values(logs.follow()) == [value for value in FLAT if value != b"5"]
    assert len(side_files(directory)) == 2


def test_more_offsets_than_a_header_can_count(logs: Logs) -> None:
    directory = logs.path / "log"
    for base in (0, 10**10):
        writer = new_segment(directory, base)
        put(writer, [b"x"])
        writer.close()
    repair(logs.path, clock=logs.clock)
    log = logs.open()
    assert [record.offset for record in log.records()] == [0, 10**10]
    assert [record.offset for record in log.records(7 * 10**9)] == [10**10]
    assert log.end == 10**10 + 1


def test_segments_that_overlap_are_cut_apart(logs: Logs) -> None:
    directory = filled(logs)
    overlapping = b"".join(bytes(frame_at(n, b"second %d" % n)) for n in (6, 7))
    log_file(directory, 6).write_bytes(overlapping)
    before = log_file(directory, 4).read_bytes()
    repair(logs.path, clock=logs.clock)
    assert values(logs.follow())[5:9] == [b"5", b"second 6", b"second 7", b"8"]
    assert side_files(directory) == {f"{4:020}.192-384.bytes": before[192:]}


# What it needs


def test_a_directory_that_is_in_use_is_not_repaired(logs: Logs) -> None:
    with DataDirectory(logs.path) as directory:
        directory.log("log").append(b"x")
        for path in (logs.path, logs.path / "log"):
            with pytest.raises(DirectoryLocked):
                repair(path)
    assert repair(logs.path).logs == 1
    DataDirectory(logs.path).close()


def test_a_directory_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        repair(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_the_lock_is_free_after_a_repair_that_failed(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    directory = filled(faulty_logs)
    faulty_disk.flip(log_file(directory, 4), 100)
    faulty_disk.fill_after(10)
    with pytest.raises(DiskFull):
        repair(faulty_logs.path, disk=faulty_disk)
    faulty_disk.fill_after(None)
    done = repair(faulty_logs.path, disk=faulty_disk, clock=faulty_logs.clock)
    assert [m.offsets for m in done.mended] == [(5, 6)]
    assert not [path for path in faulty_disk.files() if path.suffix == ".tmp"]


@pytest.mark.damages
def test_a_log_of_the_future_is_not_touched(logs: Logs) -> None:
    directory = filled(logs)
    flip(log_file(directory, 4), 20)
    overwrite(log_file(directory, 4), FRAME_BYTES, frame_at(5, b"5").header._replace(version=9).pack())
    before = list(tree(directory))
    with pytest.raises(UnsupportedFrame):
        repair(logs.path)
    assert list(tree(directory)) == before


def test_a_repair_survives_power_loss(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    directory = filled(faulty_logs)
    faulty_disk.flip(log_file(directory, 4), 100)
    faulty_disk.flip(log_file(directory, 8), 300)
    repair(faulty_logs.path, disk=faulty_disk, clock=faulty_logs.clock)
    after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing"))
    assert values(after.open()) == [value for value in FLAT if value not in (b"5", b"11")]
    assert set(kinds(after.verify().findings)) == {"gap"}
    assert sum(path.parent.name == QUARANTINE for path in after.disk.files()) == 2  # type: ignore[attr-defined]


def test_what_an_interruption_left_behind_is_removed(logs: Logs) -> None:
    directory = filled(logs)
    (directory / f"{4:020}.tmp").write_bytes(b"left behind")
    (directory / f"{5:020}.idx").write_bytes(b"left behind")
    repair(logs.path)
    assert sorted(path.suffix for path in directory.iterdir()) == [".idx"] * 3 + [".log"] * 3
