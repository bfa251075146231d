"""What an open queue takes an archive for: what it may rely on, and what it does not trust."""

import sys
from pathlib import Path
from typing import Any

import pytest
from support.archives import ARCHIVE, LANE, archive_log, archive_queue
from support.faulty_disk import FaultyDisk
from unit.engine.store import DATA, Store

from quivermq import Connection, OffsetOutOfRange, Overloaded, StorageFailed
from quivermq.archive import ArchivedTopic
from quivermq.archive.manifest import OWN
from quivermq.delivery import fresh
from quivermq.engine import engine_of
from quivermq.engine.archived import QueueArchive, Seam
from quivermq.engine.offsets import Commit, commit_offsets, committed_offsets
from quivermq.frame import Frame
from quivermq.log import Log

VALUES = [b"%d" % number for number in range(30)]


def fill(engine: Connection, values: list[bytes] = VALUES, **settings: Any) -> None:
    if "orders" not in engine.topics():
        engine.create_topic("orders", segment_messages=5, **settings)
    for value in values:
        engine.queue("orders").put(value)


def archive(store: Store, end: int | None = None) -> None:
    archive_queue(DATA, ARCHIVE, "orders", end=end, disk=store.disk)
    store.engine.use_archive(ARCHIVE)


def log_of(engine: Connection) -> Log:
    log = engine_of(engine).catalog.get("orders").topic.partitions[0].logs[1]
    assert log is not None
    return log


def seam_of(engine: Connection) -> Seam:
    return engine_of(engine).seam("orders", engine_of(engine).catalog.get("orders").topic.partitions[0], 1)


def read(engine: Connection, start: int | None = None) -> list[bytes]:
    return [message.value for message in engine.queue("orders").read(start=start, limit=1000)]


def test_a_manifest_that_may_vanish_is_not_relied_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store.engine)
    archive(store, 12)
    sync_directory = FaultyDisk.sync_directory

    def forgetful(disk: FaultyDisk, directory: Path) -> None:
        if directory != ARCHIVE / OWN:
            sync_directory(disk, directory)

    with monkeypatch.context() as patched:
        # The archiver has come as far as to the renaming of the manifest.
        patched.setattr(FaultyDisk, "sync_directory", forgetful)
        archive(store)
    assert store.engine.compact(archived=True).messages == 30
    store.disk.stop()
    engine = store.open_again(store.disk.after_power_loss(keep="nothing"))
    assert read(engine, 0) == VALUES


def lose_the_end(store: Store) -> Connection:
    """Archive more than a log still has after power loss, which the archiver itself would not do."""
    fill(store.engine, VALUES[:10], durability="os")
    log_of(store.engine).sync()
    fill(store.engine, VALUES[10:])
    lost = log_of(store.engine)
    archive_log(
        store.disk,
        lost,
        lane=LANE,
        created_us=engine_of(store.engine).catalog.created_us("orders"),
    )
    store.engine.use_archive(ARCHIVE)
    store.disk.stop()
    return store.open_again(store.disk.after_power_loss(keep="nothing"))


@pytest.mark.parametrize("count", [0, 10, 40])
def test_the_archive_of_what_the_log_has_lost_is_not_trusted(store: Store, count: int) -> None:
    engine = lose_the_end(store)
    assert log_of(engine).end < 30
    store.clock.advance(1)
    new = [b"new %d" % number for number in range(count)]
    fill(engine, new)
    with pytest.raises(StorageFailed, match="is not the archive of this log of orders"):
        engine.compact(archived=True)
    found = read(engine)
    assert [value for value in found if value.startswith(b"new")] == new


def test_an_archive_that_is_not_trusted_is_not_read_on_in(store: Store) -> None:
    engine = lose_the_end(store)
    store.clock.advance(1)
    fill(engine, [b"new"] * 40)
    log_of(engine).retain(finished=10)
    assert log_of(engine).start == 10
    for start in (None, 3):
        with pytest.raises(StorageFailed, match="the message at offset 29 came into the log"):
            read(engine, start)
    assert len(read(engine, 10)) == log_of(engine).end - 10


def test_a_hole_says_where_to_go_on(store: Store) -> None:
    fill(store.engine, retention_messages=10, retention_force=True)
    archive(store, 8)
    store.engine.compact()
    assert read(store.engine) == VALUES[:8]
    with pytest.raises(OffsetOutOfRange, match=r"offset 8 is gone.* go on with 20") as raised:
        read(store.engine, 8)
    assert (raised.value.start, raised.value.end) == (20, 30)
    # One that the archive has in itself is told in the same way.
    archive(store)
    fill(store.engine, VALUES)
    store.engine.compact()
    assert log_of(store.engine).start == 50
    assert read(store.engine) == VALUES[:8]
    with pytest.raises(OffsetOutOfRange, match=r"offset 13 is gone.* go on with 20") as raised:
        read(store.engine, 13)
    assert raised.value.start == 20
    assert read(store.engine, 20) == VALUES[20:30]


