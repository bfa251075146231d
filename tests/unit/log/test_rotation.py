"""When a log begins its next segment."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from support.faulty_disk import FaultyDisk
from support.logs import Logs, values

from quivermq.errors import DiskFull, FsyncFailed, StorageFailed
from quivermq.frame import encode
from quivermq.log import Log
from quivermq.segment import log_path

FRAME_BYTES = encode([b"x" * 100], timestamp=0).header.frame_bytes


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        log.append(b"x" * 100)


@pytest.mark.parametrize(
    ("segment_bytes", "expected"),
    [
        (3 * FRAME_BYTES, [0, 3, 6, 9]),
        (3 * FRAME_BYTES - 1, [0, 2, 4, 6, 8]),
        (1, list(range(10))),
        (10 * FRAME_BYTES, [0]),
        (10 * FRAME_BYTES - 1, [0, 9]),
    ],
)
def test_by_bytes(logs: Logs, segment_bytes: int, expected: list[int]) -> None:
    log = logs.open(segment_bytes=segment_bytes)
    fill(log, 10)
    assert bases(log) == expected
    assert values(log) == [b"x" * 100] * 10
    log.close()
    again = logs.open(segment_bytes=segment_bytes)
    assert bases(again) == expected
    assert values(again) == [b"x" * 100] * 10


def test_a_frame_that_is_larger_than_a_segment_has_one_for_itself(logs: Logs) -> None:
    log = logs.open(segment_bytes=2 * FRAME_BYTES)
    fill(log, 1)
    log.append(bytes(10_000))
    fill(log, 1)
    assert bases(log) == [0, 1, 2]
    assert [segment.end > 2 * FRAME_BYTES for segment in log.segments] == [False, True, False]


def test_several_frames_of_one_write_stay_together(logs: Logs) -> None:
    log = logs.open(durability="buffered", segment_bytes=500, batch_bytes=250)
    for _ in range(4):
        log.append(b"x" * 100)
    log.flush()
    assert [len(frame) for frame in log.frames()] == [2, 1, 1]
    assert bases(log) == [0, 3]


@pytest.mark.parametrize(("segment_messages", "expected"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (5, [0])])
def test_by_messages(logs: Logs, segment_messages: int, expected: list[int]) -> None:
    log = logs.open(segment_messages=segment_messages)
    fill(log, 5)
    assert bases(log) == expected


def test_a_batch_is_not_divided_among_segments(logs: Logs) -> None:
    log = logs.open(segment_messages=3)
    for size in (2, 5, 1, 1, 1, 1):
        log.append_many([b"x"] * size)
    assert bases(log) == [0, 7, 10]


def test_by_age(logs: Logs) -> None:
    log = logs.open(segment_ms=1000)
    fill(log, 1)
    logs.clock.advance(0.999)
    fill(log, 1)
    assert bases(log) == [0]
    logs.clock.advance(0.001)
    fill(log, 1)
    assert bases(log) == [0, 2]
    logs.clock.advance(0.999)
    fill(log, 1)
    assert bases(log) == [0, 2]


def test_the_age_of_a_segment_begins_with_its_first_message(logs: Logs) -> None:
    log = logs.open(segment_ms=1000)
    logs.clock.advance(3600)
    fill(log, 1)
    logs.clock.advance(0.5)
    fill(log, 1)
    assert bases(log) == [0]


def test_the_age_of_a_segment_survives_reopening(logs: Logs) -> None:
    log = logs.open(segment_ms=1000)
    fill(log, 1)
    log.close()
    logs.clock.advance(0.6)
    log = logs.open(segment_ms=1000)
    fill(log, 1)
    logs.clock.advance(0.6)
    fill(log, 1)
    assert bases(log) == [0, 2]


def test_without_a_limit_of_age_or_messages_there_is_none(logs: Logs) -> None:
    log = logs.open()
    fill(log, 3)
    logs.clock.advance(10**9)
    fill(log, 3)
    assert bases(log) == [0]


def test_a_full_segment_is_synced_before_what_follows_it(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open(segment_messages=1)
    fill(log, 3)
    assert log.synced_end == 0
    before = faulty_disk.steps
    log.sync()
    assert log.synced_end == 3
    synced = [
        step.path.name
        for step in faulty_disk.history[before:]
        if step.operation == "sync" and step.path.suffix == ".log"
    ]
    assert synced == [log_path(log.directory, base).name for base in (0, 1, 2)]
    before = faulty_disk.steps
    log.sync()
    assert faulty_disk.steps == before


@pytest.mark.parametrize("room_bytes", [0, 16, 31, 32, 100])
def test_no_room_for_the_next_segment_leaves_the_log_as_it_was(
    faulty_logs: Logs, faulty_disk: FaultyDisk, room_bytes: int
) -> None:
    log = faulty_logs.open(segment_messages=2)
    fill(log, 2)
    faulty_disk.fill_after(room_bytes)
    for _ in range(3):
        with pytest.raises(DiskFull):
            fill(log, 1)
        assert log.end == 2
        assert len(values(log)) == 2
    faulty_disk.fill_after(None)
    fill(log, 3)
    assert bases(log) == [0, 2, 4]
    assert len(values(log)) == 5


@pytest.mark.parametrize("way", ["append", "retain"])
@pytest.mark.parametrize("glob", ["*.idx", "/data/log"])
def test_a_segment_that_cannot_be_made_durable_fences_the_log(
    faulty_logs: Logs, faulty_disk: FaultyDisk, way: str, glob: str
) -> None:
    settings: dict[str, Any] = {"segment_bytes": 500, "retention_ms": 1000}
    log = faulty_logs.open(**settings)
    fill(log, 2)
    log.sync()
    faulty_logs.clock.advance(2)
    faulty_disk.fail_sync(glob)
    with pytest.raises(FsyncFailed):
        log.append(b"x" * 300) if way == "append" else log.retain()
    # Were more appended to the old segment, it would lie behind the beginning of the new one.
    with pytest.raises(FsyncFailed):
        log.append(b"y")
    log.close()
    log = faulty_logs.open(**settings)
    assert log.append(b"z") == 2
    log.close()
    assert values(faulty_logs.open()) == [b"x" * 100] * 2 + [b"z"]


@pytest.mark.parametrize("step", range(1, 10))
def test_an_interruption_between_two_segments_loses_nothing(
    faulty_logs: Logs, faulty_disk: FaultyDisk, step: int
) -> None:
    """Ctrl-C at any step of beginning a segment, whose file may be there by then."""
    log = faulty_logs.open(segment_bytes=500)
    fill(log, 2)
    at = faulty_disk.steps + step

    def interrupt(operation: str, path: Path) -> None:
        if faulty_disk.steps + 1 == at:
            faulty_disk.before_step = None
            raise KeyboardInterrupt

    faulty_disk.before_step = interrupt
    with contextlib.suppress(KeyboardInterrupt):
        log.append(b"x" * 300)
    faulty_disk.before_step = None
    # What is smaller would fit into the old segment, and lie behind the beginning of the new one.
    acknowledged = []
    for value in (b"small", b"y" * 300, b"small"):
        try:
            log.append(value, durability="fsync")
        except StorageFailed:
            break
        acknowledged.append(value)
        for seed in range(20):
            after = Logs(faulty_logs.path, faulty_disk.after_power_loss(seed)).open(segment_bytes=500)
            found = [value for value in values(after)[2:] if value != b"x" * 300]
            assert found == acknowledged, seed
    log.close()
    log = faulty_logs.open(segment_bytes=500)
    kept = [value for value in values(log)[2:] if value != b"x" * 300]
    assert kept == acknowledged
    fill(log, 5)
    assert len(values(log)) == log.end
