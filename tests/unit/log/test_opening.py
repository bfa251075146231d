"""From the files that a crash left to a log: what stays, what goes to quarantine, what is read at all."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.damage import cut, flip, overwrite
from support.faulty_disk import FaultyDisk, FaultyFile
from support.logs import Logs, contents, kinds, tree, values
from support.segments import ends, frames_from

from quivermq.errors import Corruption, StorageFailed, UnsupportedFrame
from quivermq.frame import HEADER_BYTES, Frame
from quivermq.log import Log
from quivermq.segment.recovery import QUARANTINE

# One entry a frame, so that everything synced is marked.
EVERY: dict[str, Any] = {"index_interval_bytes": 1, "segment_messages": 4}
FRAME_BYTES = 96


def crashed(logs: Logs, tmp_path: Path, *, synced: int, count: int = 12) -> Logs:
    """What is left of a log of one-message frames, four a segment, of which the first were synced."""
    log = logs.open(**EVERY)
    for n in range(count):
        log.append(b"%d" % n)
        if n + 1 == synced:
            log.sync()
    return logs.after_kill(tmp_path / "crashed")


def log_file(logs: Logs, base: int) -> Path:
    return logs.path / "log" / f"{base:020}.log"


def side_files(logs: Logs) -> dict[str, bytes]:
    return contents(logs.path / "log" / QUARANTINE)


def reopened(logs: Logs) -> Iterator[Log]:
    """The log, opened twice: the second time nothing may be left to do."""
    log = logs.open(**EVERY)
    yield log
    log.close()
    before = list(tree(logs.path))
    log = logs.open(**EVERY)
    yield log
    log.close()
    assert list(tree(logs.path)) == before


@pytest.mark.parametrize("synced", [0, 1, 4, 5, 8, 11, 12])
def test_after_a_kill_everything_is_there(logs: Logs, tmp_path: Path, synced: int) -> None:
    after = crashed(logs, tmp_path, synced=synced)
    for log in reopened(after):
        assert values(log) == [b"%d" % n for n in range(12)]
    assert not side_files(after)
    assert kinds(after.verify().findings) == []


@pytest.mark.parametrize("size", [1, 50, FRAME_BYTES + 1, 4 * FRAME_BYTES - 1])
def test_behind_a_torn_segment_nothing_was_durable(
    logs: Logs, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    after = crashed(logs, tmp_path, synced=2)
    third = log_file(after, 8).read_bytes()
    cut(log_file(after, 4), size)
    whole = size // FRAME_BYTES
    with caplog.at_level(logging.WARNING):
        for log in reopened(after):
            assert values(log) == [b"%d" % n for n in range(4 + whole)]
            assert log.end == 4 + whole
    assert side_files(after) == {f"{8:020}.0-{len(third)}.bytes": third}
    assert [p.name for p in log_file(after, 0).parent.glob("*.log")] == [f"{0:020}.log", f"{4:020}.log"]
    assert "lies behind a hole in the log: moved to quarantine" in caplog.text


@pytest.mark.parametrize("frames", [0, 1, 3])
def test_a_segment_that_lost_whole_frames_is_a_hole_too(logs: Logs, tmp_path: Path, frames: int) -> None:
    """After power loss a file may end anywhere, also between two frames."""
    after = crashed(logs, tmp_path, synced=2)
    third = log_file(after, 8).read_bytes()
    cut(log_file(after, 4), frames * FRAME_BYTES)
    for log in reopened(after):
        assert values(log) == [b"%d" % n for n in range(4 + frames)]
    assert side_files(after) == {f"{8:020}.0-{len(third)}.bytes": third}


def test_a_hole_in_the_middle_of_a_segment_sets_everything_behind_it_aside(
    logs: Logs, tmp_path: Path
) -> None:
    after = crashed(logs, tmp_path, synced=2)
    overwrite(log_file(after, 4), FRAME_BYTES, bytes(FRAME_BYTES))
    second, third = log_file(after, 4).read_bytes(), log_file(after, 8).read_bytes()
    for log in reopened(after):
        assert values(log) == [b"%d" % n for n in range(5)]
    assert side_files(after) == {
        f"{4:020}.{FRAME_BYTES}-{4 * FRAME_BYTES}.bytes": second[FRAME_BYTES:],
        f"{8:020}.0-{4 * FRAME_BYTES}.bytes": third,
    }


@pytest.mark.damages
def test_a_segment_that_lost_what_was_synced_is_damage(logs: Logs, tmp_path: Path) -> None:
    after = crashed(logs, tmp_path, synced=8)
    third = log_file(after, 8).read_bytes()
    cut(log_file(after, 4), 2 * FRAME_BYTES)
    log = after.open(**EVERY)
    reading = log.records()
    assert [next(reading).value for _ in range(6)] == [b"%d" % n for n in range(6)]
    with pytest.raises(Corruption) as told:
        next(reading)
    assert (told.value.path, told.value.offsets) == (log_file(after, 4), (6, 8))
    # What follows was acknowledged, so it is not moved away behind anybody's back.
    assert log_file(after, 8).read_bytes() == third
    assert log.append(b"new") == 12
    log.close()


@pytest.mark.damages
@pytest.mark.parametrize("synced", [10, 11, 12])
def test_a_missing_segment_is_damage_and_not_the_work_of_a_crash(
    logs: Logs, tmp_path: Path, synced: int
) -> None:
    after = crashed(logs, tmp_path, synced=synced)
    third = log_file(after, 8).read_bytes()
    log_file(after, 4).unlink()
    log = after.open(**EVERY)
    # The mark in the last segment says that everything before it was durable.
    assert (log.end, log_file(after, 8).read_bytes()) == (12, third)
    with pytest.raises(Corruption) as told:
        list(log.records())
    assert (told.value.path, told.value.offsets) == (log_file(after, 0), (4, 8))
    log.close()
    assert not side_files(after)


def test_an_empty_last_segment_is_no_reason_to_trust_the_one_before(logs: Logs, tmp_path: Path) -> None:
    # The process died after it had made the next segment and before it wrote to it.
    after = crashed(logs, tmp_path, synced=2, count=5)
    cut(log_file(after, 4), 0)
    cut(log_file(after, 0), 3 * FRAME_BYTES + 7)
    for log in reopened(after):
        assert values(log) == [b"0", b"1", b"2"]
        assert log.end == 3


def test_a_log_that_was_opened_and_lost_what_came_then(logs: Logs, tmp_path: Path) -> None:
    """Its first segment was closed once, so its mark stands at the end of what is left of it."""
    with logs.open(**EVERY) as log:
        for n in range(2):
            log.append(b"%d" % n)
    after = crashed(logs, tmp_path, synced=0, count=8)
    assert after.follow().end == 10
    cut(log_file(after, 0), 2 * FRAME_BYTES)
    fifth = log_file(after, 4).read_bytes()
    last = log_file(after, 8).read_bytes()
    for log in reopened(after):
        assert values(log) == [b"0", b"1"]
    assert sorted(side_files(after).values()) == sorted([fifth, last])


# Names


def test_what_an_interruption_left_behind_is_removed(logs: Logs) -> None:
    with logs.open() as log:
        log.append(b"a")
    directory = log.directory
    for name in (f"{0:020}.tmp", f"{7:020}.tmp", f"{7:020}.idx"):
        (directory / name).write_bytes(b"left behind")
    mine = ["notes.txt", f"{7:020}.bak", "0.log", "notes.tmp", "my.idx", f"{0:020}.log.tmp", f"{2**63}.idx"]
    for name in mine:
        (directory / name).write_bytes(b"mine")
    logs.open().close()
    assert sorted(contents(directory)) == sorted([f"{0:020}.idx", f"{0:020}.log", *mine])


@pytest.mark.parametrize("name", [f"{7:020}.tmp", f"{7:020}.idx", "x.tmp"])
def test_a_directory_that_is_called_like_something_left_behind_stays(logs: Logs, name: str) -> None:
    with logs.open() as log:
        log.append(b"a")
    (log.directory / name).mkdir()
    (log.directory / name / "mine").write_bytes(b"mine")
    with logs.open() as log:
        assert values(log) == [b"a"]
    assert (log.directory / name / "mine").read_bytes() == b"mine"


def test_names_beyond_the_largest_offset_are_ignored(logs: Logs) -> None:
    with logs.open() as log:
        log.append(b"a")
    (log.directory / f"{10**20 - 1}.log").write_bytes(b"mine")
    assert values(logs.follow()) == [b"a"]
    with logs.open() as log:
        assert log.append(b"b") == 1
    (log.directory / f"{10**20 - 1}.log").unlink()


@pytest.mark.damages
def test_a_segment_that_is_a_link_is_refused_and_what_it_points_to_stays(
    logs: Logs, tmp_path: Path
) -> None:
    with logs.open() as log:
        log.append(b"a")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    log_file(logs, 1).symlink_to(victim)
    for opener in (logs.open, logs.follow):
        with pytest.raises(StorageFailed, match="is not a regular file"):
            opener()
    assert victim.read_bytes() == b"precious"
    log_file(logs, 1).unlink()


def test_names_that_nobody_made_durable_are_durable_after_opening(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    faulty_logs.open().close()
    faulty_disk.create(Path(f"/data/log/{0:020}.tmp")).close()
    faulty_disk.sync_directory(Path("/data/log"))
    faulty_logs.open().close()
    after = faulty_disk.after_power_loss(keep="nothing")
    assert sorted(path.name for path in after.files()) == [f"{0:020}.idx", f"{0:020}.log"]


# How much is read


class Counted:
    """How many bytes of log files are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        read = FaultyFile.read

        def counted(file: FaultyFile, position: int, length: int) -> bytes:
            data = read(file, position, length)
            self.bytes += len(data) if file.path.suffix == ".log" else 0
            return data

        monkeypatch.setattr(FaultyFile, "read", counted)