def test_the_archive_may_be_forgotten_between_two_looks(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store.engine)
    archive(store)
    store.engine.compact(archived=True)
    fill(store.engine, [b"live"])
    topic, looks = QueueArchive.topic, list[int]()

    def forgotten_by_others(own: QueueArchive, name: str, created_us: int) -> ArchivedTopic | None:
        if looks:
            own.use(None)
        looks.append(1)
        return topic(own, name, created_us)

    monkeypatch.setattr(QueueArchive, "topic", forgotten_by_others)
    frames = seam_of(store.engine).frames(0)
    found = [record.value for frame in frames for record in frame.records()]
    assert found == [*VALUES, b"live"]
    with pytest.raises(OffsetOutOfRange):
        next(seam_of(store.engine).frames(0))


def test_the_start_is_shown_without_another_look(store: Store) -> None:
    fill(store.engine)
    archive(store)
    store.engine.compact(archived=True)
    assert seam_of(store.engine).known_start == seam_of(store.engine).start == 0
    store.disk.rename(ARCHIVE / OWN / "orders.json", ARCHIVE / OWN / "away")
    assert seam_of(store.engine).known_start == 0
    assert seam_of(store.engine).start == 30


def test_what_has_no_messages_is_passed(store: Store) -> None:
    fill(store.engine)
    queue = store.engine.queue("orders")
    queue.reject(queue.get_many(30), "never")
    queue.discard(lambda letter: letter.value >= b"2")
    letters = store.engine.queue("orders.dlq").read(limit=100)
    archive_queue(DATA, ARCHIVE, "orders.dlq", disk=store.disk)
    store.engine.use_archive(ARCHIVE)
    hosted = engine_of(store.engine).catalog.get("orders.dlq")
    log = hosted.topic.partitions[0].logs[1]
    assert log is not None
    log.retain(finished=30)
    seam = engine_of(store.engine).seam("orders.dlq", hosted.topic.partitions[0], 1)
    list(seam.frames(29))
    assert (seam.reached, log.start, log.end) == (30, 30, 30)
    assert [message.offset for message in seam.records(0)] == [letter.offset for letter in letters]


def freed(store: Store) -> int:
    """Archive 20 messages of 30, free what that allows, and return where the log begins."""
    fill(store.engine)
    archive(store, end=20)
    store.engine.compact(archived=True)
    begins = log_of(store.engine).start
    assert 0 < begins <= 20
    return begins


def test_offsets_are_committed_in_the_archive(store: Store) -> None:
    freed(store)
    commit_offsets(engine_of(store.engine), "late", [Commit("orders", 0, 7)])
    [offset] = committed_offsets(engine_of(store.engine), "late", ["orders"])
    assert (offset.offset, offset.start, offset.end, offset.lag) == (7, 0, 30, 23)
    taken = store.engine.queue("orders", "late").get()
    assert taken is not None
    assert taken.offset == 7
    # What was committed is counted, also where it was archived.
    assert engine_of(store.engine).survey().activity["orders"].groups["late"].acked == 7


def test_a_message_of_the_archive_has_its_age(store: Store) -> None:
    fill(store.engine, VALUES[:20])
    store.clock.advance(60)
    fill(store.engine, VALUES[20:])
    archive(store, end=20)
    store.engine.compact(archived=True)
    assert log_of(store.engine).start == 20
    store.clock.advance(60)
    late = store.engine.queue("orders", "late")
    assert late.pop() is not None
    assert engine_of(store.engine).survey().activity["orders"].groups["late"].oldest_unacked_ms == 120_000


def test_a_group_reads_the_archive_page_by_page(store: Store) -> None:
    begins = freed(store)
    late = store.engine.queue("orders", "late")
    taken = [late.get() for _ in range(30)]
    assert [message.value for message in taken if message is not None] == VALUES
    assert late.get() is None
    late.release([message for message in taken if message is not None and message.offset < begins])
    assert [message.offset for message in late.get_many(30)] == list(range(begins))


def with_keys_in_flight(store: Store) -> None:
    """Let a group with `ordering=key` have three messages that only the archive has, of three keys."""
    store.engine.create_topic("orders", segment_messages=5, ordering="key")
    for number, value in enumerate(VALUES):
        store.engine.queue("orders").put(value, key=b"%d" % (number % 3))
    archive(store)
    store.engine.compact(archived=True)
    assert [message.offset for message in store.engine.queue("orders", "late").get_many(9)] == [0, 1, 2]


def test_a_group_that_had_no_archive_when_it_was_opened_is_there_once_it_has(store: Store) -> None:
    with_keys_in_flight(store)
    store.disk.rename(ARCHIVE, ARCHIVE.with_name("away"))
    engine = store.reopen()
    late = engine.queue("orders", "late")
    for _ in range(2):
        with pytest.raises(StorageFailed, match="mount it"):
            late.get()
    store.disk.rename(ARCHIVE.with_name("away"), ARCHIVE)
    # All keys are taken, as before.
    assert late.get() is None
    assert (late.stats().in_flight, engine_of(engine).survey().problems) == (3, [])


