"""A segment after its process or its machine stopped without warning: what stays, what goes, and where."""

import logging
from pathlib import Path
from typing import Any

import pytest
from support.damage import cut, flip, overwrite
from support.faulty_disk import FaultyDisk
from support.logs import contents, tree
from support.segments import ends, frame_at, frames_from, joined, new_segment, put, recovered

from quivermq.disk import SystemDisk
from quivermq.errors import FsyncFailed, UnsupportedFrame
from quivermq.frame import HEADER_BYTES
from quivermq.segment import index_path, inspect_tail, log_path
from quivermq.segment.index import ENTRY_BYTES, SparseIndex
from quivermq.segment.recovery import QUARANTINE
from quivermq.settings import StorageSettings

# Every frame gets an entry of its own in the index, so that each can be the mark.
EVERY: dict[str, Any] = {"index_interval_bytes": 1}
BATCHES = [[b"a"], [b"bb", b"cc"], [b"dddd"], [b"e", b"f", b"g"], [b"h" * 50]]
FRAMES = frames_from(0, *BATCHES)
ENDS = ends(FRAMES)
OFFSETS = [0, 1, 3, 4, 7, 8]
DATA = joined(FRAMES)


def killed(directory: Path, *, synced: int) -> tuple[Path, Path]:
    """A segment of all frames whose process was killed after it had synced the first `synced`."""
    writer = new_segment(directory, **EVERY)
    put(writer, *BATCHES[:synced])
    writer.sync()
    put(writer, *BATCHES[synced:])
    writer.abandon()
    log, index = log_path(directory, 0), index_path(directory, 0)
    assert log.read_bytes() == DATA
    return log, index


def closed(directory: Path) -> tuple[Path, Path]:
    """A segment of all frames that was closed in order."""
    writer = new_segment(directory, **EVERY)
    put(writer, *BATCHES)
    writer.close()
    return log_path(directory, 0), index_path(directory, 0)


def marks(index: Path) -> list[tuple[int, int]]:
    """Offset and position of every entry in an index file."""
    loaded = SparseIndex.load(index.read_bytes(), 0)
    assert loaded is not None
    return list(zip(loaded.offsets, loaded.positions, strict=True))


def side_files(directory: Path) -> dict[str, bytes]:
    return contents(directory / QUARANTINE)


# After a clean close


def test_after_a_clean_close_nothing_is_written(tmp_path: Path) -> None:
    closed(tmp_path)
    before = list(tree(tmp_path))
    tail = recovered(tmp_path, **EVERY)
    assert tail.is_closed
    assert (tail.end, tail.end_offset, tail.cut, tail.damages) == (len(DATA), 8, None, [])
    assert list(tree(tmp_path)) == before


def test_an_empty_segment_needs_no_recovery(tmp_path: Path) -> None:
    new_segment(tmp_path, 7).close()
    before = list(tree(tmp_path))
    tail = recovered(tmp_path, 7)
    assert (tail.is_closed, tail.end, tail.end_offset) == (True, 0, 7)
    assert list(tree(tmp_path)) == before


def test_what_a_torn_write_left_behind_the_last_entry_is_taken_away(tmp_path: Path) -> None:
    _, index = closed(tmp_path)
    whole = index.read_bytes()
    index.write_bytes(whole + b"torn")
    assert recovered(tmp_path, **EVERY).is_closed
    assert index.read_bytes() == whole


# After a kill


def test_what_was_not_synced_is_written_again_and_stays(tmp_path: Path) -> None:
    disk = FaultyDisk()
    writer = new_segment(tmp_path, disk=disk, **EVERY)
    put(writer, *BATCHES[:2])
    writer.sync()
    put(writer, *BATCHES[2:])
    disk = disk.after_kill()
    tail = recovered(tmp_path, disk=disk, **EVERY)
    assert (tail.end, tail.end_offset, tail.cut) == (len(DATA), 8, None)
    log = log_path(tmp_path, 0)
    assert [step.operation for step in disk.history if step.path == log] == ["rewrite", "sync"]
    assert disk.after_power_loss(keep="nothing").files()[log] == DATA


