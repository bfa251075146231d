"""A queue in a bucket is read beside its owner, and tells the same as the files that the owner has."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.shared import LIMITS
from support.stores import MemoryBuckets

import quivermq
from quivermq.engine import open_engine
from quivermq.errors import (
    Denied,
    InvalidRequest,
    InvalidSettings,
    NotFound,
    OffsetOutOfRange,
    TopicNotFound,
)
from quivermq.model.lanes import Lane
from quivermq.reading.bucket import BucketReader
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.reader import QueueReader, reader_of
from quivermq.settings import BucketSettings, Settings, StorageSettings
from quivermq.shared import SharedDisk, open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore
from quivermq.shared.naming import numbered

URL = "s3://bucket/queue"
NORMAL = Lane("orders", 0, "normal")
SMALL = Settings(storage=StorageSettings(segment_messages=10))


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> MemoryBuckets:
    buckets = MemoryBuckets()
    buckets.install(monkeypatch)
    return buckets


@pytest.fixture
def store(buckets: MemoryBuckets) -> MemoryStore:
    return buckets.at(URL)


@pytest.fixture
def disk(store: MemoryStore, tmp_path: Path) -> Iterator[SharedDisk]:
    limits = replace(LIMITS, part_bytes_min=100)
    disk = open_shared(ConditionalChunks(store), tmp_path / "cache", limits=limits)
    yield disk
    disk.abandon()


@pytest.fixture
def owner(disk: SharedDisk) -> Iterator[quivermq.Connection]:
    with quivermq.Connection(open_engine(disk.root, SMALL, disk=disk)) as mq:
        yield mq


@pytest.fixture
def reader(owner: quivermq.Connection) -> Iterator[QueueReader]:
    assert owner.topics() == []
    reader = pickle.loads(pickle.dumps(reader_of(URL)))
    yield reader
    reader.close()


def trimmed(owner: quivermq.Connection, disk: SharedDisk) -> None:
    assert disk.checkpoint()
    owner.queue("other").put(b"one more commit")
    disk.clean()


def values(reader: QueueReader, lane: Lane, start: int, end: int) -> list[bytes]:
    return [
        record.value
        for frame in reader.frames(lane, start, end)
        for record in frame.records()
        if start <= record.offset < end
    ]


def used(owner: quivermq.Connection) -> None:
    """Some of everything."""
    owner.create_topic("orders", partitions=2)
    orders = owner.queue("orders", group="billing")
    for n in range(25):
        orders.put(b"%d" % n, partition=0)
    orders.put(b"urgent", priority="high", partition=1)
    orders.put(b"later", delay=3600)
    for delivery in orders.get_many(5):
        delivery.ack()
    orders.get_many(2)
    for delivery in orders.get_many(3):
        delivery.reject("no")
    orders.redrive(limit=1)


def all_that_is_told(reader: QueueReader) -> dict[str, object]:
    told: dict[str, object] = {"origins": reader.origins()}
    for topic in reader.origins():
        extent = reader.look(topic)
        told[topic] = extent
        for lane, bounds in extent.lanes.items():
            if bounds.end:
                told[str(lane)] = (
                    [
                        bytes(f"{frame.header}", "ascii")
                        for frame in reader.frames(lane, bounds.start, bounds.end)
                    ],
                    reader.read(lane, bounds.start, 100),
                    reader.removed(lane).runs(),
                    reader.find_time(lane, 0),
                    reader.first_since(lane, 2**62),
                )
        told[f"{topic} segments"] = reader.segments(topic)
        told[f"{topic} rows"] = [row._replace(frames=None, path=None) for row in reader.segment_rows(topic)]
        told[f"{topic} groups"] = [
            (group, list(reader.group_rows(topic, group)), list(reader.delivery_rows(topic, group)))
            for group in reader.groups(topic)
        ]
        told[f"{topic} journal"] = list(reader.journal_changes(topic, "billing", 0))
        told[f"{topic} ends"] = reader.synced_ends(topic, {})
    return told


def test_it_tells_the_same_as_the_files_of_the_owner(
    owner: quivermq.Connection, reader: QueueReader, disk: SharedDisk
) -> None:
    files = DirectoryReader(str(disk.root))
    used(owner)
    told = all_that_is_told(reader)
    assert told == all_that_is_told(files)
    assert told["orders groups"]
    trimmed(owner, disk)
    used_more = owner.queue("orders", group="billing")
    used_more.put_many([b"more"] * 30)
    assert all_that_is_told(reader) == all_that_is_told(files)
    assert all_that_is_told(reader_of(URL)) == all_that_is_told(files)
    # Nobody but the owner was the owner.
    used_more.put(b"x")


def test_it_follows_its_owner(owner: quivermq.Connection, reader: QueueReader, disk: SharedDisk) -> None:
    assert reader.origins() == {}
    with pytest.raises(TopicNotFound, match=f"there is no topic orders in {URL}"):
        reader.lanes("orders")
    orders = owner.queue("orders")
    for n in range(40):
        orders.put(b"%d" % n)
        assert reader.lanes("orders")[NORMAL].end == n + 1
        assert values(reader, NORMAL, n, n + 1) == [b"%d" % n]
        if n % 15 == 14:
            trimmed(owner, disk)
    assert values(reader, NORMAL, 0, 40) == [b"%d" % n for n in range(40)]
    with pytest.raises(OffsetOutOfRange):
        list(reader.frames(NORMAL, 0, 41))


def test_what_retention_takes_is_out_of_range_and_no_error_else(
    owner: quivermq.Connection, reader: QueueReader, disk: SharedDisk
) -> None:
    owner.create_topic("orders", segment_messages=1, segments_max=2)
    for n in range(5):
        owner.queue("orders").put(b"%d" % n)
    trimmed(owner, disk)
    frames = reader.frames(NORMAL, 0, 5)
    next(frames)
    owner.compact()
    trimmed(owner, disk)
    reader.lanes("orders")
    with pytest.raises(OffsetOutOfRange):
        list(frames)
    assert values(reader, NORMAL, 3, 5) == [b"3", b"4"]


def test_a_part_of_a_segment_takes_few_bytes(
    owner: quivermq.Connection, buckets: MemoryBuckets, disk: SharedDisk
) -> None:
    owner.create_topic("orders", segment_bytes=8 << 20)
    orders = owner.queue("orders")
    for _ in range(40):
        orders.put_many([bytes(1000)] * 200)
    trimmed(owner, disk)
    store = buckets.at(URL)
    steps: list[str] = []
    store.fault = lambda step: steps.append(step.operation)
    reader = reader_of(URL)
    assert len(values(reader, NORMAL, 4000, 4001)) == 1
    # Blocks of a MiB, of eight that the segment has.
    assert steps.count("get_range") <= 4
    reader.close()


def test_a_sound_queue_and_damage_in_it(
    owner: quivermq.Connection, reader: QueueReader, disk: SharedDisk, store: MemoryStore
) -> None:
    used(owner)
    trimmed(owner, disk)
    owner.queue("orders").put(b"behind the checkpoint")
    files = DirectoryReader(str(disk.root)).verify()
    seen: list[tuple[int, int]] = []
    report = reader.verify(lambda done, total: seen.append((done, total)))
    assert report.is_sound
    assert (report.logs, report.segments, report.messages, report.bytes) == (
        *(files.logs, files.segments, files.messages, files.bytes),
    )
    assert [each.kind for each in report.findings] == []
    assert seen[-1][0] == seen[-1][1]
    sealed = (disk.root / "topics/orders/p0/normal/00000000000000000000.log").read_bytes()
    [name] = [each for each, stored in store.objects.items() if stored == sealed]
    data = bytearray(store.objects[name])
    data[data.index(b"QVF1") + 90] ^= 1
    store.objects[name] = bytes(data)
    first, *others = reader_of(URL).verify().findings
    assert (first.kind, str(first.path), first.offsets) == ("damage", name, (0, None))
    assert others
    assert {each.kind for each in others} == {"damage"}
    # Which messages it is says the log, as in a directory.
    assert str(others[0].path) == "topics/orders/p0/normal/00000000000000000000.log"
    owner.queue("orders").put(b"the owner is who it was")


def test_damaged_chunks_are_told_and_the_logs_before_them_looked_at(
    owner: quivermq.Connection, reader: QueueReader, store: MemoryStore
) -> None:
    orders = owner.queue("orders")
    for n in range(5):
        orders.put(b"%d" % n)
    last = max(name for name in store.objects if name.startswith("chunk/"))
    number = int(last.partition("/")[2])
    store.objects[numbered(number - 1)] = b"QVC1 and nonsense" + bytes(100)
    report = reader.verify()
    assert [str(each.path) for each in report.findings] == [numbered(number - 1)]
    assert report.findings[0].reason.endswith("1 chunks behind it cannot be used")
    assert not report.is_sound
    assert report.messages == 3
    name = numbered(0)
    store.objects[name] = b""
    report = reader_of(URL).verify()
    assert [str(each.path) for each in report.findings] == [name, numbered(number - 1)]
    assert (report.logs, report.is_sound) == (0, False)


def test_it_is_never_opened_behind_the_back_of_its_owner(reader: QueueReader) -> None:
    for ask in (reader.open_queue, reader.staging_root):
        with pytest.raises(InvalidRequest, match=r"would take it from its owner.*`server`"):
            ask()
    with pytest.raises(InvalidRequest, match="say where the archive"):
        reader.new_archive_directory()
    with pytest.raises(Denied, match="tell its owner"):
        reader.use_archive(Path("/archive"))


def test_places_of_buckets(buckets: MemoryBuckets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER_BUCKET__REGION", "eu-central-1")
    reader = reader_of(URL, endpoint="http://127.0.0.1:8333")
    assert isinstance(reader, BucketReader)
    assert (str(reader), repr(reader)) == (URL, f"BucketReader('{URL}')")
    assert reader.options() == {
        "path": URL,
        "endpoint": "http://127.0.0.1:8333",
        "region": "eu-central-1",
    }
    assert buckets.options == [{"endpoint": "http://127.0.0.1:8333", "region": "eu-central-1"}]
    monkeypatch.delenv("QUIVER_BUCKET__REGION")
    # Whatever the environment says where it is made again.
    assert pickle.loads(pickle.dumps(reader)).options() == reader.options()
    assert pickle.loads(pickle.dumps(reader)) == reader
    with pytest.raises(NotFound, match=f"there is no queue in {URL}"):
        reader.origins()
    with pytest.raises(InvalidRequest, match="are for a bucket"):
        reader_of("data", endpoint="http://127.0.0.1:8333")
    with pytest.raises(InvalidRequest, match="are for a bucket"):
        reader_of(server="http://127.0.0.1:7070", region="eu")
    with pytest.raises(InvalidSettings, match="endpoint"):
        reader_of(URL, endpoint="nonsense")
    with pytest.raises(InvalidRequest, match="key is for a broker"):
        reader_of(URL, key="k")
    with pytest.raises(NotFound, match="there is no directory"):
        reader_of(f"file://{tmp_path}/nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_url_may_be_that_of_a_data_directory(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
    assert list(reader_of(f"file://{tmp_path}/data").origins()) == ["orders"]


def test_settings_travel_with_it(buckets: MemoryBuckets) -> None:
    reader = BucketReader(URL, BucketSettings(request_timeout_ms=1234))
    assert pickle.loads(pickle.dumps(reader)).__reduce__() == reader.__reduce__()
    assert reader.options() == {"path": URL}
