"""What is archived is what was in the log, and is read by offsets, whatever the files are."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import (
    ARCHIVE,
    COLUMNS,
    CREATED_US,
    DAY_S,
    LANE,
    TOPIC,
    archive_log,
    archived_values,
    frames_of,
    merge,
)
from support.faulty_disk import FaultyDisk
from support.logs import Logs

from quivermq.archive import Archive, ArchivedTopic
from quivermq.archive.archiving import ArchiveRange, changing
from quivermq.archive.writing import write_merged, write_piece
from quivermq.disk import SystemDisk
from quivermq.errors import Conflict, NotFound, StorageFailed
from quivermq.frame import Frame, arrow_batch, encode
from quivermq.log import Log
from quivermq.model.lanes import Lane
from quivermq.model.messages import Record
from quivermq.topic.offsets import OffsetSet


def fill(log: Log, count: int) -> None:
    """Frames of all kinds: lone messages, small and large batches, with and without every column."""
    for number in range(count):
        if number % 3 == 0:
            log.append(b"lone %d" % number)
        elif number % 3 == 1:
            log.append(
                b"all %d" % number,
                key=b"k%d" % number,
                headers={"a": b"1", "b": b""},
                timestamp=1_600_000_000_000_000 + number,
                expires_at=1_900_000_000_000_000,
                dedup_id=f"d{number}",
            )
        else:
            log.append_many([b"batch %d %d" % (number, i) for i in range(40)], keys=[b"k", None] * 20)


def opened(disk: object = None, directory: Path = ARCHIVE) -> ArchivedTopic:
    found = Archive(directory, disk).topic(TOPIC, CREATED_US)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_records_come_back_as_they_were(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open(segment_messages=100)
    fill(log, 30)
    archive_log(faulty_disk, log)
    assert list(opened(faulty_disk).records(LANE, 0, log.end)) == list(log.records())


@pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 43), (42, 43), (41, 300), (100, 100), (377, 420)])
def test_any_range_can_be_read(faulty_disk: FaultyDisk, faulty_logs: Logs, start: int, end: int) -> None:
    log = faulty_logs.open()
    fill(log, 30)
    archive_log(faulty_disk, log, piece_messages=100)
    records = opened(faulty_disk).records(LANE, start, end)
    assert [r.offset for r in records] == list(range(start, end))


def test_frames_hold_the_same_messages(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 30)
    archive_log(faulty_disk, log)
    frames = list(opened(faulty_disk).frames(LANE, 3, log.end - 1))
    found = [record for frame in frames for record in frame.records()]
    assert found == list(log.records())[3:-1]
    times = {f.header.base_offset: f.header.append_time for f in log.frames()}
    assert {frame.header.append_time for frame in frames} == set(times.values())


def test_batches_equal_those_of_the_log(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 30)
    archive_log(faulty_disk, log, piece_messages=57)
    archived = pa.Table.from_batches(opened(faulty_disk).batches(LANE, 0, log.end, COLUMNS))
    live = pa.Table.from_batches([arrow_batch(frame, COLUMNS) for frame in log.frames()])
    assert archived.to_pylist() == live.to_pylist()


def test_a_second_run_goes_on_where_the_first_one_ended(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 10)
    archive_log(faulty_disk, log, 60)
    manifest = archive_log(faulty_disk, log)
    assert [(f.start, f.end) for f in manifest.lane(LANE).files] == [(0, 60), (60, log.end)]
    assert list(opened(faulty_disk).records(LANE, 0, log.end)) == list(log.records())


def test_a_run_with_nothing_new_changes_nothing(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 10)
    archive_log(faulty_disk, log)
    before = {path: data for path, data in faulty_disk.files().items() if "archive" in path.parts}
    archive_log(faulty_disk, log)
    after = {path: data for path, data in faulty_disk.files().items() if "archive" in path.parts}
    assert after == before


def test_files_are_of_one_day_by_when_their_messages_came_in(logs: Logs, tmp_path: Path) -> None:
    log = logs.open()
    for number in range(6):
        # Its own timestamp does not matter: producers may say anything.
        log.append(b"%d" % number, timestamp=5)
        if number % 2:
            logs.clock.advance(DAY_S)
    manifest = archive_log(SystemDisk(), log, directory=tmp_path / "archive")
    assert [(f.name, f.rows) for f in manifest.lane(LANE).files] == [
        ("messages/topic=orders/day=2023-11-14/p0-normal-0-2.parquet", 2),
        ("messages/topic=orders/day=2023-11-15/p0-normal-2-4.parquet", 2),
        ("messages/topic=orders/day=2023-11-16/p0-normal-4-6.parquet", 2),
    ]


def test_plain_parquet_readers_find_the_same_rows(logs: Logs, tmp_path: Path) -> None:
    log = logs.open()
    fill(log, 30)
    archive_log(SystemDisk(), log, directory=tmp_path / "archive", piece_messages=100)
    table = pq.read_table(tmp_path / "archive").sort_by("offset")
    assert table["value"].to_pylist() == [record.value for record in log.records()]
    assert set(table["topic"].to_pylist()) == {TOPIC}
    assert set(table["priority"].to_pylist()) == {"normal"}


def test_removed_messages_are_left_out_and_the_range_is_whole(
    faulty_disk: FaultyDisk, faulty_logs: Logs
) -> None:
    log = faulty_logs.open()
    fill(log, 10)
    removed = OffsetSet(3)
    removed.add([5, 20, log.end - 1])
    archive = Archive(ARCHIVE, faulty_disk)
    with changing(archive, "job") as job:
        piece = ArchiveRange(LANE, 0, log.end, CREATED_US)
        [file] = write_piece(faulty_disk, job, piece, frames_of(log, 0, log.end), removed)
    assert (file.start, file.end, file.rows) == (0, log.end, log.end - 6)


def test_a_range_without_messages_is_archived_all_the_same(faulty_disk: FaultyDisk) -> None:
    with changing(Archive(ARCHIVE, faulty_disk), "job") as job:
        [file] = write_piece(faulty_disk, job, ArchiveRange(LANE, 7, 9, CREATED_US), [])
    assert (file.start, file.end, file.rows) == (7, 9, 0)
    # Who reads every Parquet file below a directory meets only what counts, also after a run was killed.
    assert file.name.endswith(".parquet")
    assert not str(file.staged).endswith(".parquet")


def test_small_files_become_one(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 20)
    archive_log(faulty_disk, log, piece_messages=20)
    manifest = merge(faulty_disk)
    assert [(f.start, f.end) for f in manifest.lane(LANE).files] == [(0, log.end)]
    assert list(opened(faulty_disk).records(LANE, 0, log.end)) == list(log.records())
    assert [path.name for path in faulty_disk.files() if path.suffix == ".parquet"] == [
        f"p0-normal-0-{log.end}.parquet"
    ]


def test_a_reader_goes_on_while_its_files_are_merged(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 20)
    archive_log(faulty_disk, log, piece_messages=20)
    records = opened(faulty_disk).records(LANE, 0, log.end)
    found: list[Record] = [next(records) for _ in range(25)]
    merge(faulty_disk)
    assert [*found, *records] == list(log.records())


def test_a_missing_file_is_named(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 10)
    manifest = archive_log(faulty_disk, log, piece_messages=50)
    gone = manifest.lane(LANE).files[1]
    faulty_disk.remove(ARCHIVE / gone.name)
    with pytest.raises(StorageFailed, match=rf"{gone.name} is missing.*\[50, 100\).*partition 0, normal"):
        list(opened(faulty_disk).records(LANE, 0, log.end))


def test_every_damaged_byte_of_the_data_is_noticed(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 5)
    manifest = archive_log(faulty_disk, log)
    path = ARCHIVE / manifest.lane(LANE).files[0].name
    expected = list(log.records())
    for position in range(0, len(faulty_disk.files()[path]), 5):
        faulty_disk.flip(path, position, 0x10)
        try:
            # The rest of a file is statistics and names, which may be read in spite of it.
            assert list(opened(faulty_disk).records(LANE, 0, log.end)) == expected
        except StorageFailed as error:
            assert str(path) in str(error)  # noqa: PT017 - Either of the two is right.
        faulty_disk.flip(path, position, 0x10)


def test_a_file_in_the_place_of_another_is_refused(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 6)
    manifest = archive_log(faulty_disk, log, piece_messages=50)
    first, second = (ARCHIVE / file.name for file in manifest.lane(LANE).files[:2])
    faulty_disk.rename(second, first)
    with pytest.raises(StorageFailed, match="its end is not what was written"):
        list(opened(faulty_disk).records(LANE, 0, log.end))


def test_what_retention_took_before_is_a_gap_that_is_written_down(
    faulty_disk: FaultyDisk, faulty_logs: Logs
) -> None:
    log = faulty_logs.open(segment_messages=10, retention_messages=25)
    log.append_many([b"x"] * 8)
    archive_log(faulty_disk, log)
    for _ in range(10):
        log.append_many([b"y"] * 9)
    log.retain()
    manifest = archive_log(faulty_disk, log)
    assert manifest.lane(LANE).gaps == ((8, log.start),)
    assert archived_values(faulty_disk) == [b"x"] * 8 + [b"y"] * (log.end - log.start)


def test_two_jobs_exclude_each_other(faulty_disk: FaultyDisk) -> None:
    with (
        changing(Archive(ARCHIVE, faulty_disk), "a"),
        pytest.raises(Conflict, match="is being changed by process"),
        changing(Archive(ARCHIVE, faulty_disk), "b"),
    ):
        pass
    with changing(Archive(ARCHIVE, faulty_disk), "c"):
        pass


def test_another_topic_of_the_same_name_is_refused(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 3)
    archive_log(faulty_disk, log)
    assert Archive(ARCHIVE, faulty_disk).topic(TOPIC, CREATED_US + 1) is None
    with pytest.raises(Conflict, match="another topic of the name orders"):
        archive_log(faulty_disk, log, created_us=CREATED_US + 1)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is not an archive"):
        Archive(tmp_path).check()


def test_lanes_are_apart(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    high = Lane(TOPIC, 3, "high")
    first, second = faulty_logs.open("a"), faulty_logs.open("b")
    first.append(b"first")
    second.append(b"second")
    archive_log(faulty_disk, first)
    archive_log(faulty_disk, second, lane=high)
    assert archived_values(faulty_disk) == [b"first"]
    assert archived_values(faulty_disk, lane=high) == [b"second"]


def test_the_first_message_that_is_not_older_is_found(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    for time in (10, 30, 20, 50, 40, 60):
        log.append(b"x", timestamp=time)
    archive_log(faulty_disk, log, piece_messages=2)
    topic = opened(faulty_disk)
    assert [topic.find_time(LANE, time) for time in (0, 10, 11, 30, 31, 51, 60, 61)] == [
        *(0, 0, 1, 1, 3, 5, 5),
        None,
    ]


def test_headers_that_are_there_twice_stay_so(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    log.append_frame(frame_with_headers([("a", b"1"), ("a", b"2")]))
    archive_log(faulty_disk, log)
    [batch] = opened(faulty_disk).batches(LANE, 0, 1, ["headers"])
    assert batch["headers"].to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]]


def frame_with_headers(pairs: list[tuple[str, bytes]]) -> Frame:
    """A message with headers that no dict could hold."""
    return encode([b"x"], timestamp=1, headers=[_Pairs(pairs)])


class _Pairs(dict[str, bytes]):
    """Looks like a dict, and gives every pair."""

    def __init__(self, pairs: list[tuple[str, bytes]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def items(self) -> Any:
        return self._pairs

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._pairs)

    def keys(self) -> Any:
        return [name for name, _ in self._pairs]

    def values(self) -> Any:
        return [value for _, value in self._pairs]


def test_a_page_finds_its_part_of_a_file_in_memory(
    faulty_disk: FaultyDisk, faulty_logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = faulty_logs.open()
    log.append_many([b"%d" % number for number in range(50)])
    archive_log(faulty_disk, log)
    read, parts = pq.ParquetFile.read_row_group, list[int]()

    def counted(file: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
        parts.append(group)
        return read(file, group, columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    topic = opened(faulty_disk)
    found = [record.value for start in range(0, 50, 5) for record in topic.records(LANE, start, start + 5)]
    assert found == [b"%d" % number for number in range(50)]
    assert parts == [0]


def test_the_longest_topic_name_can_be_archived(logs: Logs, tmp_path: Path) -> None:
    log = logs.open()
    log.append(b"x")
    lane = LANE._replace(topic="n" * 249)
    archive_log(SystemDisk(), log, directory=tmp_path / "archive", lane=lane)
    found = Archive(tmp_path / "archive").topic(lane.topic, CREATED_US)
    assert found is not None
    assert [record.value for record in found.records(lane, 0, 1)] == [b"x"]
    assert Archive(tmp_path / "archive").topics() == [lane.topic]


def test_a_merger_that_would_have_fewer_rows_is_none(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 6)
    archive_log(faulty_disk, log, piece_messages=30)
    files = list(opened(faulty_disk).lane(LANE).files)
    files[1] = replace(files[1], rows=files[1].rows + 1)
    with (
        changing(Archive(ARCHIVE, faulty_disk), "merge") as job,
        pytest.raises(StorageFailed, match=r"offsets \[0, \d+\) of orders have \d+ rows"),
    ):
        write_merged(faulty_disk, job, opened(faulty_disk), LANE, files)