@pytest.mark.parametrize("is_closed", [True, False])
def test_opening_reads_only_what_lies_behind_the_last_entry(
    faulty_logs: Logs, faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    log = faulty_logs.open(segment_bytes=2**20)
    for _ in range(40):
        log.append(bytes(50_000))
    if is_closed:
        log.close()
    else:
        log.sync()
    counted = Counted(monkeypatch)
    after = Logs(faulty_logs.path, faulty_disk.after_kill())
    assert after.open(segment_bytes=2**20).end == 40
    assert counted.bytes < 400_000 < log.size_bytes / 4


# What a later release wrote


@pytest.mark.damages
def test_a_log_of_the_future_is_not_opened_and_not_touched(logs: Logs, tmp_path: Path) -> None:
    after = crashed(logs, tmp_path, synced=9)
    frame: Frame = frames_from(10, [b"10"])[0]
    future = frame.header._replace(version=9).pack()
    overwrite(log_file(after, 8), 2 * FRAME_BYTES, future)
    flip(log_file(after, 8), FRAME_BYTES + HEADER_BYTES)
    before = list(tree(after.path))
    with pytest.raises(UnsupportedFrame, match="version 9"):
        after.open(**EVERY)
    assert list(tree(after.path)) == before


def test_an_index_that_is_gone_is_written_again(logs: Logs) -> None:
    with logs.open(**EVERY) as log:
        for number in range(12):
            log.append(b"%d" % number)
    before = contents(log.directory)
    for path in log.directory.glob("*.idx"):
        path.unlink()
        logs.open(**EVERY).close()
        assert contents(log.directory) == before


@pytest.mark.damages
def test_a_damaged_segment_gets_no_index_that_hides_it(logs: Logs) -> None:
    with logs.open(**EVERY) as log:
        for number in range(12):
            log.append(b"%d" % number)
    damaged = log_file(logs, 0)
    flip(damaged, HEADER_BYTES)
    damaged.with_suffix(".idx").unlink()
    with logs.open(**EVERY) as log, pytest.raises(Corruption):
        list(log.frames())
    assert not damaged.with_suffix(".idx").exists()


# Damage in the last segment, without an index


@pytest.mark.damages
def test_without_an_index_damage_is_known_from_the_start(logs: Logs, tmp_path: Path) -> None:
    after = crashed(logs, tmp_path, synced=12)
    log_file(after, 8).with_suffix(".idx").unlink()
    flip(log_file(after, 8), FRAME_BYTES + HEADER_BYTES)
    log = after.open(**EVERY)
    with pytest.raises(Corruption) as told:
        list(log.frames(11))
    assert (told.value.position, told.value.offsets) == (FRAME_BYTES, (9, 10))
    assert log.append(b"new") == 12
    log.close()
    follower = after.follow(**EVERY)
    with pytest.raises(Corruption):
        list(follower.frames())


@pytest.mark.damages
@pytest.mark.parametrize("where", [0, 20, HEADER_BYTES])
def test_a_log_whose_first_frame_is_rotten_can_be_opened_and_written_to(logs: Logs, where: int) -> None:
    with logs.open(**EVERY) as log:
        for n in range(3):
            log.append(b"%d" % n)
    flip(log_file(logs, 0), where)
    log = logs.open(**EVERY, segment_ms=1000)
    assert log.append(b"3") == 3
    with pytest.raises(Corruption) as told:
        list(log.records())
    assert told.value.offsets == (0, 1)
    logs.clock.advance(1)
    assert log.append(b"4") == 4
    assert log.retain().segments == 0


def test_ends_is_what_the_tests_think_it_is() -> None:
    assert ends(frames_from(0, [b"0"], [b"11"])) == [FRAME_BYTES, 2 * FRAME_BYTES]
