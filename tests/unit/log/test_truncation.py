from dataclasses import replace
from typing import Any

import pytest
from support.damage import flip
from support.faulty_disk import FaultyDisk
from support.logs import Logs, offsets, values

from quivermq.errors import Corruption, DiskFull, FsyncFailed, OffsetOutOfRange
from quivermq.frame import HEADER_BYTES, Producer
from quivermq.log import Log, repair

# Three segments, of 3, 4 and 3 messages; the log begins with offset 2.
BATCHES = [[b"a", b"b", b"c"], [b"d", b"e", b"f", b"g"], [b"h"], [b"i", b"j"]]
START = 2
END = 12


def filled(logs: Logs, **settings: Any) -> Log:
    log = logs.open(**{"segment_messages": 2} | settings)
    log.append_many([b"old", b"older"])
    for number, batch in enumerate(BATCHES):
        log.append_many(
            batch,
            timestamp=[100 * number + n for n in range(len(batch))],
            keys=[b"k" + value for value in batch],
            headers=[{"h": value} for value in batch],
            expires_at=[None, *range(1, len(batch))],
            dedup_ids=[f"d{number}{n}" for n in range(len(batch))],
            producer=Producer(7, 1, 10 * number),
        )
    keep = log.settings
    log.configure(replace(keep, segments_max=3))
    log.retain()
    log.configure(keep)
    assert (log.start, log.end, len(log.segments)) == (START, END, 3)
    return log


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("end", range(START, END + 1))
def test_everything_before_the_end_stays_as_it_was(logs: Logs, end: int, codec: str) -> None:
    log = filled(logs, codec=codec)
    before = list(log.records())
    log.truncate(end)
    assert (log.start, log.end, log.synced_end) == (START, end, end)
    assert list(log.records()) == before[: end - START]
    assert log.append(b"new") == end
    log.close()
    log = logs.open(segment_messages=2, codec=codec)
    assert (log.start, log.end) == (START, end + 1)
    assert list(log.records())[:-1] == before[: end - START]
    assert values(log)[-1] == b"new"
    for start in range(START, end + 1):
        assert next(log.records(start)).offset == start


@pytest.mark.parametrize("end", range(START, END + 1))
def test_truncation_survives_power_loss(faulty_logs: Logs, faulty_disk: FaultyDisk, end: int) -> None:
    log = filled(faulty_logs)
    expected = values(log)[: end - START]
    log.truncate(end)
    after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing")).open()
    assert (after.start, after.end, values(after)) == (START, end, expected)


@pytest.mark.parametrize("end", [START - 1, END + 1, -1, 10**9])
def test_an_end_outside_of_the_log_is_refused(logs: Logs, end: int) -> None:
    log = filled(logs)
    with pytest.raises(OffsetOutOfRange) as refused:
        log.truncate(end)
    assert (refused.value.offset, refused.value.start, refused.value.end) == (end, START, END)
    assert log.append(b"x") == END


def test_truncating_at_the_end_changes_nothing(logs: Logs) -> None:
    log = filled(logs)
    before = list(log.records())
    log.truncate(END)
    assert list(log.records()) == before


def test_a_frame_that_is_cut_through_is_still_of_its_producer(logs: Logs) -> None:
    log = filled(logs)
    log.truncate(4)
    (frame,) = log.frames()
    header = frame.header
    assert (header.base_offset, header.end_offset) == (2, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)


def test_buffered_messages_can_be_cut_off(logs: Logs) -> None:
    log = logs.open(durability="buffered")
    for n in range(5):
        log.append(b"%d" % n)
    log.truncate(3)
    assert (log.end, values(log)) == (3, [b"0", b"1", b"2"])
    log.append(b"new")
    assert values(log) == [b"0", b"1", b"2", b"new"]


def test_a_reader_keeps_what_it_has_mapped(logs: Logs) -> None:
    log = filled(logs)
    frames = list(log.frames(mapped=True))
    log.truncate(3)
    log.append(bytes(1000))
    assert [frame.values() for frame in frames] == BATCHES


def test_a_log_is_truncated_again_and_again(logs: Logs) -> None:
    log = filled(logs)
    for end in range(END, START - 1, -1):
        log.truncate(end)
        assert log.end == end
    assert log.append(b"x") == START


@pytest.mark.parametrize("end", range(START, END + 1))
def test_without_the_indexes_a_log_is_truncated_all_the_same(logs: Logs, end: int) -> None:
    log = filled(logs)
    everything = values(log)
    for path in (logs.path / "log").glob("*.idx"):
        path.unlink()
    log.truncate(end)
    assert (log.end, values(log)) == (end, everything[: end - START])
    log.close()
    assert logs.verify().is_sound
    repair(logs.path)


def test_a_gap_that_is_cut_through_stays_a_gap(logs: Logs) -> None:
    filled(logs).close()
    flip(logs.path / "log" / f"{5:020}.log", HEADER_BYTES)
    repair(logs.path)
    log = logs.open(segment_messages=2)
    log.truncate(7)
    assert offsets(log.frames()) == [(2, 5), (5, 7)]
    assert values(log) == [b"a", b"b", b"c"]
    assert [finding.kind for finding in logs.verify().findings] == ["gap"]
    assert log.append(b"x") == 7


@pytest.mark.damages
def test_damage_that_is_cut_off_is_forgotten(logs: Logs) -> None:
    filled(logs).close()
    flip(logs.path / "log" / f"{9:020}.log", HEADER_BYTES)
    log = logs.open(segment_messages=2)
    with pytest.raises(Corruption):
        list(log.records())
    log.truncate(9)
    for n in range(3):
        log.append(b"%d" % n)
    assert values(log, 8) == [b"g", b"0", b"1", b"2"]


@pytest.mark.damages
def test_where_damage_was_found_nothing_behind_it_is_cut(logs: Logs) -> None:
    filled(logs).close()
    flip(logs.path / "log" / f"{5:020}.log", HEADER_BYTES)
    log = logs.open(segment_messages=2)
    with pytest.raises(Corruption):
        list(log.records())
    with pytest.raises(Corruption):
        log.truncate(10)
    assert log.append(b"x") == END


@pytest.mark.parametrize("room_bytes", [0, 100])
def test_no_room_for_the_shorter_copy(faulty_logs: Logs, faulty_disk: FaultyDisk, room_bytes: int) -> None:
    log = filled(faulty_logs)
    everything = values(log)
    faulty_disk.fill_after(room_bytes)
    with pytest.raises(DiskFull):
        log.truncate(END - 1)
    log.close()
    faulty_disk.fill_after(None)
    log = faulty_logs.open()
    # It ends at some frame behind the cut, and is whole.
    assert log.end == END
    assert values(log) == everything


@pytest.mark.parametrize("glob", ["*.tmp", "/data/log"])
def test_a_failed_sync_fences(faulty_logs: Logs, faulty_disk: FaultyDisk, glob: str) -> None:
    log = filled(faulty_logs)
    everything = values(log)
    faulty_disk.fail_sync(glob)
    with pytest.raises(FsyncFailed):
        log.truncate(4)
    with pytest.raises(FsyncFailed):
        log.append(b"x")
    log.close()
    log = faulty_logs.open()
    assert 4 <= log.end <= END
    assert values(log) == everything[: log.end - START]
