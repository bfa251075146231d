"""What the archiver takes out of a queue, and what others may conclude from an archive. Without Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from support.archives import archive_queue
from support.broker import serving

import quivermq
from quivermq.archive import Archive, Manifest
from quivermq.archive.archiving import ArchivePace, ArchiveRange, changing
from quivermq.archive.manifest import ArchiveRun
from quivermq.errors import Conflict, TopicNotFound
from quivermq.model.lanes import Lane
from quivermq.reading.broker import BrokerReader
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.reader import QueueReader
from quivermq.settings import Settings, StorageSettings
from quivermq.spark.jobs.archive import Copying, _planned, _Topic, archive, may_be_archived

# Nothing is synced unless somebody asks for it, or closes.
SETTINGS = Settings(
    storage=StorageSettings(durability="os", segment_messages=10, fsync_interval_ms=86_400_000)
)
LANE = Lane("orders", 0, "normal")
AT_ONCE = ArchivePace(2**60, age_us=0, file_bytes=2**30)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def put(mq: quivermq.Connection, count: int, durability: str | None = None) -> None:
    for number in range(count):
        mq.queue("orders").put(b"%d" % number, durability=durability)  # type: ignore[arg-type]


def ranges(place: QueueReader, manifest: Manifest | None = None) -> list[tuple[int, int]]:
    manifest = manifest or Manifest("orders", place.created_us("orders"))
    return [
        (piece.start, piece.end) for plan in _planned(place, manifest, AT_ONCE) for piece in plan.pieces
    ]


def test_a_broker_gives_only_what_it_has_synced(data: Path) -> None:
    with serving(data, settings=SETTINGS) as served:
        place = BrokerReader(served.url)
        put(served.engine, 15)
        # Also of a segment that is full.
        assert ranges(place) == []
        put(served.engine, 10, "fsync")
        put(served.engine, 10)
        assert place.synced_ends("orders", {}) == {LANE: 25}
        assert ranges(place) == [(0, 25)]
        place.close()


def test_a_directory_is_synced_before_it_is_archived(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        put(mq, 35)
        assert ranges(DirectoryReader(str(data))) == [(0, 35)]
        synced_ends = DirectoryReader.synced_ends

        def with_more(place: DirectoryReader, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:
            found = synced_ends(place, topic, starts)
            put(mq, 5)
            return found

        # What comes in meanwhile waits for the next run.
        monkeypatch.setattr(DirectoryReader, "synced_ends", with_more)
        assert ranges(DirectoryReader(str(data))) == [(0, 35)]


def test_all_of_a_closed_directory_is_archived(data: Path) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        put(mq, 35)
    assert ranges(DirectoryReader(str(data))) == [(0, 35)]


@pytest.mark.parametrize(("count", "reason"), [(20, "the log at 20"), (50, "came into the log")])
def test_another_log_is_a_conflict(data: Path, tmp_path: Path, count: int, reason: str) -> None:
    with quivermq.open(tmp_path / "other", SETTINGS) as mq:
        put(mq, 30)
    archive_queue(tmp_path / "other", tmp_path / "archive", "orders")
    manifest = Archive(tmp_path / "archive").manifest("orders")
    assert manifest is not None
    assert manifest.lane(LANE).end == 30
    with quivermq.open(data, SETTINGS) as mq:
        put(mq, count)
        place = DirectoryReader(str(data))
        same = Manifest("orders", place.created_us("orders"), 1, manifest.lanes)
        with pytest.raises(Conflict, match=reason):
            ranges(place, same)


def test_a_log_is_archived_on_behind_its_archive(data: Path) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        put(mq, 30)
        archive_queue(data, data / "archive", "orders", end=17)
        put(mq, 5)
        manifest = Archive(data / "archive").manifest("orders")
        assert ranges(DirectoryReader(str(data)), manifest) == [(17, 35)]


def test_who_takes_out_tombstones_knows_what_is_archived(data: Path) -> None:
    with serving(data, settings=SETTINGS) as served:
        put(served.engine, 5)
        served.engine.queue("other").put(b"x")
        broker, directory = BrokerReader(served.url), DirectoryReader(str(data))
        assert not may_be_archived(broker, "orders")
        assert not may_be_archived(directory, "orders")
        archive_queue(data, data / "archive", "orders")
        served.engine.use_archive(data / "archive")
        for place in (broker, directory):
            assert may_be_archived(place, "orders")
            assert not may_be_archived(place, "other")
        # Where nobody can look, something may be.
        (data / "archive").rename(data / "away")
        for place in (broker, directory):
            assert may_be_archived(place, "other")
        served.engine.use_archive(None)
        broker.close()


@pytest.mark.damages
def test_damage_in_one_topic_is_told_of_this_one(data: Path) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        put(mq, 3)
        mq.queue("events").put(b"x")
    [log] = (data / "topics" / "orders" / "p0").rglob("*.log")
    content = bytearray(log.read_bytes())
    content[60] ^= 0xFF
    log.write_bytes(content)
    events, orders = archive(data, dry_run=True, age=0).topics
    assert (events.topic, events.messages, events.problem, events.is_damaged) == ("events", 1, None, False)
    assert orders.is_damaged
    assert "orders: " in str(orders.problem)
    assert "is damaged at byte" in str(orders.problem)


def make_again(mq: quivermq.Connection) -> None:
    mq.delete_topic("orders")
    put(mq, 5)


def test_a_topic_that_is_made_again_meanwhile_is_a_conflict(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        put(mq, 5)
        place = DirectoryReader(str(data))
        created_us = place.created_us("orders")
        synced_ends = DirectoryReader.synced_ends

        def with_another(place: DirectoryReader, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:
            found = synced_ends(place, topic, starts)
            make_again(mq)
            return found

        monkeypatch.setattr(DirectoryReader, "synced_ends", with_another)
        with pytest.raises(Conflict, match="made again just now"):
            ranges(place)
        # And once more between the plan and the task.
        make_again(mq)
        piece = ArchiveRange(LANE, 0, 5, now_us=0)
        with pytest.raises(Conflict, match="made again while it was archived"):
            Copying(ArchiveRun(data / "archive", "job"), place, created_us, piece).run()


def test_a_queue_has_one_archive(data: Path, tmp_path: Path) -> None:
    with quivermq.open(data, SETTINGS) as mq:
        put(mq, 5)
        archive_queue(data, data / "archive", "orders")
        mq.use_archive("archive")
    with pytest.raises(Conflict, match=r"the archive of this queue is .*data/archive, not"):
        archive(data, to=tmp_path / "other", dry_run=True)
    assert archive(data, to=data / "archive", dry_run=True).problems == ()


def test_from_the_first_run_on_retention_waits_for_the_archiver(data: Path) -> None:
    """Also when that run is killed before anything of the topic is archived."""

    class Dying:
        files_at_once = 1

        def run(self, *_: object) -> None:
            raise KeyboardInterrupt

    with quivermq.open(data, SETTINGS) as mq:
        put(mq, 5)
    store = Archive(data / "archive")
    place = DirectoryReader(str(data))
    with pytest.raises(KeyboardInterrupt), changing(store, "job") as job:
        _Topic(place, store, job, "orders", AT_ONCE, cast(Any, Dying())).run(rewrite=True)
    manifest = store.manifest("orders")
    assert manifest is not None
    assert manifest.created_us == place.created_us("orders")


def test_a_name_that_is_no_topic_is_told(data: Path) -> None:
    quivermq.open(data).close()
    with pytest.raises(TopicNotFound, match="no topic nosuch"):
        archive(data, topics="nosuch", dry_run=True)
    assert archive(data, topics="nosuch.*", dry_run=True).topics == ()
