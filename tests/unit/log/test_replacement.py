"""Other frames in the place of those of a sealed segment: checked, atomic, under the eyes of readers."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.faulty_disk import FaultyDisk
from support.logs import Logs, assert_sound, values
from support.threads import PATIENCE_S, start

from quivermq.errors import Conflict, DiskFull, InvalidFrame, InvalidRequest, NotFound, StorageFailed
from quivermq.frame import Codec, Frame, Producer, encode, stamp_of
from quivermq.frame.compaction import compacted_run
from quivermq.frame.rewriting import rewritten
from quivermq.log import Log
from quivermq.log.opening import gap_frames
from quivermq.segment import Segment


@pytest.fixture
def logs(tmp_path: Any) -> Any:
    logs = Logs(tmp_path)
    yield logs
    logs.close()


def value(number: int) -> bytes:
    return b"value %d" % number * 9


def filled(logs: Logs, count: int = 30, **settings: Any) -> Log:
    """Segments of ten messages each, in frames of five, all of one key."""
    log = logs.open(**{"segment_messages": 10, "index_interval_bytes": 64, **settings})
    for base in range(0, count, 5):
        log.append_many([value(i) for i in range(base, base + 5)], keys=[b"k"] * 5)
    return log


def frames_of(log: Log, start: int, end: int) -> list[Frame]:
    return [frame for frame in log.frames(start) if frame.header.base_offset < end]


def without(frames: list[Frame], *kept: int) -> bytes:
    def keep(_: Frame, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([offset in kept for offset in batch.column("offset").to_pylist()])

    return b"".join(map(bytes, rewritten(frames, keep)))


def stamp(frames: list[Frame]) -> str:
    return stamp_of(frame.header for frame in frames)


def compact(log: Log, base: int, *kept: int) -> Any:
    old = frames_of(log, base, base + 10)
    return log.replace(base, without(old, *kept), expected=stamp(old))


def test_a_replaced_segment_is_read_by_everybody(logs: Logs) -> None:
    log = filled(logs)
    follower = logs.follow()
    assert values(follower) == values(log)
    done = compact(log, 10, 13, 19)
    assert done.bytes_after == log.segments[1].end < done.bytes_before
    expected = [value(i) for i in (*range(10), 13, 19, *range(20, 30))]
    assert values(log) == values(follower) == values(logs.follow()) == expected
    assert values(log, 14) == expected[11:]
    assert (log.start, log.end) == (0, 30)
    assert log.segments[1].index.mark[:1] == (20,)
    log.close()
    assert_sound(logs.verify())
    assert not logs.verify().findings
    assert values(logs.open()) == expected


def test_a_part_of_a_segment_can_be_replaced(logs: Logs) -> None:
    log = filled(logs)
    part = frames_of(log, 15, 20)
    log.replace(10, without(part), expected=stamp(part))
    assert values(log) == [value(i) for i in (*range(15), *range(20, 30))]
    part = frames_of(log, 10, 15)
    log.replace(10, without(part, 12), expected=stamp(part))
    assert values(log) == [value(i) for i in (*range(10), 12, *range(20, 30))]


def test_of_two_who_replace_the_same_frames_one_is_told(logs: Logs) -> None:
    log = filled(logs)
    old = frames_of(log, 0, 10)
    log.replace(0, without(old, 1), expected=stamp(old))
    with pytest.raises(Conflict, match="not what they were"):
        log.replace(0, without(old, 2), expected=stamp(old))
    assert values(log)[0] == value(1)


def test_only_sealed_segments_are_replaced(logs: Logs) -> None:
    log = filled(logs)
    old = frames_of(log, 20, 30)
    with pytest.raises(Conflict, match="still being written to"):
        log.replace(20, without(old), expected=stamp(old))
    with pytest.raises(NotFound, match="begins with offset 7"):
        log.replace(7, without(old), expected=stamp(old))
    with pytest.raises(InvalidRequest, match="one segment"):
        log.replace(0, without(old), expected=stamp(old))


def test_a_segment_that_retention_took_is_not_replaced(logs: Logs) -> None:
    log = filled(logs)
    old = frames_of(log, 0, 10)
    log.retain(finished=10)
    with pytest.raises(NotFound):
        log.replace(0, without(old), expected=stamp(old))


def test_what_others_rely_on_has_to_stay(logs: Logs) -> None:
    log = logs.open(segment_messages=4)
    log.append_many([b"a", b"b"], keys=[b"k", b"k"], producer=Producer(5, 1, 7))
    log.append_many([b"c", b"d"], keys=[b"k", b"k"], dedup_ids=["x", None])
    log.append(b"last")
    old = frames_of(log, 0, 4)
    header = old[0].header
    gap = compacted_run((0, 4), append_time=header.append_time, timestamp=header.timestamp_max)
    other = encode([b"", b""], timestamp=header.timestamp_max, producer=Producer(5, 2, 7))
    moved = other.stamped(0, header.append_time)
    for wrong in (bytes(gap[0]), bytes(moved) + bytes(old[1])):
        with pytest.raises(InvalidRequest, match="a producer or has deduplication ids"):
            log.replace(0, wrong, expected=stamp(old))
    log.replace(0, without(old, 3), expected=stamp(old))
    made = frames_of(log, 0, 4)
    assert [f.header.producer_id for f in made] == [5, 0]
    assert list(made[1].dedup_ids()) == ["x", None]
    assert values(log) == [b"d", b"last"]


def test_frames_that_are_not_right_are_refused(logs: Logs) -> None:
    log = filled(logs)
    old = frames_of(log, 0, 10)
    good, expected = without(old, 4, 6), stamp(old)
    late = without([f.stamped(f.header.base_offset, 1) for f in old])
    note = bytes(gap_frames((0, 10), None, "made up", old[-1].header.append_time)[0])
    named = encode([b"x"] * 10, timestamp=1, producer=Producer(1)).stamped(0, old[-1].header.append_time)
    for wrong, error in (
        (b"", InvalidRequest),
        (good[:-1], InvalidFrame),
        (good[:100] + b"!" + good[101:], InvalidFrame),
        (good + bytes(8), InvalidFrame),
        (without(old[:1]) + without([old[1].stamped(6, 1)]), InvalidFrame),
        (without([f.stamped(f.header.base_offset + 3, 1) for f in old]), InvalidRequest),
        (late, InvalidRequest),
        (note, InvalidRequest),
        (bytes(named), InvalidRequest),
    ):
        with pytest.raises(error):
            log.replace(0, wrong, expected=expected)
    with pytest.raises(Conflict):
        log.replace(0, without(old[:1]), expected=expected)
    part = compacted_run((0, 7), append_time=old[-1].header.append_time, timestamp=1)
    with pytest.raises(InvalidRequest, match="whole frames"):
        log.replace(0, bytes(part[0]), expected=expected)
    assert values(log) == [value(i) for i in range(30)]
    assert not list(log.directory.glob("*.tmp"))


def test_a_frame_that_nobody_could_read_is_refused(logs: Logs) -> None:
    limits = {"frame_bytes_max": 8192, "frame_raw_bytes_max": 8192, "message_bytes_max": 1024}
    log = filled(logs, **limits, batch_bytes=2048)
    old = frames_of(log, 0, 10)
    header = old[-1].header
    large = encode([bytes(1000)] * 10, timestamp=1, codec=Codec.ZSTD).stamped(0, header.append_time)
    assert large.header.raw_bytes > 8192 > large.header.frame_bytes
    with pytest.raises(InvalidFrame, match="the limit is 8192"):
        log.replace(0, bytes(large), expected=stamp(old))


def test_nothing_is_decompressed_of_frames_that_cannot_stand_there(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(logs)
    old = frames_of(log, 0, 10)
    opened = []
    opens = Frame._opened

    def counted(frame: Frame) -> memoryview:
        if frame.header.codec:
            opened.append(frame.header.base_offset)
        return opens(frame)

    monkeypatch.setattr(Frame, "_opened", counted)
    zipped = encode([bytes(600)] * 5, timestamp=1, codec=Codec.ZSTD)
    parts = [zipped.stamped(offset, old[-1].header.append_time) for offset in (0, 5)]
    with pytest.raises(Conflict):
        log.replace(0, b"".join(map(bytes, parts)), expected="1-00000000")
    with pytest.raises(InvalidRequest, match="one segment"):
        log.replace(10, b"".join(map(bytes, parts)), expected=stamp(old))
    assert opened == []
    log.replace(0, b"".join(map(bytes, parts)), expected=stamp(old))
    assert opened[:2] == [0, 5]


def test_retention_that_comes_in_between_is_a_conflict(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(logs)
    old = frames_of(log, 0, 10)
    new, expected = without(old, 9), stamp(old)
    sealed = log._maintenance._sealed

    def slow(base_offset: int) -> Segment:
        segment = sealed(base_offset)
        log.retain(finished=10)
        return segment

    monkeypatch.setattr(log._maintenance, "_sealed", slow)
    with pytest.raises(Conflict, match="removed meanwhile"):
        log.replace(0, new, expected=expected)
    assert values(log) == [value(i) for i in range(10, 30)]


def test_the_note_of_a_repair_stays(logs: Logs) -> None:
    log = filled(logs, 10)
    log.append(b"more")
    # Once in the log, as a repair would leave it.
    note = gap_frames((0, 5), None, "rotten", frames_of(log, 0, 5)[0].header.append_time)[0]
    path = log.segments[0].path
    rest = b"".join(map(bytes, frames_of(log, 5, 10)))
    log.close()
    path.write_bytes(bytes(note) + rest)
    path.with_suffix(".idx").unlink()
    log = logs.open(segment_messages=10)
    old = frames_of(log, 0, 10)
    gone = compacted_run((0, 10), append_time=old[-1].header.append_time, timestamp=1)
    with pytest.raises(InvalidRequest, match="note of a repair"):
        log.replace(0, bytes(gone[0]), expected=stamp(old))
    log.replace(0, without(old), expected=stamp(old))
    assert values(log) == [b"more"]
    assert [finding.kind for finding in logs.verify().findings] == ["gap"]


def test_readers_see_the_old_or_the_new(logs: Logs) -> None:
    log = filled(logs, 200, segment_messages=50)
    last = {199, *range(150, 199)}
    follower = logs.follow(index_interval_bytes=64)
    is_over = threading.Event()
    looks = []

    def read(reader: Any, mapped: bool) -> None:
        while not is_over.is_set():
            seen = [r.offset for f in reader.frames(mapped=mapped) for r in f.records() if r.value]
            ends = [f.header.end_offset for f in reader.frames(25, mapped=mapped)]
            assert ends[-1] == 200
            assert last <= set(seen)
            assert reader.find_time(2**62) == 200
            looks.append(len(seen))

    def check() -> None:
        while not is_over.is_set():
            assert logs.verify(index_interval_bytes=64).is_sound

    def replace() -> None:
        try:
            for round_ in range(1, 25):
                for base in (0, 50, 100):
                    old = frames_of(log, base, base + 50)
                    kept = range(base + round_, base + 50)
                    log.replace(base, without(old, *kept), expected=stamp(old))
        finally:
            is_over.set()

    readers = [start(lambda r=r, m=m: read(r, m)) for r, m in ((log, False), (follower, True), (log, True))]  # type: ignore[misc]
    readers.append(start(check))
    replace()
    for reader in readers:
        reader.result(PATIENCE_S)
    assert looks
    assert values(log) == values(follower) == [value(i) for i in range(200) if i >= 150 or i % 50 >= 24]


def test_messages_that_supersede_are_durable_first(logs: Logs) -> None:
    log = filled(logs)
    assert log.synced_end < 30
    compact(log, 0)
    assert log.synced_end == 30


def test_a_full_disk_changes_nothing() -> None:
    disk = FaultyDisk()
    logs = Logs(Path("/data"), disk)
    log = filled(logs)
    old = frames_of(log, 0, 10)
    disk.fill_after(100)
    with pytest.raises(DiskFull):
        log.replace(0, without(old, 9), expected=stamp(old))
    disk.fill_after(None)
    assert values(log) == [value(i) for i in range(30)]
    assert not [name for name in disk.names(Path("/data/log")) if name.endswith(".tmp")]
    log.replace(0, without(old, 9), expected=stamp(old))
    assert values(log)[:2] == [value(9), value(10)]
    logs.close()


def test_a_failed_sync_fences_the_log() -> None:
    disk = FaultyDisk()
    logs = Logs(Path("/data"), disk)
    log = filled(logs)
    log.sync()
    old = frames_of(log, 0, 10)
    disk.fail_sync("/data/log")
    with pytest.raises(StorageFailed):
        log.replace(0, without(old, 9), expected=stamp(old))
    with pytest.raises(StorageFailed):
        log.append(b"no")
