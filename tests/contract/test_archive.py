"""Archived and live messages are one range, and nothing goes that is not archived."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from contract.conftest import Ways
from support.archives import archive_queue

import quivermq

VALUES = [b"%d" % number for number in range(60)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def archive(data: Path) -> Path:
    return data / "archive"


def fill(mq: Any, **settings: Any) -> Any:
    mq.create_topic("orders", **{"segment_messages": 10, **settings})
    orders = mq.queue("orders", "billing")
    for first in range(0, 60, 5):
        orders.put_many(VALUES[first : first + 5])
    return orders


def values(orders: Any, start: int | None = None, limit: int = 1000) -> list[bytes]:
    return [message.value for message in orders.read(start=start, limit=limit)]


def offsets(orders: Any, start: int | None = None, limit: int = 1000) -> list[int]:
    return [message.offset for message in orders.read(start=start, limit=limit)]


def finish(orders: Any, count: int = 60) -> None:
    for _ in range(count):
        orders.pop()


def test_archived_messages_are_read_as_if_they_were_in_the_log(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq)
    before = orders.read(limit=100)
    archive_queue(data, archive, "orders", end=45)
    mq.use_archive(archive)
    finish(orders)
    assert mq.compact(archived=True).messages == 40
    assert orders.read(limit=100) == before
    assert [offsets(orders, start, 7) for start in (0, 36, 38, 40, 44)] == [
        list(range(start, start + 7)) for start in (0, 36, 38, 40, 44)
    ]
    assert values(orders, 60) == []
    with pytest.raises(quivermq.OffsetOutOfRange):
        orders.read(start=61)


def test_every_field_comes_back(mq: Any, data: Path, archive: Path) -> None:
    orders = mq.queue("orders", "billing")
    orders.put(b"v", key=b"k", headers={"a": b"1", "b": b""}, ttl=1000, dedup_id="d", priority="high")
    before = orders.read(priority="high")
    archive_queue(data, archive, "orders")
    mq.use_archive("archive")
    orders.pop()
    assert mq.compact(archived=True).messages == 1
    assert orders.read(priority="high", start=0) == before


def test_a_queue_finds_its_archive_when_it_is_opened_again(tmp_path: Path, data: Path) -> None:
    with quivermq.open(data) as mq:
        orders = fill(mq)
        archive_queue(data, tmp_path / "elsewhere", "orders")
        mq.use_archive(tmp_path / "elsewhere")
        finish(orders)
        mq.compact(archived=True)
    with quivermq.open(data) as mq:
        assert values(mq.queue("orders")) == VALUES


def test_what_no_group_has_finished_with_stays(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq)
    archive_queue(data, archive, "orders")
    mq.use_archive(archive)
    finish(orders, 25)
    assert mq.compact(archived=True).messages == 20
    assert values(orders) == VALUES


def test_retention_leaves_what_is_not_archived(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq, retention_messages=10)
    archive_queue(data, archive, "orders", end=25)
    mq.use_archive(archive)
    finish(orders)
    assert mq.compact().messages == 20
    assert values(orders) == VALUES
    archive_queue(data, archive, "orders")
    assert mq.compact().messages == 30
    assert values(orders) == VALUES


def test_retention_that_is_forced_leaves_a_hole_that_is_told(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq, retention_messages=10, retention_force=True)
    archive_queue(data, archive, "orders", end=25)
    mq.use_archive(archive)
    assert mq.compact().messages == 50
    # What lies before the hole is all, and who goes on there is told where to.
    assert values(orders, 3, 22) == values(orders, 3) == VALUES[3:25]
    for start in (25, 49):
        with pytest.raises(quivermq.OffsetOutOfRange, match=f"offset {start} is gone") as raised:
            orders.read(start=start)
        assert raised.value.start == 50
    assert values(orders, 50) == VALUES[50:]


def test_a_topic_made_again_has_nothing_to_do_with_the_archive(mq: Any, data: Path, archive: Path) -> None:
    fill(mq)
    archive_queue(data, archive, "orders")
    mq.use_archive(archive)
    mq.delete_topic("orders")
    orders = fill(mq, retention_messages=10)
    assert mq.compact().messages == 50
    assert offsets(orders) == list(range(50, 60))
    with pytest.raises(quivermq.OffsetOutOfRange):
        orders.read(start=0)


def test_redriven_dead_letters_stay_away(mq: Any, data: Path, archive: Path) -> None:
    orders = mq.queue("orders")
    orders.put_many([b"a", b"b", b"c"])
    orders.reject(orders.get_many(3), "never")
    graves = mq.queue("orders.dlq")
    archive_queue(data, archive, "orders.dlq")
    mq.use_archive(archive)
    orders.redrive(limit=1)
    mq.compact(archived=True)
    assert len(graves.read(start=0)) == 2


def test_dead_letters_wait_in_the_log(mq: Any, data: Path, archive: Path) -> None:
    orders = mq.queue("orders")
    orders.put_many([b"a", b"b", b"c"])
    orders.reject(orders.get_many(3), "never")
    archive_queue(data, archive, "orders.dlq")
    mq.use_archive(archive)
    mq.compact(archived=True)
    assert [letter.value for letter in orders.dead_letters()] == [b"a", b"b", b"c"]
    assert orders.redrive() == 3


@pytest.mark.damages
def test_one_topic_in_trouble_does_not_keep_the_others_from_being_freed(
    mq: Any, data: Path, archive: Path
) -> None:
    fill(mq, retention_messages=10)
    mq.create_topic("visits", segment_messages=10, retention_messages=10)
    for _ in range(6):
        mq.queue("visits").put_many([b"visit"] * 10)
    archive_queue(data, archive, "orders")
    mq.use_archive(archive)
    for manifest in (archive / "_quiver").rglob("*.json"):
        manifest.write_bytes(b"no manifest")
    with pytest.raises(quivermq.StorageFailed):
        mq.compact()
    assert offsets(mq.queue("visits")) == list(range(50, 60))
    assert offsets(mq.queue("orders"), 55) == list(range(55, 60))


def test_a_missing_file_is_named(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq)
    archive_queue(data, archive, "orders")
    mq.use_archive(archive)
    finish(orders)
    mq.compact(archived=True)
    [file] = archive.rglob("p0-*.parquet")
    file.unlink()
    with pytest.raises(quivermq.StorageFailed, match=file.name):
        orders.read(start=0)


def test_without_its_archive_nothing_goes(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq, retention_messages=10)
    archive_queue(data, archive, "orders")
    mq.use_archive(archive)
    archive.rename(data / "away")
    with pytest.raises(quivermq.StorageFailed, match="mount it"):
        mq.compact()
    (data / "away").rename(archive)
    assert mq.compact().messages == 50
    mq.use_archive(None)
    with pytest.raises(quivermq.OffsetOutOfRange):
        orders.read(start=0)


def test_what_is_no_archive_is_refused(mq: Any, tmp_path: Path) -> None:
    with pytest.raises(quivermq.NotFound, match="is not an archive"):
        mq.use_archive(tmp_path)
    with pytest.raises(quivermq.InvalidRequest):
        mq.use_archive(7)


def test_a_mangled_pointer_stops_only_who_needs_the_archive(data: Path, archive: Path) -> None:
    with quivermq.open(data) as mq:
        orders = fill(mq, retention_messages=10)
        archive_queue(data, archive, "orders", end=25)
        mq.use_archive(archive)
        finish(orders)
        assert mq.compact().messages == 20
    (data / "archive.json").write_text("{")
    with quivermq.open(data) as mq:
        orders = mq.queue("orders", "billing")
        orders.put(b"more")
        assert values(orders, 20) == [*VALUES[20:], b"more"]
        for refused in (mq.compact, orders.read, lambda: orders.read(start=3)):
            with pytest.raises(quivermq.StorageFailed, match=r"archive\.json.*call use_archive"):
                refused()
        mq.use_archive(archive)
        assert values(orders) == [*VALUES, b"more"]


def test_verify_looks_only_at_logs(mq: Any, data: Path, archive: Path) -> None:
    fill(mq)
    before = mq.verify()
    archive_queue(data, archive, "orders")
    after = mq.verify()
    assert (after.logs, after.messages, after.is_sound) == (before.logs, before.messages, True)
    assert pq.read_table(archive).num_rows == 60


def test_reading_goes_on_while_retention_and_the_archiver_run(
    ways: Ways, data: Path, archive: Path
) -> None:
    mq = ways.open()
    orders = fill(mq, retention_messages=10)
    archive_queue(data, archive, "orders", end=5)
    mq.use_archive(archive)
    seen: list[int] = []
    for step in range(60):
        orders.put_many(VALUES[:3])
        # One that only reads must never notice which of the two serves it.
        seen += offsets(orders, len(seen), 4)
        if step % 3 == 0:
            archive_queue(data, archive, "orders")
        finish(orders, 3)
        mq.compact(archived=step % 2 == 0)
    seen += offsets(orders, len(seen))
    assert seen == list(range(60 + 180))


def test_a_group_does_not_silently_miss_what_is_archived(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq)
    stamps = [message.timestamp for message in orders.read(limit=100)]
    archive_queue(data, archive, "orders", end=45)
    mq.use_archive(archive)
    finish(orders)
    assert mq.compact(archived=True).messages == 40
    said = r"offset 5 .* is archived.*holds \[40, 60\).*`read` and Spark.*replay"
    with pytest.raises(quivermq.OffsetOutOfRange, match=said):
        orders.seek(offset=5)
    with pytest.raises(quivermq.OffsetOutOfRange, match=said):
        orders.seek(offset=5, partition=0)
    with pytest.raises(quivermq.OffsetOutOfRange, match="is archived"):
        orders.seek(timestamp=stamps[5] / 1_000_000)
    assert orders.get() is None
    # What is in the log, and what nobody archived, are as they were.
    orders.seek(offset=42)
    assert [message.offset for message in orders.get_many(100)] == list(range(42, 60))
    orders.seek("earliest")
    assert orders.stats().pending == 20
    with pytest.raises(quivermq.OffsetOutOfRange, match="outside of this log"):
        orders.seek(offset=61)
