"""A data directory and a broker tell the same about the same queue."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import Served, serving

import quivermq
from quivermq.errors import (
    Corruption,
    InvalidName,
    InvalidRequest,
    NotFound,
    OffsetOutOfRange,
    TopicNotFound,
)
from quivermq.model.lanes import Lane
from quivermq.model.operations import LaneBounds
from quivermq.reading.broker import BrokerReader
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.reader import QueueReader, reader_of
from quivermq.settings import Settings, StorageSettings

NORMAL = Lane("orders", 0, "normal")
SMALL = Settings(storage=StorageSettings(durability="os", segment_messages=10))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", settings=SMALL) as served:
        yield served


@pytest.fixture(params=["directory", "broker"])
def place(request: pytest.FixtureRequest, tmp_path: Path, served: Served) -> Iterator[QueueReader]:
    """The same queue, either way, while a broker has it open."""
    is_directory = request.param == "directory"
    made = reader_of(tmp_path / "data") if is_directory else reader_of(server=served.url)
    place = pickle.loads(pickle.dumps(made))
    yield place
    place.close()


def put(served: Served, count: int, topic: str = "orders", **options: object) -> None:
    served.engine.queue(topic).put_many([b"%d" % n for n in range(count)], **options)  # type: ignore[arg-type]


def values(place: QueueReader, lane: Lane, start: int, end: int) -> list[bytes]:
    return [
        record.value
        for frame in place.frames(lane, start, end)
        for record in frame.records()
        if start <= record.offset < end
    ]


def test_topics_are_told(place: QueueReader, served: Served) -> None:
    assert place.origins() == {}
    served.engine.create_topic("orders", partitions=2)
    served.engine.create_topic("events")
    assert list(place.origins()) == ["events", "orders"]
    assert place.settings("orders").partitions == 2


def test_a_topic_made_again_is_another(place: QueueReader, served: Served) -> None:
    put(served, 25)
    before = place.created_us("orders")
    assert place.lanes("orders")[NORMAL].end == 25
    served.engine.delete_topic("orders")
    with pytest.raises(TopicNotFound):
        place.lanes("orders")
    put(served, 3)
    assert place.created_us("orders") != before
    assert place.lanes("orders")[NORMAL].end == 3
    assert values(place, NORMAL, 0, 3) == [b"0", b"1", b"2"]


def test_lanes_are_listed_once_they_are_used(place: QueueReader, served: Served) -> None:
    served.engine.create_topic("orders", partitions=2)
    unused = LaneBounds(0, 0, 0, 0)
    assert place.lanes("orders") == {NORMAL: unused, Lane("orders", 1, "normal"): unused}
    served.engine.queue("orders").put(b"x", partition=1, priority="low")
    lanes = place.lanes("orders")
    assert list(lanes) == [NORMAL, Lane("orders", 1, "normal"), Lane("orders", 1, "low")]
    assert lanes[Lane("orders", 1, "low")][:3] == (0, 0, 1)
    assert lanes[Lane("orders", 1, "low")].bytes > 0


def test_bounds_follow_the_writer(place: QueueReader, served: Served) -> None:
    for n in range(25):
        served.engine.queue("orders").put(b"%d" % n)
    assert place.lanes("orders")[NORMAL][:3] == (0, 20, 25)
    served.engine.queue("orders").put(b"x")
    assert place.lanes("orders")[NORMAL].end == 26


def test_frames_are_those_that_overlap(place: QueueReader, served: Served) -> None:
    for _ in range(3):
        put(served, 4)
    frames = list(place.frames(NORMAL, 5, 9))
    assert [(f.header.base_offset, f.header.end_offset) for f in frames] == [(4, 8), (8, 12)]
    assert values(place, NORMAL, 5, 9) == [b"1", b"2", b"3", b"0"]
    assert list(place.frames(NORMAL, 7, 7)) == []


def test_a_range_that_is_not_all_there_raises(place: QueueReader, served: Served) -> None:
    put(served, 5)
    with pytest.raises(OffsetOutOfRange) as raised:
        list(place.frames(NORMAL, 0, 6))
    assert (raised.value.start, raised.value.end) == (0, 5)
    with pytest.raises(OffsetOutOfRange):
        list(place.frames(NORMAL, 7, 9))
    with pytest.raises(OffsetOutOfRange):
        list(place.frames(Lane("orders", 0, "high"), 0, 1))


def test_what_retention_took_raises(place: QueueReader, served: Served) -> None:
    served.engine.create_topic("orders", segment_messages=1, segments_max=2)
    for n in range(5):
        served.engine.queue("orders").put(b"%d" % n)
    assert place.lanes("orders")[NORMAL].start == 0
    served.engine.compact()
    assert place.lanes("orders")[NORMAL].start == 3
    with pytest.raises(OffsetOutOfRange):
        list(place.frames(NORMAL, 2, 5))
    assert values(place, NORMAL, 3, 5) == [b"3", b"4"]


def test_many_pages_are_one_range(place: QueueReader, served: Served) -> None:
    value = bytes(1024 * 1024)
    served.engine.create_topic("orders", segment_bytes=4 * 1024 * 1024)
    for _ in range(5):
        served.engine.queue("orders").put_many([value] * 4)
    frames = list(place.frames(NORMAL, 1, 19))
    assert sum(len(frame) for frame in frames) == 20
    assert all(len(value) == 1024 * 1024 for frame in frames for value in frame.values())


def test_times_are_found(place: QueueReader, served: Served) -> None:
    queue = served.engine.queue("orders")
    for moment in (100, 300, 200, 400):
        queue.put(b"x", timestamp=moment)
    assert [place.find_time(NORMAL, moment) for moment in (0, 150, 300, 400, 500)] == [0, 1, 1, 3, 4]


def test_one_look_tells_all_of_a_topic(place: QueueReader, served: Served) -> None:
    served.engine.create_topic("orders", partitions=2, lease_ms=1234)
    extent = place.look("orders")
    assert (extent.settings.partitions, extent.settings.lease_ms) == (2, 1234)
    assert (extent.created_us, extent.lanes) == (place.created_us("orders"), place.lanes("orders"))
    assert extent.dead_letters_of is None
    for nothing in ("", "a/b"):
        with pytest.raises(InvalidName):
            place.look(nothing)


def test_some_messages_can_be_looked_at(place: QueueReader, served: Served) -> None:
    put(served, 5)
    found = place.read(NORMAL, 1, 2)
    assert found == served.engine.queue("orders").read(0, 1, 2)
    assert [message.value for message in found] == [b"1", b"2"]
    assert place.read(NORMAL, 5, 2) == []
    with pytest.raises(OffsetOutOfRange):
        place.read(NORMAL, 6, 2)
    served.engine.queue("orders").purge()
    put(served, 1)
    with pytest.raises(OffsetOutOfRange):
        place.read(NORMAL, 4, 9)
    assert [message.offset for message in place.read(NORMAL, 5, 9)] == [5]


@pytest.mark.damages
def test_every_byte_is_checked_beside_the_writer(
    place: QueueReader, served: Served, tmp_path: Path
) -> None:
    for n in range(25):
        served.engine.queue("orders").put(b"%d" % n)
    seen: list[tuple[int, int]] = []
    assert place.verify(lambda *progress: seen.append(progress)).is_sound
    assert place.files_root() is None or seen[-1][0] == seen[-1][1] > 0
    [path, *_] = sorted((tmp_path / "data" / "topics" / "orders" / "p0" / "normal").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    [finding] = place.verify().findings
    assert finding.path == path.relative_to(tmp_path / "data")


def test_a_reader_says_what_can_be_done_with_its_queue(tmp_path: Path) -> None:
    directory, broker = DirectoryReader(str(tmp_path)), BrokerReader("http://127.0.0.1:1")
    assert (directory.staging_root(), directory.files_root()) == (tmp_path, tmp_path)
    assert (broker.staging_root(), broker.files_root()) == (None, None)


@pytest.mark.parametrize("package", ["cli", "exporting", "importers", "spark"])
def test_nobody_asks_which_kind_of_queue_it_is(package: str) -> None:
    kinds = ("DirectoryReader", "BrokerReader", "reading.directory", "reading.broker")
    root = Path(quivermq.__file__).parent / package
    found = [path.name for path in root.rglob("*.py") if any(kind in path.read_text() for kind in kinds)]
    assert found == []


def test_what_was_removed_is_not_shown(place: QueueReader, served: Served) -> None:
    queue = served.engine.queue("orders")
    queue.put_many([b"%d" % n for n in range(4)])
    for delivery in queue.get_many(4):
        delivery.reject("no")
    assert queue.redrive(limit=2) == 2
    lane = Lane("orders.dlq", 0, "normal")
    removed = place.removed(lane)
    shown = [r.value for f in place.frames(lane, 0, 4) for r in f.records() if r.offset not in removed]
    assert shown == [b"2", b"3"]
    assert [message.value for message in place.read(lane, 0, 4)] == [b"2", b"3"]
    queue.redrive()
    assert place.read(lane, 0, 4) == []
    removed = place.removed(lane)
    assert [r for f in place.frames(lane, 0, 4) for r in f.records() if r.offset not in removed] == []


@pytest.mark.damages
def test_damage_names_file_and_offsets(tmp_path: Path, served: Served) -> None:
    for _ in range(3):
        put(served, 10)
    path = tmp_path / "data/topics/orders/p0/normal/00000000000000000010.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    place = DirectoryReader(str(tmp_path / "data"))
    with pytest.raises(Corruption) as raised:
        list(place.frames(NORMAL, 0, 30))
    assert raised.value.path == path
    assert raised.value.offsets == (10, 20)


def test_places_that_are_none() -> None:
    with pytest.raises(InvalidRequest, match="path"):
        reader_of()
    with pytest.raises(InvalidRequest, match="`server` for a broker, not both"):
        reader_of("data", "http://127.0.0.1:7070")
    with pytest.raises(InvalidRequest, match="hdfs"):
        reader_of("hdfs://cluster/data")
    with pytest.raises(InvalidRequest, match="key"):
        reader_of("data", key="k")
    with pytest.raises(NotFound, match="nowhere"):
        reader_of("nowhere").origins()
    assert DirectoryReader("file:///a%20b").path == Path("/a b")


def test_a_key_is_not_printed() -> None:
    assert "secret" not in repr(BrokerReader("http://127.0.0.1:7070", "secret"))


def test_reading_and_exporting_need_neither_arrow_nor_spark_to_be_imported() -> None:
    modules = (
        "quivermq.reading.directory, quivermq.reading.broker, quivermq.reading.archived, quivermq.exporting"
    )
    heavy = ("numpy", "pyarrow", "pyspark", "quivermq.spark")
    code = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
