import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.faulty_disk import FaultyDisk, FaultyFile
from support.segments import NOON_US, Batch, ends, frames_from, joined, new_segment, put, recovered

from quivermq.disk import Buffer, SystemDisk
from quivermq.errors import DiskFull, FsyncFailed, StorageFailed
from quivermq.frame import encode, lone_frame
from quivermq.segment import Segment, SegmentWriter, index_path, load_index, log_path
from quivermq.segment.index import SparseIndex
from quivermq.settings import StorageSettings

EVERY: dict[str, Any] = {"index_interval_bytes": 1}
BATCHES: list[Batch] = [[b"a"], [b"bb", b"cc"], [b"dddd"], [b"e", b"f", b"g"], [b"h" * 50]]
FRAMES = frames_from(0, *BATCHES)
STARTS = [0, *ends(FRAMES)]
OFFSETS = [0, 1, 3, 4, 7, 8]
DATA = joined(FRAMES)
DIRECTORY = Path("/log")
LOG, INDEX = log_path(DIRECTORY, 0), index_path(DIRECTORY, 0)


@pytest.fixture
def disk(faulty_disk: FaultyDisk) -> FaultyDisk:
    return faulty_disk


def marks(disk: FaultyDisk) -> list[tuple[int, int]]:
    """Offset and position of every entry in the index file."""
    loaded = load_index(disk, DIRECTORY, 0)
    assert loaded is not None
    return list(zip(loaded.offsets, loaded.positions, strict=True))


def resumed(disk: FaultyDisk, **settings: Any) -> SegmentWriter:
    tail = recovered(DIRECTORY, disk=disk, **EVERY | settings)
    segment = Segment(
        disk,
        DIRECTORY,
        0,
        StorageSettings(**EVERY | settings),
        end_offset=tail.end_offset,
        end=tail.end,
        index=tail.index,
        timestamp_max=tail.timestamp_max,
    )
    return SegmentWriter.resume(segment, tail)


# Appending


def test_frames_are_stamped_and_lie_one_behind_the_other(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES)
    assert disk.files()[LOG] == DATA
    segment = writer.segment
    assert (segment.end, segment.end_offset, segment.messages) == (len(DATA), 8, 8)


