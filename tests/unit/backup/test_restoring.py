"""Queues made from backups: of which moment, where, and what is refused."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from crc32c import crc32c
from support.backups import DATA, BackedUp, backed_up
from support.faulty_disk import FaultyDisk
from support.shared import CACHE, LIMITS, queue_on

import quivermq
from quivermq.backup import BackupSet, restore_from
from quivermq.chaos.faulty_device import PowerCut
from quivermq.errors import Conflict, DamagedChunk, DirectoryLocked, DiskFull, NotFound, StoreUnreachable
from quivermq.shared import SharedDisk, open_shared
from quivermq.shared.checkpoint import Part
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.local import DirectoryStore
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep

TARGET = Path("/restored")


@pytest.fixture
def queue() -> Iterator[BackedUp]:
    with backed_up() as queue:
        queue.put(2000)
        yield queue


def test_every_file_is_as_it_was_but_for_locks(queue: BackedUp) -> None:
    queue.mq.queue("orders").get().ack()  # type: ignore[union-attr]
    queue.back_up()
    queue.mq.close()
    disk = FaultyDisk()
    restore_from(queue.backups(), TARGET, disk=disk)
    made = {str(path.relative_to(TARGET)) for path in disk.files()}
    there = {str(path.relative_to(DATA)) for path in queue.disk.files()}
    # What is known of topics that are not open is written when the queue is closed.
    assert {name for name in there if not name.startswith("catalog/")} == made


def durable_files(disk: FaultyDisk) -> dict[Path, bytes]:
    return {path: data for path, data in disk.files().items() if path.name != "LOCK"}


def test_what_is_restored_survives_power_loss(queue: BackedUp) -> None:
    queue.back_up()
    disk = FaultyDisk()
    restore_from(queue.backups(), TARGET, disk=disk)
    assert durable_files(disk.after_power_loss(keep="nothing")) == durable_files(disk)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
        (tmp_path / "data" / "keys.json").write_text("{}")
        mq.backup(tmp_path / "backups")
    (tmp_path / "again").mkdir()
    quivermq.restore(tmp_path / "backups", tmp_path / "again")
    assert (tmp_path / "again" / "keys.json").stat().st_mode & 0o777 == 0o600


def test_the_latest_or_the_latest_before_a_moment(queue: BackedUp) -> None:
    first = queue.back_up()
    queue.put(100)
    second = queue.back_up()
    assert queue.restored().backup == second
    assert queue.restored(at=second.taken_us).backup == second
    restored = queue.restored(at=second.taken_us - 1)
    assert (restored.backup, restored.report.messages, restored.topics) == (first, 1, 1)
    with pytest.raises(NotFound, match=r"no backup of that time: the first is of 2023-11-14T22:13:30"):
        queue.restored(at=first.taken_us - 1)
    moment = datetime.fromtimestamp(first.taken_us / 1e6, UTC)
    assert restore_from(queue.backups(), TARGET, at=moment, disk=FaultyDisk()).backup == first


def test_where_there_are_no_backups(tmp_path: Path, queue: BackedUp) -> None:
    with pytest.raises(NotFound, match="has no backups"):
        queue.restored()
    with pytest.raises(NotFound, match="nowhere has no backups"):
        quivermq.restore(tmp_path / "nowhere", tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_only_an_empty_directory_is_filled(tmp_path: Path, queue: BackedUp) -> None:
    queue.back_up()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "a").write_bytes(b"mine")
    (tmp_path / "file").write_bytes(b"mine")
    for name, words in (("used", "not empty, there is a"), ("file", "is a file")):
        with pytest.raises(Conflict, match=words):
            restore_from(queue.backups(), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "used"]


def damage(queue: BackedUp, number: int) -> None:
    name = next(name for name in sorted(queue.store.objects) if name.startswith(f"part/{number:020d}"))
    queue.store.objects[name] = queue.store.objects[name][:-1] + b"!"


def test_damage_is_refused_and_a_whole_backup_is_named(queue: BackedUp) -> None:
    queue.back_up()
    queue.put(2000)
    queue.back_up()
    damage(queue, 2)
    disk = FaultyDisk()
    with pytest.raises(
        DamagedChunk,
        match=r"backup 2 of memory cannot be restored: part/0+2-.*"
        r" backup 1 is whole: .*--at 2023-11-14T22:13:30",
    ):
        restore_from(queue.backups(), TARGET, disk=disk)
    assert disk.files() == {}
    assert not disk.is_directory(TARGET.with_name(".restored.restoring"))
    damage(queue, 1)
    with pytest.raises(DamagedChunk, match="no backup before it is whole"):
        queue.restored()


def test_a_moment_that_cannot_be_read_is_told(queue: BackedUp) -> None:
    queue.back_up()
    queue.store.objects["moment/" + "1".zfill(20)] = b"{}"
    with pytest.raises(DamagedChunk, match=r"moment/0+1"):
        queue.restored()


@pytest.mark.fault("kill", "engine")
def test_a_restore_that_ends_at_any_step_leaves_no_queue_and_the_next_one_works(queue: BackedUp) -> None:
    queue.back_up()
    step, is_done = 0, False
    while not is_done:
        step += 1
        disk = FaultyDisk()
        disk.stop_at(step)
        try:
            restore_from(queue.backups(), TARGET, disk=disk)
        except PowerCut:
            assert disk.dead
        is_done = not disk.dead
        left = disk.after_kill()
        if left.is_directory(TARGET):
            # It has its name only when it is whole.
            assert len(left.files()) == len(disk.files())
        else:
            assert restore_from(queue.backups(), TARGET, disk=left).report.messages == 1
            assert not left.exists(TARGET.with_name(".restored.restoring"))


def test_a_full_disk_leaves_nothing(queue: BackedUp) -> None:
    queue.back_up()
    disk = FaultyDisk()
    disk.fill_after(1000)
    with pytest.raises(DiskFull):
        restore_from(queue.backups(), TARGET, disk=disk)
    disk.fill_after(None)
    assert disk.files() == {}


def test_one_restore_into_a_directory_at_a_time(queue: BackedUp) -> None:
    queue.back_up()
    disk = FaultyDisk()
    unfinished = TARGET.with_name(".restored.restoring")
    disk.make_directory(unfinished)
    lock = disk.lock(unfinished / "LOCK")
    with pytest.raises(DirectoryLocked):
        restore_from(queue.backups(), TARGET, disk=disk)
    assert disk.is_directory(unfinished)
    lock.release()


# Buckets.


def opened(bucket: MemoryStore) -> SharedDisk:
    return open_shared(ConditionalChunks(bucket), CACHE, disk=FaultyDisk(), limits=LIMITS)


def test_a_queue_moves_into_a_bucket(queue: BackedUp) -> None:
    queue.put(200_000)
    queue.back_up()
    bucket = MemoryStore()
    assert restore_from(queue.backups(), bucket, disk=FaultyDisk()).report.messages == 2
    for count in (2, 3):
        disk = opened(bucket.beside())
        with queue_on(disk) as mq:
            assert mq.stats().topics["orders"].messages == count
            mq.queue("orders").put(b"x")
        disk.close()
    with pytest.raises(Conflict, match="a queue in that bucket already"):
        restore_from(queue.backups(), bucket, disk=FaultyDisk())
    with pytest.raises(Conflict, match="has a queue in it"):
        queue.back_up(bucket)


def test_a_bucket_with_backups_gets_no_queue(queue: BackedUp) -> None:
    queue.back_up()
    with pytest.raises(Conflict, match="there are backups in that bucket"):
        restore_from(queue.backups(), queue.store.beside(), disk=FaultyDisk())


def test_a_bucket_gets_nothing_when_a_backup_is_damaged(queue: BackedUp) -> None:
    queue.back_up()
    damage(queue, 1)
    bucket, disk = MemoryStore(), FaultyDisk()
    with pytest.raises(DamagedChunk):
        restore_from(queue.backups(), bucket, disk=disk)
    assert bucket.objects == {}
    assert disk.files() == {}


def test_a_bucket_that_fails_in_the_middle_has_no_queue(queue: BackedUp) -> None:
    queue.put(200_000)
    queue.back_up()

    def fails(step: StoreStep) -> StoreFault | None:
        return StoreFault.FAIL if step.operation == "put" else None

    bucket = MemoryStore()
    with pytest.raises(StoreUnreachable):
        restore_from(queue.backups(), bucket.beside(fails), disk=FaultyDisk())
    assert bucket.objects == {}


@pytest.mark.parametrize("fault", [None, StoreFault.FAIL])
def test_a_queue_that_begins_in_the_bucket_meanwhile_is_left_alone(
    queue: BackedUp, fault: StoreFault | None
) -> None:
    queue.put(200_000)
    queue.back_up()
    bucket, steps = MemoryStore(), list[StoreStep]()

    def meanwhile(step: StoreStep) -> StoreFault | None:
        if step.operation != "put" or not step.name.startswith("file/"):
            return None
        if not steps:
            disk = opened(bucket.beside())
            with queue_on(disk) as mq:
                mq.queue("new").put(b"mine")
            disk.close()
        steps.append(step)
        return fault

    with pytest.raises(Conflict if fault is None else StoreUnreachable):
        restore_from(queue.backups(), bucket.beside(meanwhile), disk=FaultyDisk())
    disk = opened(bucket.beside())
    with queue_on(disk) as mq:
        assert [message.value for message in mq.queue("new").read()] == [b"mine"]
    disk.close()


def test_a_backup_cannot_name_what_lies_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "backups" / "part").mkdir(parents=True)
    backups = BackupSet(DirectoryStore(tmp_path / "backups"), "backups")
    for name in ("../secret", str(tmp_path / "secret"), "part/../../secret"):
        with pytest.raises(DamagedChunk, match="no part of a backup has such a name"):
            backups.part(Part(name, 6, crc32c(b"secret")))
