"""A queue and its archive as one place, without Spark."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import archive_queue
from support.broker import serving

import quivermq
from quivermq.archive import Archive, store_pointer
from quivermq.disk import SystemDisk
from quivermq.engine import engine_of
from quivermq.errors import NotFound, OffsetOutOfRange
from quivermq.model.lanes import Lane
from quivermq.reading.archived import ArchivedReader
from quivermq.reading.batches import SCHEMA, archived_batches, record_batches
from quivermq.reading.broker import BrokerReader
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.rows import Range, rows_of
from quivermq.settings import Settings, StorageSettings
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.snapshot import Snapshot
from quivermq.topic.offsets import OffsetSet

SETTINGS = Settings(storage=StorageSettings(durability="os", segment_messages=10))
LANE = Lane("orders", 0, "normal")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def mq(data: Path) -> Iterator[Any]:
    with quivermq.open(data, SETTINGS) as mq:
        queue = mq.queue("orders")
        for first in range(0, 60, 5):
            queue.put_many(
                [
                    quivermq.Message(b"%d" % n, key=b"k", headers={"a": b"1"}, timestamp=n, ttl=1000)
                    for n in range(first, first + 5)
                ]
            )
        yield mq


def free(mq: Any) -> None:
    queue = mq.queue("orders")
    while queue.pop() is not None:
        pass
    assert mq.compact(archived=True).messages


def whole(mq: Any, data: Path, end: int = 45) -> ArchivedReader:
    """The place once [0, end) is archived and what could go is gone."""
    archive_queue(data, data / "archive", "orders", end=end)
    mq.use_archive("archive")
    free(mq)
    place = DirectoryReader(str(data)).with_archive()
    assert isinstance(place, ArchivedReader)
    return place


def table(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read(place: ArchivedReader, start: int, end: int, *columns: str) -> Iterator[pa.RecordBatch]:
    part = Range(LANE, start, end, 0, place.created_us("orders"))
    return rows_of(place, part, columns or SCHEMA.names, fail_on_data_loss=True)


def test_rows_are_those_of_the_log(mq: Any, data: Path) -> None:
    expected = table(record_batches(DirectoryReader(str(data)), LANE, 0, 60))
    place = whole(mq, data)
    assert place.live.lanes("orders")[LANE].start == 40
    assert place.lanes("orders")[LANE][:3] == (0, 50, 60)
    assert table(read(place, 0, 60)) == expected
    assert table(read(place, 33, 47)) == expected[33:47]
    assert all(batch.schema == SCHEMA for batch in read(place, 0, 60))


def test_columns_are_chosen_and_counted(mq: Any, data: Path) -> None:
    place = whole(mq, data)
    assert table(read(place, 38, 42, "offset", "topic")) == [
        {"offset": n, "topic": "orders"} for n in range(38, 42)
    ]
    none = rows_of(place, Range(LANE, 0, 60, 0, place.created_us("orders")), [], fail_on_data_loss=True)
    assert sum(batch.num_rows for batch in none) == 60


def test_frames_cross_the_seam(mq: Any, data: Path) -> None:
    place = whole(mq, data)
    found = [record.value for frame in place.frames(LANE, 0, 60) for record in frame.records()]
    assert found == [b"%d" % n for n in range(60)]


def test_retention_that_is_faster_than_a_reader_changes_nothing(mq: Any, data: Path) -> None:
    archive_queue(data, data / "archive", "orders")
    mq.use_archive("archive")
    place = DirectoryReader(str(data)).with_archive()
    frames = place.frames(LANE, 0, 60)
    found = [record.value for record in next(frames).records()]
    free(mq)
    found += [record.value for frame in frames for record in frame.records()]
    assert found == [b"%d" % n for n in range(60)]


def test_times_are_found_on_both_sides(mq: Any, data: Path) -> None:
    place = whole(mq, data)
    assert [place.find_time(LANE, time) for time in (0, 7, 44, 45, 59, 60)] == [0, 7, 44, 45, 59, 60]


def test_a_hole_is_told(mq: Any, data: Path) -> None:
    place = whole(mq, data, 25)
    mq.alter_topic("orders", retention_messages=10, retention_force=True)
    mq.compact()
    with pytest.raises(OffsetOutOfRange, match="retention"):
        table(read(place, 0, 60))
    assert len(table(read(place, 0, 25))) == 25


def test_a_hole_in_the_archive_is_told_as_well(mq: Any, data: Path) -> None:
    place = whole(mq, data, 25)
    mq.alter_topic("orders", retention_messages=10, retention_force=True)
    mq.compact()
    archive_queue(data, data / "archive", "orders")
    queue = mq.queue("orders")
    queue.put_many([b"%d" % n for n in range(60, 70)])
    mq.compact()
    assert [engine_of(mq).catalog.created_us("orders"), place.live.lanes("orders")[LANE].start] == [
        place.created_us("orders"),
        60,
    ]
    with pytest.raises(OffsetOutOfRange, match="retention"):
        table(read(place, 0, 70))
    part = Range(LANE, 0, 70, 0, place.created_us("orders"))
    rows = table(rows_of(place, part, ["offset"], fail_on_data_loss=False))
    assert [row["offset"] for row in rows] == [*range(25), *range(50, 70)]


def test_removed_messages_stay_away(mq: Any, data: Path) -> None:
    archive_queue(data, data / "archive", "orders")
    topic = Archive(data / "archive").topic("orders", engine_of(mq).catalog.created_us("orders"))
    assert topic is not None
    removed = OffsetSet(3)
    removed.add([5, 6, 59])
    rows = table(archived_batches(topic, LANE, 1, 60, ["offset"], removed))
    assert [row["offset"] for row in rows] == [3, 4, *range(7, 59)]


def test_a_place_is_sent_to_tasks(mq: Any, data: Path) -> None:
    place = whole(mq, data)
    sent = pickle.loads(pickle.dumps(place))
    assert sent == place
    assert hash(sent) == hash(place)
    assert table(read(sent, 0, 60)) == table(read(place, 0, 60))


def test_which_archive_is_meant(mq: Any, data: Path, tmp_path: Path) -> None:
    live = DirectoryReader(str(data))
    assert live.with_archive() is live
    archive_queue(data, tmp_path / "away", "orders")
    named = live.with_archive(str(tmp_path / "away"))
    assert isinstance(named, ArchivedReader)
    assert named.live is live
    assert live.with_archive("false") is live
    with pytest.raises(NotFound, match="is not an archive"):
        live.with_archive(str(tmp_path / "nowhere"))
    store_pointer(SystemDisk(), data, tmp_path / "nowhere")
    with pytest.raises(NotFound, match="is not an archive"):
        live.with_archive()
    store_pointer(SystemDisk(), data, None)


def test_a_broker_reads_its_archive_itself(data: Path) -> None:
    with serving(data, settings=SETTINGS) as broker:
        queue = broker.engine.queue("orders")
        for first in range(0, 60, 5):
            queue.put_many([b"%d" % n for n in range(first, first + 5)])
        archive_queue(data, data / "archive", "orders")
        broker.engine.use_archive("archive")
        live = BrokerReader(broker.url)
        place = pickle.loads(pickle.dumps(live.with_archive()))
        assert place.lanes("orders") == live.lanes("orders")
        free(broker.engine)
        freed = live.lanes("orders")[LANE].start
        assert freed > 0
        bounds = place.lanes("orders")[LANE]
        assert (bounds.start, bounds.end) == (0, 60)
        assert bounds.bytes > live.lanes("orders")[LANE].bytes
        part = Range(LANE, 0, 60, 0, place.created_us("orders"))
        rows = table(rows_of(place, part, ["offset", "value"], fail_on_data_loss=True))
        assert rows == [{"offset": n, "value": b"%d" % n} for n in range(60)]
        taken = Snapshot.take(SourceOptions.parse({"server": broker.url, "subscribe": "orders"}), place)
        assert [each[:3] for each in taken.parts] == [(LANE, 0, 60)]
        assert live.with_archive("false").lanes("orders")[LANE].start == freed
        place.close()
        live.close()


def test_a_hole_in_the_archive_of_a_broker_is_told(mq: Any, data: Path) -> None:
    whole(mq, data, 25)
    mq.alter_topic("orders", retention_messages=10, retention_force=True)
    mq.compact()
    mq.close()
    with serving(data) as broker:
        place = BrokerReader(broker.url).with_archive()
        part = Range(LANE, 0, 60, 0, place.created_us("orders"))
        with pytest.raises(OffsetOutOfRange, match="retention"):
            table(rows_of(place, part, ["offset"], fail_on_data_loss=True))
        rows = table(rows_of(place, part, ["offset"], fail_on_data_loss=False))
        assert [row["offset"] for row in rows] == [*range(25), *range(50, 60)]
        place.close()
