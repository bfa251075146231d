"""Exports: any range in any format, whole or not at all."""

import gc
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import archive_queue
from support.broker import serving
from support.command_inside import quiver

import quivermq
from quivermq import (
    Conflict,
    Corruption,
    InvalidRequest,
    Message,
    NotFound,
    OffsetOutOfRange,
    TopicNotFound,
)
from quivermq.disk import OutputDisk
from quivermq.exporting import ExportedLane, ExportSummary, Format, export
from quivermq.exporting import formats as export_formats
from quivermq.exporting.formats import ExportRange
from quivermq.exporting.run import FileOutput
from quivermq.model.lanes import Lane
from quivermq.model.operations import LaneBounds, TopicExtent
from quivermq.reading.batches import SCHEMA
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.reader import MessageReader

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
FORMATS = pytest.mark.parametrize("format_name", ["ndjson", "arrow", "parquet"])
Rows = list[dict[str, Any]]


def moment(minute: int) -> datetime:
    return EPOCH + timedelta(minutes=minute)


def fill(mq: quivermq.Connection) -> None:
    """A topic with two partitions, in one of which all priorities are used."""
    mq.create_topic("orders", partitions=2, segment_messages=4)
    queue = mq.queue("orders")
    for minute in range(12):
        queue.put(b"v%d" % minute, partition=0, timestamp=moment(minute))
    odd = Message(b"\xff\x00", b"\xfek", {"text": "ž".encode(), "raw": b"\xff", "": b""}, partition=1)
    queue.put_many([odd, Message(b'quote " and \\ and \n', b"", partition=1, dedup_id="d-1")])
    queue.put(b"high", partition=1, priority="high", timestamp=moment(3), ttl=3600)
    queue.put(b"low", partition=1, priority="low", timestamp=moment(4))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The topic, for all who only read."""
    path = tmp_path_factory.mktemp("queue") / "data"
    with quivermq.open(path) as mq:
        fill(mq)
    return path


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A copy, for those who change it."""
    return Path(shutil.copytree(data, tmp_path / "data"))


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out") / "orders"


def rows_in(file: Path, format_name: str) -> Rows:
    """The rows of an export, in the words of Arrow."""
    if format_name == "parquet":
        return rows_of(pq.read_table(file))
    if format_name == "arrow":
        return rows_of(pa.ipc.open_stream(file.read_bytes()).read_all())
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def rows_of(table: pa.Table) -> Rows:
    assert table.schema.equals(SCHEMA)
    found: Rows = table.to_pylist()
    return found


def values(rows: Rows) -> list[bytes]:
    return [
        row["value"].encode() if isinstance(row.get("value"), str) else row.get("value", b"?")
        for row in rows
    ]


def exported(data: Path, file: Path, format_name: str, **wish: Any) -> list[bytes]:
    export("orders", file, path=data, format=format_name, overwrite=True, **wish)
    return values(rows_in(file, format_name))


@FORMATS
def test_everything_comes_by_partition_priority_and_offset(
    data: Path, file: Path, format_name: str
) -> None:
    summary = export("orders", file, path=data, format=format_name)
    rows = rows_in(file, format_name)
    places = [(row["partition"], row["priority"], row["offset"]) for row in rows]
    assert places == [
        *((0, "normal", offset) for offset in range(12)),
        (1, "high", 0),
        (1, "normal", 0),
        (1, "normal", 1),
        (1, "low", 0),
    ]
    assert {row["topic"] for row in rows} == {"orders"}
    assert summary == ExportSummary(
        topic="orders",
        format=Format(format_name),
        output=str(file),
        messages=16,
        bytes=file.stat().st_size,
        seconds=summary.seconds,
        lanes=(
            ExportedLane(0, "normal", 0, 12, 12),
            ExportedLane(1, "high", 0, 1, 1),
            ExportedLane(1, "normal", 0, 2, 2),
            ExportedLane(1, "low", 0, 1, 1),
        ),
    )


