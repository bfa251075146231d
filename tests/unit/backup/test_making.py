"""Backups of a queue: whole, incremental, of one queue, and refused in time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backups import SMALL_PARTS, BackedUp, backed_up
from support.faulty_disk import FaultyDisk
from support.shared import IMPATIENT, opened, queue_on

import quivermq
from quivermq.backup import BackupSet, BackupSource, make_backup, restore_from
from quivermq.backup.identity import queue_identity
from quivermq.backup.sets import BackupManifest
from quivermq.disk import SystemDisk
from quivermq.engine import engine_of
from quivermq.errors import Closing, Conflict, InvalidRequest, StoreUnreachable, Unavailable
from quivermq.log import DataDirectory
from quivermq.shared.checkpoint import StoredFile
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep


@pytest.fixture
def queue() -> Iterator[BackedUp]:
    with backed_up() as queue:
        yield queue


def latest_files(queue: BackedUp) -> dict[str, StoredFile]:
    latest = queue.backups().latest()
    assert latest is not None
    return {file.path: file for file in queue.backups().files(latest.shards[""]).files}


def log_of(queue: BackedUp) -> StoredFile:
    [log] = [
        file for path, file in latest_files(queue).items() if path.endswith("normal/" + "0" * 20 + ".log")
    ]
    return log


def test_what_was_acknowledged_is_in_it_buffered_too(queue: BackedUp) -> None:
    queue.put(100)
    queue.mq.queue("orders").put(b"in the buffer", durability="buffered")
    queue.back_up()
    assert queue.restored().report.messages == 2


def test_the_second_stores_only_what_is_new(queue: BackedUp) -> None:
    queue.put(900, 900, 900)
    first = queue.back_up()
    before = {name for name in queue.store.objects if name.startswith("part/")}
    parts = log_of(queue).parts
    queue.put(500)
    second = queue.back_up()
    assert second.number == first.number + 1
    assert second.bytes > first.bytes
    # The message, its journal and the list of files; nothing of what was there.
    assert second.new_bytes < first.new_bytes
    assert log_of(queue).parts[: len(parts)] == parts
    assert before <= set(queue.store.objects)


def test_a_log_that_grew_in_small_steps_has_few_parts(queue: BackedUp) -> None:
    for _ in range(40):
        queue.put(300)
        queue.back_up()
    log = log_of(queue)
    assert log.size > 40 * 300
    assert len(log.parts) <= 40 * 300 / SMALL_PARTS.part_bytes_max * 2 + 4
    assert queue.restored().report.messages == 40


def test_a_file_that_was_replaced_is_stored_anew(queue: BackedUp) -> None:
    queue.mq.create_topic("orders", segment_messages=2, retention_messages=2)
    queue.put(400, 400, 400, 400, 400)
    queue.back_up()
    queue.mq.compact()
    queue.back_up()
    restored = queue.restored()
    assert restored.report.messages < 5
    assert restored.report.findings == []


def test_the_time_it_was_taken_and_how_large_it_is(queue: BackedUp) -> None:
    queue.put(100)
    backup = queue.back_up()
    assert backup.taken_us == queue.clock.now_us()
    assert backup.bytes == sum(file.size for file in latest_files(queue).values())
    assert backup.files == len(latest_files(queue))
    assert backup.archive is None


def test_a_target_is_for_one_queue(queue: BackedUp) -> None:
    queue.put(100)
    queue.back_up()
    with backed_up() as other:
        other.put(100)
        with pytest.raises(Conflict, match="memory has the backups of another queue"):
            make_backup(other.engine.backup_source(), queue.backups())
    assert len(list(queue.backups().entries())) == 1


def test_a_restored_queue_goes_on_in_the_same_target(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
        mq.backup(tmp_path / "backups")
    quivermq.restore(tmp_path / "backups", tmp_path / "again")
    with quivermq.open(tmp_path / "again") as mq:
        assert mq.backup(tmp_path / "backups").number == 2


def test_a_failure_in_the_middle_leaves_what_was_there(queue: BackedUp) -> None:
    queue.put(2000)
    queue.back_up()

    def fails(step: StoreStep) -> StoreFault | None:
        return StoreFault.FAIL if step.operation == "put" else None

    queue.put(2000)
    with pytest.raises(StoreUnreachable):
        queue.back_up(queue.store.beside(fails))
    assert queue.restored().report.messages == 1
    queue.back_up()
    assert queue.restored().report.messages == 2


def test_files_that_are_cut_again_and_again_are_told(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.log("log").append(b"x", durability="os")

        class Cutting(MemoryStore):
            def put(self, name: str, data: bytes) -> None:
                super().put(name, data)
                directory.log("log").truncate(0, in_place=True)
                directory.log("log").append(b"x", durability="os")

        source = BackupSource(tmp_path, directory.disk, directory._clock, directory.picture, lambda: None)
        # The first file is put, and then the log is cut.
        (tmp_path / "a").write_bytes(bytes(1000))
        store = Cutting()
        with pytest.raises(Unavailable, match=r"changed 5 times .* was shortened"):
            make_backup(source, BackupSet(store, "memory"), limits=SMALL_PARTS)
        assert not [entry for _, entry in BackupSet(store, "memory").entries()]


def test_a_queue_that_is_closed_meanwhile_ends_it(queue: BackedUp) -> None:
    queue.put(2000)

    def closes(step: StoreStep) -> None:
        if step.operation == "put":
            queue.engine.interrupt()

    with pytest.raises(Closing):
        queue.back_up(queue.store.beside(closes))
    queue.engine.resume()
    assert not list(queue.backups().entries())


def test_one_at_a_time(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
        with engine_of(mq)._backing_up, pytest.raises(Conflict, match="made already"):
            mq.backup(tmp_path / "backups")
        assert mq.backup(tmp_path / "backups").number == 1


@pytest.mark.parametrize("target", ["data", "data/backups", "."])
def test_backups_do_not_lie_in_the_queue_nor_around_it(tmp_path: Path, target: str) -> None:
    with quivermq.open(tmp_path / "data") as mq, pytest.raises(InvalidRequest, match="lie in one another"):
        mq.backup(tmp_path / target)


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    with quivermq.open(tmp_path / "data") as mq, pytest.raises(Conflict, match=r"cat\.jpg"):
        mq.backup(tmp_path / "photos")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize("target", ["", "\0", "file://host/backups", "x" * 5000])
def test_a_target_that_is_none_is_refused(tmp_path: Path, target: str) -> None:
    with quivermq.open(tmp_path / "data") as mq, pytest.raises(InvalidRequest):
        mq.backup(target)


def test_an_archive_elsewhere_is_named(tmp_path: Path, queue: BackedUp) -> None:
    source = BackupSource(
        tmp_path, SystemDisk(), queue.clock, queue.engine._directory.picture, lambda: None, Path("/archive")
    )
    assert make_backup(source, queue.backups()).archive == "/archive"
    latest = queue.backups().latest()
    assert isinstance(latest, BackupManifest)
    assert latest.backup.archive == "/archive"


def test_a_queue_in_an_object_store_has_only_what_is_committed() -> None:
    truth, backups = MemoryStore(), MemoryStore()
    with opened(truth) as disk, queue_on(disk) as mq:
        mq.queue("orders").put_many([b"tea", b"milk"])
        make_backup(engine_of(mq).backup_source(), BackupSet(backups, "memory"), limits=SMALL_PARTS)
        committed = truth.beside()
        with opened(MemoryStore(dict(committed.objects))) as other, queue_on(other) as there:
            assert there.stats().topics["orders"].messages == 2
    restored = restore_from(BackupSet(backups, "memory"), Path("/restored"), disk=FaultyDisk())
    assert restored.report.messages == 2
    assert restored.report.findings == []


def test_a_queue_whose_store_does_not_answer_is_not_backed_up() -> None:
    truth, backups = MemoryStore(), MemoryStore()
    with opened(truth, IMPATIENT) as disk, queue_on(disk) as mq:
        mq.queue("orders").put(b"tea")
        queue_identity(engine_of(mq)._directory.disk, disk.root)
        truth.fault = lambda _: StoreFault.FAIL
        mq.queue("orders").put(b"milk", durability="os")
        with pytest.raises(StoreUnreachable):
            make_backup(engine_of(mq).backup_source(), BackupSet(backups, "memory"))
        truth.fault = lambda _: None
    assert not [name for name in backups.objects if name.startswith("moment/")]