def test_what_an_earlier_sync_lost_is_written_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    writer = new_segment(tmp_path, disk=disk, **EVERY)
    put(writer, *BATCHES)
    disk.fail_sync("*.log")
    with pytest.raises(FsyncFailed):
        writer.sync()
    # Processes see the bytes, and the kernel believes that they are on the disk.
    disk = disk.after_kill()
    recovered(tmp_path, disk=disk, **EVERY)
    assert disk.after_power_loss(keep="nothing").files()[log_path(tmp_path, 0)] == DATA


def test_the_whole_tail_is_written_again_however_long(tmp_path: Path) -> None:
    disk = FaultyDisk()
    writer = new_segment(tmp_path, disk=disk)
    put(writer, *([[bytes(700_000)]] * 4))
    recovered(tmp_path, disk=disk)
    log = log_path(tmp_path, 0)
    assert len(disk.after_power_loss(keep="nothing").files()[log]) == writer.segment.end


def test_recovery_leaves_a_mark_at_the_end(tmp_path: Path) -> None:
    _, index = killed(tmp_path, synced=2)
    assert marks(index) == [(1, ENDS[0])]
    recovered(tmp_path, **EVERY)
    assert marks(index)[-1] == (8, len(DATA))
    assert inspect_tail(SystemDisk(), tmp_path, 0, StorageSettings()).is_closed


@pytest.mark.parametrize("synced", range(len(BATCHES)))
@pytest.mark.parametrize("torn_bytes", [1, 40, 79, 80, 90])
def test_a_torn_tail_is_cut_at_the_last_whole_frame(tmp_path: Path, synced: int, torn_bytes: int) -> None:
    log, _ = killed(tmp_path, synced=synced)
    size = ENDS[3] + torn_bytes
    cut(log, size)
    tail = recovered(tmp_path, **EVERY)
    assert tail.cut is not None
    assert (tail.cut.position, tail.cut.end, tail.cut.offsets) == (ENDS[3], size, (7, None))
    assert (tail.end, tail.end_offset) == (ENDS[3], 7)
    assert log.read_bytes() == DATA[: ENDS[3]]
    # A torn write is nobody's message: nothing is set aside.
    assert not (tmp_path / QUARANTINE).exists()


@pytest.mark.parametrize("garbage", [bytes(5), bytes(4096), b"\xff" * 300, b"QVF1" * 50])
def test_garbage_behind_the_end_is_cut(tmp_path: Path, garbage: bytes) -> None:
    log, _ = killed(tmp_path, synced=5)
    log.write_bytes(DATA + garbage)
    tail = recovered(tmp_path, **EVERY)
    assert (tail.end, tail.end_offset) == (len(DATA), 8)
    assert log.read_bytes() == DATA


def test_a_cut_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, _ = killed(tmp_path, synced=5)
    log.write_bytes(DATA + b"garbage")
    with caplog.at_level(logging.WARNING):
        recovered(tmp_path, **EVERY)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"{log} ends in a torn write: cut 7 bytes behind offset 8 (")


def test_whole_frames_behind_a_hole_are_set_aside_and_cut(tmp_path: Path) -> None:
    log, _ = killed(tmp_path, synced=1)
    overwrite(log, ENDS[1], bytes(HEADER_BYTES))
    broken = log.read_bytes()
    tail = recovered(tmp_path, **EVERY)
    assert tail.cut is not None
    assert (tail.cut.position, tail.cut.offsets) == (ENDS[1], (3, 4))
    assert (tail.end, tail.end_offset, tail.damages) == (ENDS[1], 3, [])
    assert log.read_bytes() == DATA[: ENDS[1]]
    name = f"{log.stem}.{ENDS[1]}-{len(DATA)}.bytes"
    assert side_files(tmp_path) == {name: broken[ENDS[1] :]}


@pytest.mark.damages
def test_before_the_mark_nothing_is_looked_at(tmp_path: Path) -> None:
    # It was on stable storage, so what is wrong there is damage, which only a repair may touch.
    log, _ = killed(tmp_path, synced=5)
    flip(log, ENDS[0] + 10)
    broken = log.read_bytes()
    tail = recovered(tmp_path, **EVERY)
    assert (tail.end, tail.end_offset, tail.cut, tail.damages) == (len(DATA), 8, None, [])
    assert log.read_bytes() == broken