@FORMATS
def test_what_was_delayed_says_under_which_id(tmp_path: Path, file: Path, format_name: str) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        put = mq.queue("orders").put(b"late", delay=3600)
        assert put.scheduled_id
        assert mq.queue("orders").deliver_now(put.scheduled_id)
        mq.queue("orders").put(b"plain")
    export("orders", file, path=tmp_path / "data", format=format_name)
    assert [row.get("scheduled_id") for row in rows_in(file, format_name)] == [put.scheduled_id, None]
    # NDJSON can be put again, as another message.
    if format_name == "ndjson":
        ran = quiver("put", "copy", "--ndjson", "--data", tmp_path / "data", stdin=file.read_bytes())
        assert ran.code == 0
        with quivermq.open(tmp_path / "data") as mq:
            assert [message.scheduled_id for message in mq.queue("copy").read()] == [None, None]


@pytest.mark.parametrize("format_name", ["arrow", "parquet"])
def test_columns_have_all_of_a_message(data: Path, file: Path, format_name: str) -> None:
    export("orders", file, path=data, format=format_name, partition=1)
    high, odd, quoted, low = rows_in(file, format_name)
    assert (odd["key"], odd["value"]) == (b"\xfek", b"\xff\x00")
    assert odd["headers"] == [
        {"key": "text", "value": "ž".encode()},
        {"key": "raw", "value": b"\xff"},
        {"key": "", "value": b""},
    ]
    assert (quoted["key"], quoted["headers"]) == (b"", [])
    assert high["timestamp"] == moment(3)
    assert timedelta(minutes=59) < high["expires_at"] - datetime.now(UTC) <= timedelta(hours=1)
    assert (low["key"], low["expires_at"]) == (None, None)


def test_lines_are_those_of_quiver_read(data: Path, file: Path) -> None:
    export("orders", file, path=data, partition=1, priority="normal")
    read = quiver("read", "orders", "--partition", "1", "--json", "--data", data)
    assert [json.loads(line) for line in file.read_bytes().splitlines()] == [
        json.loads(line) for line in read.out.splitlines()
    ]


def test_lines_put_again_are_the_same_messages(data: Path, file: Path, tmp_path: Path) -> None:
    export("orders", file, path=data)
    with quivermq.open(tmp_path / "other") as mq:
        mq.create_topic("copy", partitions=2)
    ran = quiver("put", "copy", "--ndjson", "--data", tmp_path / "other", stdin=file.read_bytes())
    assert ran.code == 0, ran.err
    export("copy", file.with_name("copy"), path=tmp_path / "other")
    before, after = (rows_in(each, "ndjson") for each in (file, file.with_name("copy")))
    dropped = ("topic", "expires_at")
    assert [{name: row[name] for name in row if name not in dropped} for row in after] == [
        {name: row[name] for name in row if name not in dropped} for row in before
    ]
    # Until when a message lives is known to the moment at which it is put again.
    lives = [[row["expires_at"] for row in rows if row.get("expires_at")] for rows in (before, after)]
    assert len(lives[0]) == 1
    assert lives[1] == [pytest.approx(lives[0][0], abs=60_000_000)]


@pytest.mark.parametrize("is_served", [False, True])
def test_what_has_expired_is_put_again_and_not_delivered(is_served: bool, tmp_path: Path) -> None:
    lines = (
        b'{"value":"old","expires_at":1767225600000000}\n{"value":"new","expires_at":4102444800000000}\n'
    )
    with ExitStack() as stack:
        place = ["--data", str(tmp_path / "data")]
        if is_served:
            place = ["--server", stack.enter_context(serving(tmp_path / "data")).url]
        assert quiver("put", "copy", "--ndjson", *place, stdin=lines).code == 0
        read = [json.loads(line) for line in quiver("read", "copy", "--json", *place).out.splitlines()]
        got = [json.loads(line) for line in quiver("get", "copy", "--json", *place).out.splitlines()]
    assert [row["value"] for row in read] == ["old", "new"]
    assert read[1]["expires_at"] == pytest.approx(4102444800000000, abs=60_000_000)
    assert [row["value"] for row in got] == ["new"]


