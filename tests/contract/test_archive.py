"""Archived and live messages are one range, and nothing goes that is not archived."""

import os
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from contract.conftest import Ways
from support.archives import archive_queue

import quivermq

VALUES = [b"%d" % number for number in range(60)]


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if "ways" not in request.fixturenames:
        return tmp_path / "data"
    path: Path = request.getfixturevalue("ways").directory("orders")
    return path


@pytest.fixture
def archive(ways: Ways, data: Path) -> Path:
    # The directory of a bucket is a cache, and made anew each time.
    return data.with_name("archive") if ways.way == "bucket" else data / "archive"


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
    mq.use_archive(os.path.relpath(archive, data))
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


def free(mq: Any, data: Path, archive: Path, orders: Any) -> None:
    """Archive 45 messages of 60, and leave 20 in the log."""
    archive_queue(data, archive, "orders", end=45)
    mq.use_archive(archive)
    finish(orders)
    assert mq.compact(archived=True).messages == 40


def test_a_new_group_begins_with_the_archive(mq: Any, data: Path, archive: Path) -> None:
    free(mq, data, archive, fill(mq))
    late = mq.queue("orders", "late")
    assert (late.stats().pending, late.stats().state) == (60, "waiting")
    first = late.get()
    assert (first.offset, first.value, first.attempt) == (0, b"0", 1)
    assert late.stats().pending == 59
    late.ack(first)
    assert [message.offset for message in late.peek(3)] == [1, 2, 3]
    # Up to where both meet, and beyond.
    assert [message.value for message in late.get_many(39)] == VALUES[1:40]
    assert [message.value for message in late.get_many(100)] == VALUES[40:]
    assert (late.stats().pending, late.stats().in_flight) == (0, 59)
    # Another one takes them in one go, and one without leases.
    assert [message.value for message in mq.queue("orders", "whole").get_many(100)] == VALUES
    assert [mq.queue("orders", "popper").pop().offset for _ in range(42)] == list(range(42))


def test_a_group_goes_back_into_the_archive(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq)
    stamps = [message.timestamp for message in orders.read(limit=100)]
    free(mq, data, archive, orders)
    for target in ({"offset": 5}, {"offset": 5, "partition": 0}, {"timestamp": stamps[5] / 1_000_000}):
        orders.seek(**target)
        # All of one frame have one time, and it begins at a multiple of five.
        assert orders.stats().pending == 55
        assert [message.offset for message in orders.get_many(100)] == list(range(5, 60))
    orders.seek("earliest")
    assert orders.stats().pending == 60
    orders.seek("latest")
    assert orders.get() is None
    with pytest.raises(quivermq.OffsetOutOfRange, match="outside of this log"):
        orders.seek(offset=61)


def test_what_failed_is_tried_again_from_the_archive(ways: Ways, data: Path, archive: Path) -> None:
    mq = ways.open()
    orders = fill(mq, attempts_max=2, backoff_ms=0)
    free(mq, data, archive, orders)
    late = mq.queue("orders", "late")
    late.nack(late.get_many(3), delay=0)
    mq = ways.restarted(mq)
    late = mq.queue("orders", "late")
    again = late.get_many(3)
    assert [(message.offset, message.attempt) for message in again] == [(0, 2), (1, 2), (2, 2)]
    # It was the last attempt: dead letters are made of what the archive has.
    late.nack(again, reason="never")
    letters = late.dead_letters()
    assert [(letter.value, letter.offset) for letter in letters] == [(b"%d" % n, n) for n in range(3)]
    assert late.get().offset == 3


def test_a_group_that_retention_overtakes_goes_on_in_the_archive(
    mq: Any, data: Path, archive: Path
) -> None:
    orders = fill(mq, retention_messages=10, retention_force=True)
    taken = orders.get_many(7)
    archive_queue(data, archive, "orders", end=55)
    mq.use_archive(archive)
    assert mq.compact().messages == 50
    orders.nack(taken[3:], delay=0)
    orders.ack(taken[:3])
    assert [message.offset for message in orders.get_many(100)] == list(range(3, 60))


def test_a_group_passes_over_what_nobody_archived(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq, retention_messages=10, retention_force=True)
    archive_queue(data, archive, "orders", end=25)
    mq.use_archive(archive)
    assert mq.compact().messages == 50
    assert [message.offset for message in orders.get_many(100)] == [*range(25), *range(50, 60)]


def test_messages_of_a_key_keep_their_order_in_the_archive(mq: Any, data: Path, archive: Path) -> None:
    mq.create_topic("orders", segment_messages=10, ordering="key")
    orders = mq.queue("orders", "billing")
    for number in range(60):
        orders.put(b"%d" % number, key=b"ab"[number % 2 :][:1])
    free(mq, data, archive, orders)
    late = mq.queue("orders", "late")
    seen: list[int] = []
    while taken := late.get_many(10):
        assert len({message.key for message in taken}) == len(taken)
        seen += [message.offset for message in taken]
        late.ack(taken)
    assert seen == list(range(60))


def test_what_expired_in_the_archive_is_passed_over(mq: Any, data: Path, archive: Path) -> None:
    mq.create_topic("orders", segment_messages=2)
    orders = mq.queue("orders", "billing")
    for number in range(6):
        orders.put(b"%d" % number, ttl=0.01 if number % 2 else None)
    finish(orders, 6)
    archive_queue(data, archive, "orders")
    mq.use_archive(archive)
    mq.compact(archived=True)
    time.sleep(0.02)
    late = mq.queue("orders", "late")
    assert [message.offset for message in late.get_many(10)] == [0, 2, 4]


def test_a_group_is_told_that_its_archive_is_away(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq)
    free(mq, data, archive, orders)
    archive.rename(data / "away")
    late = mq.queue("orders", "late")
    for refused in (late.get, lambda: late.seek("earliest"), late.peek):
        with pytest.raises(quivermq.StorageFailed, match="mount it"):
            refused()
    # Who is done with what is archived is not kept from the rest.
    orders.put(b"new")
    assert orders.get().value == b"new"
    (data / "away").rename(archive)
    assert [message.value for message in late.get_many(100)] == [*VALUES, b"new"]


def test_what_is_only_archived_does_not_fill_a_topic(mq: Any, data: Path, archive: Path) -> None:
    orders = fill(mq, backlog_messages_max=61)
    free(mq, data, archive, orders)
    late = mq.queue("orders", "late")
    assert late.get().offset == 0
    # There are 20 in the log; neither what waits in the archive counts, nor what is in flight from there.
    orders.put_many([b"x"] * 41)
    with pytest.raises(quivermq.Overloaded):
        orders.put(b"too many")
