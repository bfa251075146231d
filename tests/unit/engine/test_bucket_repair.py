"""A damaged queue in a bucket is mended: its objects first, then the logs in it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.shared import LIMITS
from support.stores import MemoryBuckets

import quivermq
from quivermq.engine import open_engine
from quivermq.engine.bucket_repair import BucketRepair, append_times, repair_bucket
from quivermq.errors import NotOwner
from quivermq.frame import encode_records
from quivermq.model.messages import Record
from quivermq.reading.reader import reader_of
from quivermq.settings import BucketSettings, Settings, StorageSettings
from quivermq.shared import open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore
from quivermq.shared.mending import Mending
from quivermq.shared.naming import numbered

URL = "s3://bucket/queue"


class Place:
    """A bucket in memory, and who uses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.buckets = MemoryBuckets()
        self.buckets.install(monkeypatch)
        monkeypatch.setattr("quivermq.engine.bucket_repair.BucketStore", self.buckets.opened)
        self.store: MemoryStore = self.buckets.at(URL)
        self.directory = directory

    def use(self, act: Callable[[quivermq.Queue], object], *, trims: bool = False) -> None:
        """What an owner does until it closes; with `trims`, all of it is in a checkpoint afterwards."""
        limits = replace(LIMITS, part_bytes_min=100)
        settings = Settings(storage=StorageSettings(segment_messages=10))
        disk = open_shared(ConditionalChunks(self.store), self.directory / "cache", limits=limits)
        with quivermq.Connection(open_engine(disk.root, settings, disk=disk)) as mq:
            act(mq.queue("orders"))
            if trims:
                assert disk.checkpoint()
                mq.sync()
        disk.close()

    def repair(self) -> BucketRepair:
        settings = BucketSettings(cache=self.directory / "repair")
        return repair_bucket(URL, reader_of(URL).verify(), settings)

    def values(self) -> list[bytes]:
        found: list[bytes] = []
        self.use(lambda orders: found.extend(message.value for message in orders.read(limit=1000)))
        return found


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    return Place(monkeypatch, tmp_path)


def put_each(count: int) -> Callable[[quivermq.Queue], object]:
    return lambda orders: [orders.put(b"%d" % n) for n in range(count)]


def test_a_sound_queue_is_left_to_its_owner(place: Place) -> None:
    def look(orders: quivermq.Queue) -> None:
        orders.put(b"1")
        before = dict(place.store.objects)
        assert place.repair() == BucketRepair()
        assert place.store.objects == before
        orders.put(b"2")

    place.use(look)


def test_what_comes_before_a_damaged_chunk_is_kept(place: Place) -> None:
    def damage(orders: quivermq.Queue) -> None:
        for n in range(3):
            orders.put(b"%d" % n)
        last = max(name for name in place.store.objects if name.startswith("chunk/"))
        for n in range(3, 6):
            orders.put(b"%d" % n)
        number = int(last.removeprefix("chunk/"))
        data = place.store.objects[numbered(number + 1)]
        place.store.objects[numbered(number + 1)] = data[:-1] + bytes((data[-1] ^ 1,))
        done = place.repair()
        assert [each.number for each in done.objects.chunks] == [number + 1, number + 2, number + 3]
        assert [each.first_us == each.last_us for each in done.objects.chunks] == [True] * 3
        moments = [each.first_us or 0 for each in done.objects.chunks]
        assert moments == sorted(moments)
        assert moments[0] > 0
        assert (done.objects.parts, done.logs.mended) == ([], [])
        with pytest.raises(NotOwner):
            orders.put(b"the owner has to stop")

    place.use(damage)
    assert place.values() == [b"0", b"1", b"2"]
    report = reader_of(URL).verify()
    assert report.is_sound
    assert {each.kind for each in report.findings} <= {"gap", "orphan"}


def test_a_damaged_segment_is_mended_as_in_a_directory(place: Place) -> None:
    place.use(put_each(25), trims=True)
    name = next(n for n, data in place.store.objects.items() if n.startswith("file/") and b"QVF1" in data)
    data = bytearray(place.store.objects[name])
    data[300] ^= 1
    place.store.objects[name] = bytes(data)
    done = place.repair()
    (part,) = done.objects.parts
    assert (part.position, part.end) == (0, len(data))
    assert place.store.objects[part.side_object or ""] == bytes(data)
    (mended,) = done.logs.mended
    assert str(mended.path).endswith(part.path)
    start, end = mended.offsets
    assert end == start + 1
    expected = [b"%d" % n for n in range(25)]
    if "topics/orders" in part.path:
        del expected[start]
    assert place.values() == expected
    assert reader_of(URL).verify().is_sound


def test_a_segment_that_is_gone_leaves_a_gap(place: Place) -> None:
    place.use(put_each(25), trims=True)
    names = [n for n, data in place.store.objects.items() if n.startswith("file/") and b"QVF1" in data]
    for name in names:
        del place.store.objects[name]
    done = place.repair()
    assert {each.reason for each in done.objects.parts} == {"it is not there"}
    assert len(done.objects.parts) == len(names)
    assert done.logs.mended
    left = place.values()
    assert set(left) < {b"%d" % n for n in range(25)}
    assert reader_of(URL).verify().is_sound


def test_damage_in_a_log_alone_needs_no_mended_objects(place: Place) -> None:
    def damage(orders: quivermq.Queue) -> None:
        orders.put_many([b"x"] * 5)

    place.use(damage)
    disk = open_shared(ConditionalChunks(place.store), place.directory / "cache", limits=LIMITS)
    file = disk.open(disk.root / "topics/orders/p0/normal/00000000000000000000.log", writable=True)
    file.append([b"what is no frame"])
    file.sync()
    disk.close()
    done = place.repair()
    assert done.objects == Mending()
    assert [each.reason for each in done.logs.mended]
    assert place.values() == [b"x"] * 5


def test_times_are_those_of_whole_headers() -> None:
    record = Record(0, 1, None, b"x", {}, None, None)
    frames = [encode_records([record], append_time=moment) for moment in (5, 7)]
    data = b"noise QVF1 more" + b"".join(bytes(part) for frame in frames for part in frame.buffers())
    assert list(append_times(data)) == [5, 7]
    assert list(append_times(data[:40])) == []