@FORMATS
@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"start": 3, "end": 6}, range(3, 6)),
        ({"start": 10}, range(10, 12)),
        ({"end": 2}, range(2)),
        ({"start": 5, "end": 5}, ()),
        ({"start": 100}, ()),
        ({"end": 10**9}, range(12)),
        ({"start": moment(2), "end": moment(5)}, range(2, 5)),
        ({"start": moment(5)}, range(5, 12)),
        ({"end": moment(1)}, range(1)),
        ({"start": moment(99)}, ()),
        ({"end": moment(-5)}, ()),
        ({"start": 2, "end": moment(4)}, range(2, 4)),
        ({"start": moment(4), "end": 6}, range(4, 6)),
        ({"start": moment(8), "end": 6}, ()),
        ({"start": moment(3).astimezone(tz=None), "end": moment(4)}, range(3, 4)),
    ],
)
def test_any_range(data: Path, file: Path, format_name: str, wish: dict[str, Any], expected: Any) -> None:
    found = exported(data, file, format_name, partition=0, **wish)
    assert found == [b"v%d" % offset for offset in expected]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"start": 2}, (5, 9)),
        ({"start": 7, "end": 100}, (7, 9)),
        ({"start": 100}, (9, 9)),
        ({"end": 3}, (5, 5)),
        ({"start": moment(1)}, (9, 9)),
    ],
)
def test_a_range_is_no_larger_than_what_there_is(wish: dict[str, Any], expected: tuple[int, int]) -> None:
    lane = Lane("orders", 0, "normal")
    view = TopicExtent(1, quivermq.TopicSettings(), {lane: LaneBounds(5, 5, 9, 100)}, None)
    # The log has grown since its bounds were seen.
    place = SimpleNamespace(look=lambda _: view, find_time=lambda *_: 12)
    (part,) = ExportRange(**wish).parts(cast(MessageReader, place), "orders")
    assert (part.lane, part.start, part.end, part.created_us) == (lane, *expected, 1)


def test_a_moment_is_not_looked_for_where_there_is_nothing() -> None:
    lane = Lane("orders", 0, "normal")
    view = TopicExtent(1, quivermq.TopicSettings(), {lane: LaneBounds(5, 5, 5, 0)}, None)
    # Whoever asked this one for a moment would get an AttributeError.
    place = SimpleNamespace(look=lambda _: view)
    (part,) = ExportRange(start=moment(1)).parts(cast(MessageReader, place), "orders")
    assert (part.lane, part.start, part.end, part.created_us) == (lane, 5, 5, 1)


@FORMATS
def test_a_range_of_time_has_all_messages_of_that_time_in_whatever_order(
    tmp_path: Path, file: Path, format_name: str
) -> None:
    minutes = [5, 1, 9, 2, 8, 3, 7, 4, 6, 0]
    with quivermq.open(tmp_path / "data") as mq:
        for minute in minutes:
            mq.queue("orders").put(b"%d" % minute, timestamp=moment(minute))
        mq.queue("orders").put_many([Message(b"%d" % m, timestamp=moment(m)) for m in minutes])
    found = exported(tmp_path / "data", file, format_name, start=moment(2), end=moment(6))
    assert found == [b"%d" % minute for minute in minutes * 2 if 2 <= minute < 6]


@FORMATS
def test_one_lane_by_itself(data: Path, file: Path, format_name: str) -> None:
    assert exported(data, file, format_name, partition=1, priority="high") == [b"high"]
    assert exported(data, file, format_name, priority="low") == [b"low"]
    assert exported(data, file, format_name, partition=0, priority="high") == []


@FORMATS
def test_a_topic_without_messages_is_a_whole_export_of_none(
    tmp_path: Path, file: Path, format_name: str
) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders")
    assert exported(tmp_path / "data", file, format_name) == []
    assert file.exists()


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("a.parquet", Format.PARQUET),
        ("a.PARQUET", Format.PARQUET),
        ("a.arrow", Format.ARROW),
        ("a.arrows", Format.ARROW),
        ("a.ndjson", Format.NDJSON),
        ("a.txt", Format.NDJSON),
        ("parquet", Format.NDJSON),
    ],
)
def test_the_name_of_the_file_decides_about_the_format(
    data: Path, file: Path, name: str, chosen: Format
) -> None:
    assert export("orders", file.with_name(name), path=data).format is chosen
    assert len(rows_in(file.with_name(name), chosen)) == 16