def test_without_pyarrow_only_the_groups_that_are_in_the_archive_fail(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys_in_flight(store)
    store.engine.queue("orders", "done").seek("latest")
    # What an import of a module that is not there does.
    monkeypatch.delattr("quivermq.archive.parquet")
    monkeypatch.setitem(sys.modules, "quivermq.archive.parquet", None)
    engine = store.reopen()
    with pytest.raises(StorageFailed, match="pyarrow is needed"):
        engine.queue("orders", "late").get()
    engine.queue("orders").put(b"live")
    taken = engine.queue("orders", "done").get()
    assert taken is not None
    assert taken.value == b"live"


def test_retention_that_does_not_reach_the_archive_leaves_a_group_where_it_is(store: Store) -> None:
    fill(store.engine, retention_messages=10, retention_force=True)
    archive(store)
    store.engine.compact()
    assert store.engine.queue("orders", "late").pop() is not None
    store.disk.rename(ARCHIVE, ARCHIVE.with_name("away"))
    engine = store.reopen()
    fill(engine)
    assert engine.compact().messages == 30
    store.disk.rename(ARCHIVE.with_name("away"), ARCHIVE)
    late = engine.queue("orders", "late")
    assert [message.offset for message in late.get_many(100)] == [*range(1, 30), *range(50, 60)]


def test_a_purged_topic_needs_no_archive(store: Store) -> None:
    freed(store)
    store.engine.queue("orders").purge()
    fill(store.engine, [b"new"])
    store.disk.rename(ARCHIVE, ARCHIVE.with_name("away"))
    taken = store.engine.queue("orders", "late").get()
    assert taken is not None
    assert taken.value == b"new"


def test_what_retention_takes_while_a_group_reads_comes_from_the_archive(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store.engine, retention_force=True)
    archive(store)
    whole_frames, reads = fresh._whole_frames, list[int]()

    def overtaken(log: Any, start: int) -> list[Frame]:
        found = whole_frames(log, start)
        if start == 10:
            reads.append(start)
            log_of(store.engine).retain(finished=20)
        return found

    monkeypatch.setattr(fresh, "_AHEAD_BYTES", 1)
    monkeypatch.setattr(fresh, "_whole_frames", overtaken)
    taken = store.engine.queue("orders", "late").get_many(30)
    assert (reads, log_of(store.engine).start) == ([10], 20)
    assert [message.offset for message in taken] == list(range(30))


def test_what_lies_before_a_missing_file_is_given_and_then_the_file_is_named(store: Store) -> None:
    fill(store.engine)
    for end in (10, 20):
        archive(store, end=end)
    store.engine.compact(archived=True)
    lane = engine_of(store.engine).archive.last_lane(
        LANE, engine_of(store.engine).catalog.created_us("orders")
    )
    file = ARCHIVE / lane.files[1].name
    assert lane.files[1].start == 10
    store.disk.remove(file)
    late = store.engine.queue("orders", "late")
    assert [message.offset for message in late.get_many(30)] == list(range(10))
    with pytest.raises(StorageFailed, match=file.name):
        late.get_many(30)


def test_what_is_tried_again_is_read_from_the_archive_in_one_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.engine.create_topic("orders", segment_messages=5)
    for value in VALUES:
        # Each came in by itself, so that each is a frame.
        store.clock.advance(1)
        fill(store.engine, [value])
    archive(store)
    store.engine.compact(archived=True)
    begins = log_of(store.engine).start
    late = store.engine.queue("orders", "late")
    late.nack(late.get_many(begins), delay=0)
    topic, looks = QueueArchive.topic, list[int]()

    def counted(own: QueueArchive, name: str, created_us: int) -> ArchivedTopic | None:
        looks.append(1)
        return topic(own, name, created_us)

    monkeypatch.setattr(QueueArchive, "topic", counted)
    assert [message.offset for message in late.get_many(begins)] == list(range(begins))
    assert len(looks) == 1


def all_archived(store: Store, **settings: Any) -> None:
    """Archive and free 30 messages, and set something then."""
    fill(store.engine)
    archive(store)
    store.engine.compact(archived=True)
    assert log_of(store.engine).start == 30
    store.engine.alter_topic("orders", **settings)


@pytest.mark.parametrize("settings", [{"backlog_messages_max": 10}, {"backlog_bytes_max": 1500}])
def test_what_is_in_flight_from_the_archive_does_not_fill_a_topic(
    store: Store, settings: dict[str, int]
) -> None:
    all_archived(store, **settings)
    late = store.engine.queue("orders", "late")
    held = late.get_many(20)
    late.nack(held[10:], delay=60)
    fill(store.engine, VALUES[:10])
    with pytest.raises(Overloaded):
        fill(store.engine, VALUES[:20])


def test_what_is_dropped_with_the_archive_is_counted(store: Store) -> None:
    all_archived(store, backlog_messages_max=10, backlog_policy="drop_oldest")
    late = store.engine.queue("orders", "late")
    assert late.pop() is not None
    fill(store.engine, VALUES[:12])
    assert [message.offset for message in late.get_many(100)] == list(range(32, 42))
    dropped = [
        each["value"] for each in engine_of(store.engine).collect_metrics() if "dropped" in each["name"]
    ]
    assert sum(dropped) == 29 + 2