@pytest.mark.damages
@pytest.mark.parametrize("synced", range(len(BATCHES) + 1))
@pytest.mark.parametrize("position", [0, *ENDS[:-1]])
def test_recovering_twice_gives_the_same_bytes(tmp_path: Path, synced: int, position: int) -> None:
    log, _ = killed(tmp_path, synced=synced)
    flip(log, position + 10)
    cut(log, len(DATA) - 9)
    recovered(tmp_path, **EVERY)
    once = list(tree(tmp_path))
    recovered(tmp_path, **EVERY)
    assert list(tree(tmp_path)) == once


# Without an index to believe


def damage_the_index(index: Path, how: str) -> None:
    data = index.read_bytes()
    match how:
        case "missing":
            index.unlink()
        case "empty":
            index.write_bytes(b"")
        case "garbage":
            index.write_bytes(b"\xff" * len(data))
        case "of another segment":
            index.write_bytes(SparseIndex(1).encode() + data[ENTRY_BYTES:])


UNBELIEVABLE = ["missing", "empty", "garbage", "of another segment"]


@pytest.mark.parametrize("how", UNBELIEVABLE)
def test_a_segment_without_an_index_is_read_from_its_beginning(tmp_path: Path, how: str) -> None:
    log, index = closed(tmp_path)
    whole = index.read_bytes()
    damage_the_index(index, how)
    tail = recovered(tmp_path, **EVERY)
    assert not tail.marked
    assert (tail.end, tail.end_offset, tail.cut, tail.damages) == (len(DATA), 8, None, [])
    assert (log.read_bytes(), index.read_bytes()) == (DATA, whole)


@pytest.mark.parametrize("how", UNBELIEVABLE)
def test_without_an_index_a_torn_tail_is_cut(tmp_path: Path, how: str) -> None:
    log, index = closed(tmp_path)
    damage_the_index(index, how)
    cut(log, len(DATA) - 1)
    recovered(tmp_path, **EVERY)
    assert log.read_bytes() == DATA[: ENDS[3]]
    assert marks(index)[-1] == (7, ENDS[3])


@pytest.mark.damages
@pytest.mark.parametrize("how", UNBELIEVABLE)
def test_without_an_index_a_hole_is_damage_and_stays(tmp_path: Path, how: str) -> None:
    log, index = closed(tmp_path)
    damage_the_index(index, how)
    flip(log, ENDS[0] + 20)
    flip(log, ENDS[2] + HEADER_BYTES)
    broken = log.read_bytes()
    tail = recovered(tmp_path, **EVERY)
    assert [(d.position, d.end, d.offsets) for d in tail.damages] == [
        (ENDS[0], ENDS[1], (1, 3)),
        (ENDS[2], ENDS[3], (4, 7)),
    ]
    assert (tail.end, tail.end_offset, tail.cut) == (len(DATA), 8, None)
    assert log.read_bytes() == broken
    assert not (tmp_path / QUARANTINE).exists()


@pytest.mark.damages
def test_without_an_index_the_tail_of_a_segment_that_is_not_the_last_stays(tmp_path: Path) -> None:
    log, index = closed(tmp_path)
    index.unlink()
    cut(log, len(DATA) - 1)
    tail = recovered(tmp_path, is_last=False, **EVERY)
    assert tail.cut is None
    assert [d.position for d in tail.damages] == [ENDS[3]]
    assert log.read_bytes() == DATA[:-1]


@pytest.mark.damages
def test_a_short_index_is_a_mark_as_far_as_it_goes(tmp_path: Path) -> None:
    log, index = closed(tmp_path)
    whole = index.read_bytes()
    cut(index, 3 * ENTRY_BYTES + 7)
    flip(log, 5)
    tail = recovered(tmp_path, **EVERY)
    assert (tail.marked, tail.synced, tail.end) == (True, ENDS[1], len(DATA))
    assert index.read_bytes() == whole