@FORMATS
def test_archived_and_live_messages_are_one_range(
    tmp_path: Path, file: Path, format_name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data, archive = tmp_path / "data", tmp_path_factory.mktemp("archive")
    with quivermq.open(data) as mq:
        mq.create_topic("orders", segment_messages=5)
        for minute in range(30):
            mq.queue("orders").put(b"v%d" % minute, timestamp=moment(minute))
        archive_queue(data, archive, "orders", end=20)
        mq.use_archive(archive)
        mq.compact(archived=True)
    assert exported(data, file, format_name) == [b"v%d" % minute for minute in range(30)]
    assert exported(data, file, format_name, start=3, end=25) == [b"v%d" % m for m in range(3, 25)]
    assert exported(data, file, format_name, start=moment(7), end=moment(9)) == [b"v7", b"v8"]
    live = exported(data, file, format_name, archive=False)
    assert 0 < len(live) < 30
    assert live == [b"v%d" % minute for minute in range(30)][-len(live) :]


@FORMATS
def test_a_directory_in_use_can_be_exported(own_data: Path, file: Path, format_name: str) -> None:
    with quivermq.open(own_data) as mq:
        mq.queue("orders").put(b"just now", partition=0)
        found = exported(own_data, file, format_name, partition=0)
        assert found[-1] == b"just now"
        mq.queue("orders").put(b"later", partition=0)
    assert values(rows_in(file, format_name))[-1] == b"just now"


@FORMATS
def test_a_broker_can_be_asked(own_data: Path, file: Path, format_name: str) -> None:
    export("orders", file, path=own_data, format=format_name)
    expected = rows_in(file, format_name)
    with serving(own_data) as broker:
        other = file.with_name("other")
        summary = export("orders", other, server=broker.url, format=format_name)
        assert rows_in(other, format_name) == expected
        assert summary.messages == 16
        export(
            "orders",
            other,
            server=broker.url,
            format=format_name,
            start=moment(2),
            end=moment(4),
            partition=0,
            overwrite=True,
        )
        assert values(rows_in(other, format_name)) == [b"v2", b"v3"]
        with pytest.raises(TopicNotFound):
            export("nothing", other, server=broker.url)


@FORMATS
def test_messages_that_were_taken_out_are_not_exported(
    own_data: Path, file: Path, format_name: str
) -> None:
    with quivermq.open(own_data) as mq:
        mq.create_topic("jobs", attempts_max=1)
        for number in range(4):
            mq.queue("jobs").put(b"%d" % number)
        for message in mq.queue("jobs").get_many(4):
            message.reject("no")
        assert mq.queue("jobs").redrive(limit=2) == 2
    export("jobs.dlq", file, path=own_data, format=format_name)
    assert values(rows_in(file, format_name)) == [b"2", b"3"]


@FORMATS
def test_a_stream_gets_it_and_stays_open(data: Path, file: Path, format_name: str) -> None:
    export("orders", file, path=data, format=format_name)
    stream = io.BytesIO()
    summary = export("orders", stream, path=data, format=format_name)
    assert stream.getvalue() == file.read_bytes()
    assert (summary.output, summary.bytes) == (None, len(stream.getvalue()))


def test_a_stream_with_a_buffer_is_flushed(data: Path) -> None:
    raw = Hesitant(1 << 30)
    stream = io.BufferedWriter(raw, 1 << 20)
    summary = export("orders", stream, path=data)
    assert len(raw.taken) == summary.bytes


def test_row_groups_are_not_one_for_each_frame(
    data: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export("orders", file, path=data, format="parquet")
    assert pq.ParquetFile(file).num_row_groups == 1
    monkeypatch.setattr(export_formats, "_GROUP_ROWS", 5)
    export("orders", file, path=data, format="parquet", overwrite=True)
    assert pq.ParquetFile(file).num_row_groups > 1
    assert len(rows_in(file, "parquet")) == 16


def test_large_frames_are_handed_on_over_their_mapped_memory(tmp_path: Path, file: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put_many([b"%d" % number for number in range(20_000)])
    assert exported(tmp_path / "data", file, "arrow") == [b"%d" % number for number in range(20_000)]
    batches = list(pa.ipc.open_stream(file.read_bytes()))
    assert max(batch.num_rows for batch in batches) >= 8192


def test_progress_is_told_up_to_the_end(data: Path, file: Path) -> None:
    told: list[tuple[str, float, float | None]] = []

    def progress(description: str, done: float, total: float | None = None) -> None:
        told.append((description, done, total))

    export("orders", file, path=data, progress=progress)
    assert {(what, total) for what, _, total in told} == {("messages", 16)}
    counts = [done for _, done, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] == 16


# Files.


def left(file: Path) -> list[str]:
    return sorted(each.name for each in file.parent.iterdir())


def test_a_file_that_is_there_is_not_overwritten_unasked(data: Path, file: Path) -> None:
    file.write_text("mine")
    with pytest.raises(Conflict, match="is there already"):
        export("orders", file, path=data)
    assert file.read_text() == "mine"
    export("orders", file, path=data, overwrite=True)
    assert len(rows_in(file, "ndjson")) == 16
    assert left(file) == ["orders"]


def test_a_file_that_appears_meanwhile_is_not_overwritten_either(data: Path, file: Path) -> None:
    def appear(description: str, done: float, total: float | None = None) -> None:
        file.write_text("mine")

    with pytest.raises(Conflict, match="is there already"):
        export("orders", file, path=data, progress=appear)
    assert file.read_text() == "mine"
    assert left(file) == ["orders"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_only_a_file_is_replaced(data: Path, file: Path, make: Callable[[Path], None]) -> None:
    make(file)
    before = file.lstat()
    with pytest.raises(InvalidRequest, match="is not a file that could be replaced"):
        export("orders", file, path=data, overwrite=True)
    assert file.lstat() == before
    assert left(file) == ["orders"]


def test_a_directory_that_is_missing_is_told(data: Path, file: Path) -> None:
    with pytest.raises(NotFound, match="there is no directory"):
        export("orders", file / "deeper" / "orders", path=data)


class Interruption(BaseException):
    """Somebody presses Ctrl-C, or worse."""


@FORMATS
@pytest.mark.parametrize("error", [KeyboardInterrupt, Interruption, MemoryError])
def test_after_an_interruption_nothing_is_left(
    data: Path, file: Path, format_name: str, error: type[BaseException]
) -> None:
    def stop(description: str, done: float, total: float | None = None) -> None:
        raise error

    with pytest.raises(error):
        export("orders", file, path=data, format=format_name, progress=stop)
    assert left(file) == []


def test_a_stream_that_was_not_finished_is_not_made_whole_by_a_writer_that_is_thrown_away(
    data: Path,
) -> None:
    def stop(description: str, done: float, total: float | None = None) -> None:
        raise Interruption

    stream = io.BytesIO()
    with pytest.raises(Interruption):
        export("orders", stream, path=data, format="parquet", progress=stop)
    gc.collect()
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(io.BytesIO(stream.getvalue()))


def test_a_file_that_was_given_up_takes_no_more(file: Path) -> None:
    output = FileOutput(OutputDisk(), file, overwrite=False)
    output.abandon()
    much = bytes(4 * 1024 * 1024)
    assert output.write(much) == len(much)
    assert (output.written, left(file)) == (0, [])


@FORMATS
def test_a_disk_that_is_full_leaves_nothing(
    data: Path, file: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise quivermq.DiskFull(file, needed_bytes=1)

    monkeypatch.setattr(FileOutput, "_empty", full)
    with pytest.raises(quivermq.DiskFull):
        export("orders", file, path=data, format=format_name)
    assert left(file) == []


class Hesitant(io.RawIOBase):
    """A stream without a buffer, which takes as little as it may."""

    def __init__(self, most: int) -> None:
        self.taken = b""
        self._most = most

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data[: self._most])
        self.taken += part
        return len(part)


@FORMATS
def test_a_stream_that_takes_parts_gets_everything(data: Path, file: Path, format_name: str) -> None:
    export("orders", file, path=data, format=format_name)
    stream = Hesitant(7)
    export("orders", stream, path=data, format=format_name)  # type: ignore[arg-type]
    assert stream.taken == file.read_bytes()
    with pytest.raises(BlockingIOError):
        export("orders", Hesitant(0), path=data, format=format_name)  # type: ignore[arg-type]


@FORMATS
def test_a_reader_that_goes_away_is_told(data: Path, format_name: str) -> None:
    class Closed(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: Any) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        export("orders", io.BufferedWriter(Closed(), 1), path=data, format=format_name)


@pytest.mark.damages
@FORMATS
def test_damage_stops_the_export_and_leaves_nothing(own_data: Path, file: Path, format_name: str) -> None:
    log = next((own_data / "topics/orders/p0/normal").glob("*.log"))
    whole = bytearray(log.read_bytes())
    whole[100] ^= 1
    log.write_bytes(whole)
    with pytest.raises(Corruption):
        export("orders", file, path=own_data, format=format_name)
    assert left(file) == []


@FORMATS
def test_offsets_that_retention_took_meanwhile_are_an_error_that_says_so(
    data: Path, file: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> Iterator[Any]:
        raise OffsetOutOfRange(0, start=5, end=12)
        yield

    monkeypatch.setattr(DirectoryReader, "frames", gone)
    with pytest.raises(
        OffsetOutOfRange, match=r"went while they were exported, and now it holds \[5, 12\)"
    ):
        export("orders", file, path=data, format=format_name)
    assert left(file) == []


@FORMATS
def test_a_topic_that_was_made_again_meanwhile_is_not_taken_for_the_other(
    data: Path, file: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectoryReader, "created_us", lambda *_: 1)
    with pytest.raises(Conflict, match="deleted and made again"):
        export("orders", file, path=data, format=format_name)
    assert left(file) == []


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"start": -1}, "offsets from 0 on"),
        ({"start": True}, "offsets from 0 on"),
        ({"end": "5"}, "offsets from 0 on"),
        ({"start": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - That is the mistake.
        ({"start": 5, "end": 4}, "ends at 4, before it begins at 5"),
        ({"start": moment(5), "end": moment(4)}, "before it begins"),
        ({"partition": 2}, "there is no partition 2: the topic has 2"),
        ({"partition": -1}, "there is no partition -1"),
        ({"priority": "urgent"}, "urgent"),
        ({"format": "csv"}, "there is no format 'csv': use ndjson, arrow, parquet"),
        ({"server": "http://127.0.0.1:1"}, "not both"),
    ],
)
def test_what_nobody_can_mean_is_refused(data: Path, file: Path, wish: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        export("orders", file, path=data, **wish)
    assert left(file) == []


def test_the_place_has_to_be_there(tmp_path: Path, data: Path, file: Path) -> None:
    with pytest.raises(InvalidRequest, match="say where the queue is"):
        export("orders", file)
    with pytest.raises(NotFound):
        export("orders", file, path=tmp_path / "nowhere")
    with pytest.raises(TopicNotFound):
        export("nothing", file, path=data)
    assert left(file) == []


@pytest.mark.parametrize("format_name", ["arrow", "parquet"])
def test_without_pyarrow_the_error_says_what_to_install(
    data: Path, file: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InvalidRequest, match=r"needs pyarrow: pip install 'quivermq\[spark\]'"):
        export("orders", file, path=data, format=format_name)
    assert left(file) == []
    assert export("orders", file, path=data, format="ndjson").messages == 16


def test_a_name_as_long_as_names_may_be(data: Path, file: Path) -> None:
    long = file.with_name("ž" * 120 + ".ndjson")
    assert export("orders", long, path=data).messages == 16
    assert left(long) == [long.name]