def test_several_frames_at_once_are_one_write(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    before = disk.steps
    writer.append([encode(batch, timestamp=NOON_US) for batch in BATCHES], NOON_US)
    assert [step.operation for step in disk.history[before:]] == ["append"]
    assert disk.files()[LOG] == DATA
    writer.close()
    assert marks(disk) == list(zip(OFFSETS, STARTS, strict=True))[1:]


def test_a_value_is_appended_as_its_frame_would_be(disk: FaultyDisk) -> None:
    values = [b"", b"a", b"seven b", b"eight by", b"x" * 100]
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    for value in values:
        before = disk.steps
        writer.append_lone(lone_frame(value), NOON_US)
        assert [step.operation for step in disk.history[before:]] == ["append"]
    frames = frames_from(0, *([value] for value in values))
    assert disk.files()[LOG] == joined(frames)
    assert (writer.segment.end, writer.segment.end_offset) == (len(joined(frames)), len(values))
    assert writer.first_append_time == NOON_US
    writer.close()
    assert marks(disk) == list(zip(range(1, len(values) + 1), ends(frames), strict=True))


def test_the_first_append_time_is_that_of_the_first_frame(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    assert writer.first_append_time is None
    for now_us in (5, 6):
        writer.append([encode([b"x"], timestamp=0)], now_us)
    assert writer.first_append_time == 5
    writer.close()
    assert resumed(disk).first_append_time == 5


def test_readers_see_the_offset_only_when_the_bytes_are_there(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    seen = []

    class Watched(Segment):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in ("end", "end_offset"):
                seen.append((self.end, self.end_offset))

    writer.segment.__class__ = Watched
    put(writer, *BATCHES[:2])
    assert seen == [(STARTS[1], 0), (STARTS[1], 1), (STARTS[2], 1), (STARTS[2], 3)]


# What can go wrong


@pytest.mark.parametrize("room_bytes", [0, 1, 79, 80, 95])
def test_a_full_disk_leaves_nothing_of_the_write(disk: FaultyDisk, room_bytes: int) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES[:2])
    disk.fill_after(room_bytes)
    frames = [encode(batch, timestamp=NOON_US) for batch in BATCHES[2:4]]
    for _ in range(2):
        with pytest.raises(DiskFull):
            writer.append(frames, NOON_US)
        assert disk.files()[LOG] == DATA[: STARTS[2]]
        assert (writer.segment.end, writer.segment.end_offset) == (STARTS[2], 3)
    disk.fill_after(None)
    put(writer, *BATCHES[2:])
    assert disk.files()[LOG] == DATA
    writer.close()
    assert marks(disk) == list(zip(OFFSETS, STARTS, strict=True))[1:]


@pytest.mark.parametrize("room_bytes", [0, 1, 79, 80, 95])
def test_a_full_disk_leaves_nothing_of_a_value(disk: FaultyDisk, room_bytes: int) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    writer.append_lone(lone_frame(b"a"), NOON_US)
    disk.fill_after(room_bytes)
    for _ in range(2):
        with pytest.raises(DiskFull):
            writer.append_lone(lone_frame(b"dddd"), NOON_US)
        assert disk.files()[LOG] == DATA[: STARTS[1]]
        assert (writer.segment.end, writer.segment.end_offset) == (STARTS[1], 1)
    disk.fill_after(None)
    put(writer, *BATCHES[1:])
    assert disk.files()[LOG] == DATA
    writer.close()
    assert marks(disk) == list(zip(OFFSETS, STARTS, strict=True))[1:]


class Broken(FaultyFile):
    """A file that writes a part of what it is given, and then breaks."""

    error: BaseException

    def append(self, buffers: Sequence[Buffer]) -> int:
        super().append([b"".join(buffers)[:50]])
        raise self.error


@pytest.mark.parametrize("error", [StorageFailed("broken", path=LOG), KeyboardInterrupt(), MemoryError()])
def test_whatever_interrupts_a_write_nothing_of_it_stays(disk: FaultyDisk, error: BaseException) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES[:2])
    file = writer._log_file
    assert isinstance(file, FaultyFile)
    Broken.error = error
    file.__class__ = Broken
    with pytest.raises(type(error)):
        put(writer, BATCHES[2])
    file.__class__ = FaultyFile
    assert disk.files()[LOG] == DATA[: STARTS[2]]
    put(writer, *BATCHES[2:])
    assert disk.files()[LOG] == DATA


@pytest.mark.parametrize("room_bytes", [0, 20])
def test_a_full_disk_does_not_fail_what_is_in_the_log_already(
    disk: FaultyDisk, room_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES)
    disk.fill_after(room_bytes)
    with caplog.at_level(logging.WARNING):
        writer.sync()
    assert writer.is_synced
    (record,) = caplog.records
    assert record.message.startswith(f"stopped writing the index of {LOG}: no space left")
    disk.fill_after(None)
    # It is given up for good: an entry behind half an entry would never be found.
    put(writer, [b"more"])
    writer.close()
    assert marks(disk) == []
    assert disk.after_power_loss(keep="nothing").files()[LOG].startswith(DATA)
    assert resumed(disk).segment.end_offset == 9
    assert marks(disk)[-1] == (9, writer.segment.end)


def test_a_failed_sync_is_told(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES)
    disk.fail_sync("*.log")
    with pytest.raises(FsyncFailed):
        writer.sync()
    assert not writer.is_synced
    # No entry may promise what no sync has confirmed.
    assert marks(disk) == []


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("step", ["append", "create the log", "sync the directory"])
def test_a_segment_that_cannot_be_created_keeps_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    disk = SystemDisk()
    create = disk.create

    def fail(*_: object) -> Any:
        raise DiskFull(tmp_path, needed_bytes=1)

    def create_failing(path: Path) -> Any:
        if step == "create the log" and path.suffix == ".log":
            fail()
        file = create(path)
        if step == "append":
            monkeypatch.setattr(file, "append", fail)
        return file

    monkeypatch.setattr(disk, "create", create_failing)
    if step == "sync the directory":
        monkeypatch.setattr(disk, "sync_directory", fail)
    before = open_descriptors()
    for _ in range(3):
        # When not even its removal can be made durable, nothing may be written any more.
        with pytest.raises(StorageFailed if step == "sync the directory" else DiskFull):
            SegmentWriter.create(disk, tmp_path, 0, StorageSettings())
    assert open_descriptors() == before


# Syncing


def test_what_was_synced_survives_power_loss(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES[:3])
    assert not writer.is_synced
    writer.sync()
    assert writer.is_synced
    put(writer, *BATCHES[3:])
    after = disk.after_power_loss(keep="nothing")
    assert after.files()[LOG] == DATA[: STARTS[3]]


def test_syncing_nothing_new_does_nothing(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    writer.sync()
    put(writer, *BATCHES)
    writer.sync()
    before = disk.steps
    writer.sync()
    assert disk.steps == before


def test_entries_reach_the_file_behind_the_sync_that_covers_them(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES[:3])
    assert marks(disk) == []
    before = disk.steps
    writer.sync()
    assert [(step.operation, step.path.suffix) for step in disk.history[before:]] == [
        ("sync", ".log"),
        ("append", ".idx"),
    ]
    assert marks(disk) == [(1, STARTS[1]), (3, STARTS[2])]


def test_what_comes_in_during_a_sync_is_not_covered_by_it(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES[:2])

    def append_meanwhile(operation: str, path: Path) -> None:
        if (operation, path) == ("sync", LOG):
            disk.before_step = None
            put(writer, *BATCHES[2:])

    disk.before_step = append_meanwhile
    writer.sync()
    assert not writer.is_synced
    assert marks(disk) == [(1, STARTS[1]), (3, STARTS[2])]
    assert disk.after_power_loss(keep="nothing").files()[LOG] == DATA[: STARTS[2]]
    writer.sync()
    assert disk.after_power_loss(keep="nothing").files()[LOG] == DATA


# Creating, closing, resuming


def test_a_new_segment_has_durable_names_and_the_index_comes_first(disk: FaultyDisk) -> None:
    new_segment(DIRECTORY, disk=disk, **EVERY)
    created = [step.path.suffix for step in disk.history if step.operation == "create"]
    assert created == [".idx", ".log"]
    assert disk.after_power_loss(keep="nothing").files() == {LOG: b"", INDEX: SparseIndex(0).encode()}


def test_closing_leaves_a_durable_mark_at_the_end(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk)
    put(writer, *BATCHES)
    writer.close()
    after = disk.after_power_loss(keep="nothing")
    assert after.files()[LOG] == DATA
    assert marks(after) == [(8, len(DATA))]
    assert not writer.segment.is_active


def test_closing_twice_leaves_one_mark(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk)
    put(writer, *BATCHES)
    writer.close()
    resumed(disk).close()
    assert marks(disk) == [(8, len(DATA))]


def test_an_empty_segment_is_closed_without_a_mark(disk: FaultyDisk) -> None:
    new_segment(DIRECTORY, disk=disk).close()
    assert disk.files() == {LOG: b"", INDEX: SparseIndex(0).encode()}


def test_abandoning_writes_nothing(disk: FaultyDisk) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES)
    before = disk.steps
    writer.abandon()
    writer.abandon()
    assert disk.steps == before


@pytest.mark.parametrize("first", range(len(BATCHES) + 1))
@pytest.mark.parametrize("end", ["close", "sync", "abandon"])
def test_a_resumed_segment_is_as_if_it_had_never_been_closed(
    disk: FaultyDisk, first: int, end: str
) -> None:
    writer = new_segment(DIRECTORY, disk=disk, **EVERY)
    put(writer, *BATCHES[:first])
    how: dict[str, Callable[[], None]] = {
        "close": writer.close,
        "sync": writer.sync,
        "abandon": writer.abandon,
    }
    how[end]()
    again = resumed(disk)
    assert again.is_synced
    put(again, *BATCHES[first:])
    again.sync()
    assert disk.files()[LOG] == DATA
    again.close()
    assert marks(disk) == list(zip(OFFSETS, STARTS, strict=True))[1:]
    assert list(again.segment.index.timestamps) == [NOON_US] * 5