def test_an_old_copy_of_the_index_is_a_mark_as_well(tmp_path: Path) -> None:
    writer = new_segment(tmp_path, **EVERY)
    put(writer, *BATCHES[:3])
    writer.sync()
    index = index_path(tmp_path, 0)
    old = index.read_bytes()
    put(writer, *BATCHES[3:])
    writer.close()
    new = index.read_bytes()
    index.write_bytes(old)
    recovered(tmp_path, **EVERY)
    assert index.read_bytes() == new


@pytest.mark.parametrize("size", [100, 150, 200, 300])
def test_an_index_of_another_log_does_not_cut_this_one_to_pieces(tmp_path: Path, size: int) -> None:
    other = new_segment(tmp_path / "other", **EVERY)
    put(other, *([[bytes(size)]] * 3))
    other.close()
    log, index = closed(tmp_path / "log")
    index.write_bytes(index_path(tmp_path / "other", 0).read_bytes())
    tail = recovered(tmp_path / "log", **EVERY)
    assert (tail.end, tail.end_offset, tail.cut) == (len(DATA), 8, None)
    assert log.read_bytes() == DATA
    assert marks(index)[-1] == (8, len(DATA))


# A file that is shorter than it was


@pytest.mark.damages
@pytest.mark.parametrize("size", [0, 50, ENDS[1], ENDS[1] + 1, ENDS[2], ENDS[3], len(DATA) - 1])
def test_a_file_that_lost_synced_bytes_is_cut_and_told(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    log, index = closed(tmp_path)
    marked = index.read_bytes()
    cut(log, size)
    whole = max(n for n, end in enumerate([0, *ENDS]) if end <= size)
    tail = recovered(tmp_path, **EVERY)
    assert (tail.end, tail.end_offset) == ([0, *ENDS][whole], OFFSETS[whole])
    assert (tail.marked_offset, log.read_bytes()) == (8, DATA[: tail.end])
    # Until the log says so itself, the index is all that knows of what is gone.
    assert (tail.index_is_old, index.read_bytes()) == (True, marked)
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.message == (
        f"{log} is shorter than it was when last synced: offsets [{OFFSETS[whole]}, 8) are gone"
    )


# What a later release wrote


@pytest.mark.damages
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("broken_before", [True, False])
def test_a_frame_of_the_future_is_not_cut(tmp_path: Path, has_index: bool, broken_before: bool) -> None:
    log, index = killed(tmp_path, synced=2)
    header = FRAMES[3].header._replace(version=9)
    overwrite(log, ENDS[2], header.pack())
    if broken_before:
        flip(log, ENDS[1] + HEADER_BYTES)
    if not has_index:
        index.unlink()
    before = list(tree(tmp_path))
    with pytest.raises(UnsupportedFrame):
        recovered(tmp_path, **EVERY)
    assert list(tree(tmp_path)) == before


# A message that contains a frame


@pytest.mark.parametrize("has_index", [True, False])
def test_a_torn_frame_that_contains_a_frame_is_just_torn(tmp_path: Path, has_index: bool) -> None:
    writer = new_segment(tmp_path, **EVERY)
    put(writer, [b"a"])
    writer.sync()
    contained = bytes(frame_at(2, b"x" * 16))
    put(writer, [contained, bytes(400)])
    writer.abandon()
    log, index = log_path(tmp_path, 0), index_path(tmp_path, 0)
    cut(log, log.stat().st_size - 100)
    if not has_index:
        index.unlink()
    tail = recovered(tmp_path, **EVERY)
    assert (tail.end, tail.end_offset, tail.damages) == (ENDS[0], 1, [])
    assert not (tmp_path / QUARANTINE).exists()


@pytest.mark.parametrize("torn", [b"", b"half an entry"])
def test_an_index_that_is_whole_is_only_added_to(tmp_path: Path, torn: bytes) -> None:
    """Thousands of logs may have to be recovered at once, and a new file takes two syncs more."""
    _, index = killed(tmp_path, synced=2)
    before, inode = index.read_bytes(), index.stat().st_ino
    index.write_bytes(before + torn)
    recovered(tmp_path, **EVERY)
    after = index.read_bytes()
    assert after.startswith(before)
    assert after == closed(tmp_path / "closed")[1].read_bytes()
    assert (index.stat().st_ino == inode) is not bool(torn)
