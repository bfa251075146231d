"""Checkpoints are made beside the writers, and what they make needless goes, in a safe order."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.shared import CACHE, LIMITS, at_each, fail, files_of, heal, open_disk, opened, write

from quivermq.errors import Closing, NotOwner, StoreDenied, StoreUnreachable
from quivermq.shared import SharedDisk, open_shared
from quivermq.shared.checkpoint import Checkpoint, decode_checkpoint
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep
from quivermq.shared.naming import numbered

SMALL = replace(LIMITS, part_bytes_min=100, part_bytes_max=1000)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def disk(store: MemoryStore) -> Iterator[SharedDisk]:
    with opened(store, SMALL) as disk:
        yield disk


def latest(store: MemoryStore) -> Checkpoint:
    stored = ConditionalChunks(store.beside()).checkpoint()
    assert stored is not None
    return decode_checkpoint("checkpoint", stored.data)


def as_others_see_it(store: MemoryStore) -> dict[str, bytes]:
    with opened(store.beside(), SMALL) as disk:
        return files_of(disk)


def trim(disk: SharedDisk) -> None:
    """What happens after one more commit."""
    write(disk, "more", b"")
    disk.sync_directory(disk.root)
    disk.clean()


def named(store: MemoryStore, kind: str) -> list[str]:
    return [name for name in sorted(store.objects) if name.startswith(kind)]


def test_a_checkpoint_has_everything_that_was_done(store: MemoryStore, disk: SharedDisk) -> None:
    disk.make_directory(disk.root / "d/empty")
    disk.create(disk.root / "d/private", is_private=True).close()
    write(disk, "small", b"tail")
    write(disk, "large", bytes(range(250)))
    assert disk.checkpoint()
    trim(disk)
    checkpoint = latest(store)
    by_path = {file.path: file for file in checkpoint.files}
    assert by_path["small"].tail == b"tail"
    assert [part.size for part in by_path["large"].parts] == [250]
    assert by_path["d/private"].is_private
    # As it is, so that others can read it there.
    assert store.objects[by_path["large"].parts[0].name] == bytes(range(250))
    # Only the claim, and what came behind the checkpoint.
    assert named(store, "chunk/") == [numbered(0), numbered(checkpoint.number)]
    assert as_others_see_it(store) == files_of(disk)


def test_nothing_goes_before_one_more_commit(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"x")
    disk.checkpoint()
    chunks = named(store, "chunk/")
    disk.clean()
    assert named(store, "chunk/") == chunks
    trim(disk)
    assert len(named(store, "chunk/")) == 2


def test_nothing_goes_for_a_commit_that_came_before_the_checkpoint(
    store: MemoryStore, disk: SharedDisk
) -> None:
    write(disk, "a", bytes(200))
    disk.checkpoint()
    trim(disk)
    disk.remove(disk.root / "a")
    objects: list[set[str]] = []

    def fault(step: StoreStep) -> None:
        # Behind what the checkpoint covers, but whoever claims now has not seen the checkpoint.
        if step.name.startswith("checkpoint/") and not objects:
            objects.append(set(store.objects))
            disk.make_directory(disk.root / "meanwhile")

    store.fault = fault
    assert disk.checkpoint()
    disk.clean()
    assert objects[0] <= store.objects.keys()
    trim(disk)
    assert named(store, "file/") == []
    assert len(named(store, "chunk/")) == 3


def test_of_one_number_there_is_one_checkpoint(store: MemoryStore, disk: SharedDisk) -> None:
    file = disk.create(disk.root / "log")
    for _ in range(2):
        file.append([bytes(150)])
        disk.checkpoint()
    # Now the file has become quiet, and could be stored as one; but nothing was committed since.
    before = set(store.objects)
    assert disk.checkpoint()
    assert set(store.objects) == before
    trim(disk)
    assert latest(store).part_names() == set(named(store, "file/"))
    disk.checkpoint()
    assert [len(each.parts) for each in latest(store).files] == [1, 0]
    trim(disk)
    assert latest(store).part_names() == set(named(store, "file/"))
    assert as_others_see_it(store) == files_of(disk)


def test_a_growing_file_is_stored_in_parts_and_a_quiet_one_as_it_is(
    store: MemoryStore, disk: SharedDisk
) -> None:
    file = disk.create(disk.root / "log")
    for size in (250, 20, 300):
        file.append([bytes([size % 251]) * size])
        disk.checkpoint()
    [log] = latest(store).files
    assert [part.size for part in log.parts] == [250, 320]
    trim(disk)
    disk.checkpoint()
    log = next(file for file in latest(store).files if file.path == "log")
    assert [part.size for part in log.parts] == [570]
    trim(disk)
    assert named(store, "file/") == [log.parts[0].name]
    # And from then on it is not touched any more.
    disk.checkpoint()
    assert named(store, "file/") == [log.parts[0].name]
    assert as_others_see_it(store) == files_of(disk)


def test_a_file_that_is_too_large_for_one_object_has_several(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "large", bytes(2550))
    for _ in range(3):
        disk.checkpoint()
        trim(disk)
    [large, _] = latest(store).files
    assert [part.size for part in large.parts] == [1000, 1000, 550]
    assert as_others_see_it(store) == files_of(disk)


def test_a_checkpoint_holds_only_so_much_itself(store: MemoryStore) -> None:
    with opened(store, replace(SMALL, inline_bytes_max=150)) as disk:
        for name in "abc":
            write(disk, name, name.encode() * 60)
        disk.checkpoint()
        assert [len(file.tail) for file in latest(store).files] == [60, 60, 0]
        assert len(named(store, "file/")) == 1
        seen = files_of(disk)
    assert as_others_see_it(store) == seen


def test_a_file_that_is_cut_forgets_the_parts_behind(store: MemoryStore, disk: SharedDisk) -> None:
    file = disk.create(disk.root / "log")
    for _ in range(3):
        file.append([bytes(200)])
        disk.checkpoint()
    file.truncate(450)
    file.append([b"x" * 200])
    disk.checkpoint()
    assert [part.size for part in latest(store).files[0].parts] == [200, 200, 250]
    file.rewrite(300, b"\0")
    disk.checkpoint()
    assert [part.size for part in latest(store).files[0].parts] == [200, 450]
    trim(disk)
    assert len(named(store, "file/")) == 2
    assert as_others_see_it(store) == files_of(disk)


def test_parts_of_files_that_are_gone_go_too(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", bytes(200))
    write(disk, "b", bytes(200))
    disk.checkpoint()
    trim(disk)
    disk.remove(disk.root / "a")
    disk.rename(disk.root / "b", disk.root / "c")
    disk.checkpoint()
    assert len(named(store, "file/")) == 2
    trim(disk)
    assert len(named(store, "file/")) == 1
    assert as_others_see_it(store) == files_of(disk)


def while_reading(store: MemoryStore, act: Callable[[], object]) -> None:
    """Let something happen once, when the picture is taken and its first part goes to the store."""
    done: list[StoreStep] = []

    def fault(step: StoreStep) -> None:
        if step.operation == "put" and not done:
            done.append(step)
            act()

    store.fault = fault


def pictured(disk: SharedDisk) -> dict[str, bytes]:
    write(disk, "0", bytes(200))
    for name in "abcd":
        write(disk, name, name.encode() * 150)
    disk.sync_directory(disk.root)
    return files_of(disk)


def test_what_is_done_meanwhile_is_not_in_the_picture(store: MemoryStore, disk: SharedDisk) -> None:
    before = pictured(disk)

    def act() -> None:
        disk.open(disk.root / "a", writable=True).append([b"more"])
        disk.remove(disk.root / "b")
        write(disk, "c", b"another")
        disk.rename(disk.root / "d", disk.root / "e")
        write(disk, "f", b"new")

    while_reading(store, act)
    assert disk.checkpoint()
    stored = latest(store)
    content = {
        file.path: b"".join(store.objects[part.name] for part in file.parts) + file.tail
        for file in stored.files
    }
    assert content == before
    trim(disk)
    assert as_others_see_it(store) == files_of(disk)
    disk_files = files_of(disk)
    assert disk_files["a"] == b"a" * 150 + b"more"
    assert "b" not in disk_files


def test_a_picture_that_is_cut_is_given_up_and_made_again(store: MemoryStore, disk: SharedDisk) -> None:
    pictured(disk)
    while_reading(store, lambda: disk.open(disk.root / "c", writable=True).truncate(10))
    assert not disk.checkpoint()
    assert ConditionalChunks(store.beside()).checkpoint() is None
    disk.clean()
    assert named(store, "file/") == []
    assert disk.checkpoint()
    assert as_others_see_it(store) == files_of(disk)


def test_a_file_that_is_cut_after_it_was_read_begins_anew(store: MemoryStore, disk: SharedDisk) -> None:
    file = disk.create(disk.root / "a")
    for _ in range(2):
        file.append([bytes(150)])
        disk.checkpoint()
    trim(disk)

    def fault(step: StoreStep) -> None:
        # The two parts have become one; the checkpoint that says so is on its way.
        if step.operation == "put" and step.name.startswith("checkpoint/"):
            file.truncate(200)

    store.fault = fault
    disk.checkpoint()
    store.fault = lambda _: None
    trim(disk)
    file.append([b"x" * 200])
    disk.checkpoint()
    trim(disk)
    assert as_others_see_it(store) == files_of(disk)


def test_it_is_made_by_itself_after_so_many_chunks(store: MemoryStore) -> None:
    arrived = threading.Event()

    def fault(step: StoreStep) -> None:
        if step.operation == "remove":
            arrived.set()

    with opened(store, replace(SMALL, checkpoint_chunks=10)) as disk:
        store.fault = fault
        for n in range(40):
            write(disk, f"{n}", b"%d" % n)
            disk.sync_directory(disk.root)
        assert arrived.wait(5)
        seen = files_of(disk)
    assert latest(store).number > 10
    assert as_others_see_it(store) == seen


def test_it_is_made_by_itself_after_so_many_bytes(store: MemoryStore) -> None:
    arrived = threading.Event()

    def fault(step: StoreStep) -> None:
        if step.name.startswith("checkpoint/") and step.operation == "put":
            arrived.set()

    with opened(store, replace(SMALL, checkpoint_bytes=1000)) as disk:
        store.fault = fault
        write(disk, "a", bytes(2000))
        disk.sync_directory(disk.root)
        assert arrived.wait(5)


@pytest.mark.parametrize("fault", [StoreFault.LOSE_ANSWER, StoreFault.LATE, StoreFault.DOUBLE])
def test_a_checkpoint_without_an_answer_is_put_until_there_is_one(
    store: MemoryStore, disk: SharedDisk, fault: StoreFault
) -> None:
    write(disk, "a", b"x")
    lost: list[str] = []

    def decide(step: StoreStep) -> StoreFault | None:
        if step.operation == "put" and len(lost) < 2:
            lost.append(step.name)
            return fault
        return None

    store.fault = decide
    assert disk.checkpoint()
    write(disk, "b", b"y")
    assert disk.checkpoint()
    trim(disk)
    # An old one that comes late is not the latest.
    store.deliver_late()
    assert as_others_see_it(store) == files_of(disk)


def test_checkpoints_that_wait_for_the_same_chunk_are_of_one_chunk(
    store: MemoryStore, disk: SharedDisk
) -> None:
    write(disk, "a", b"x")
    fail(disk, store)
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            disk.checkpoint()
    heal(disk, store)
    assert disk.checkpoint()
    write(disk, "b", b"x")
    disk.sync_directory(disk.root)
    # An empty one would count as begun behind the checkpoint, though it was begun before.
    assert disk.commit_count == 2
    assert latest(store).number == 2


def test_a_part_that_cannot_be_put_ends_the_attempt(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", bytes(200))
    write(disk, "b", bytes(200))
    disk.sync_directory(disk.root)
    puts: list[str] = []

    def decide(step: StoreStep) -> StoreFault | None:
        puts.append(step.name)
        return StoreFault.FAIL if len(puts) == 2 else None

    store.fault = decide
    with pytest.raises(StoreUnreachable):
        disk.checkpoint()
    store.fault = lambda _: None
    disk.clean()
    assert named(store, "file/") == []
    assert disk.checkpoint()
    assert len(named(store, "file/")) == 2


def test_a_part_that_was_put_without_an_answer_goes_with_the_next_checkpoint(
    store: MemoryStore, disk: SharedDisk
) -> None:
    write(disk, "a", bytes(200))
    disk.checkpoint()
    trim(disk)
    write(disk, "b", bytes(200))
    lose = at_each("put", StoreFault.LOSE_ANSWER)
    store.fault = lambda step: lose(step) if step.name.startswith("file/") else None
    with pytest.raises(StoreUnreachable):
        disk.checkpoint()
    store.fault = lambda _: None
    assert disk.checkpoint()
    assert len(named(store, "file/")) == 3
    trim(disk)
    assert set(named(store, "file/")) == latest(store).part_names()


def test_what_a_checkpoint_names_stays_as_long_as_nobody_knows_of_it(
    store: MemoryStore, disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(disk, "a", bytes(200))
    disk.checkpoint()
    put = ConditionalChunks.put_checkpoint

    def refuse(chunks: ConditionalChunks, number: int, data: bytes) -> None:
        put(chunks, number, data)
        raise StoreDenied("the answer says so, and it is stored")

    write(disk, "b", bytes(200))
    monkeypatch.setattr(ConditionalChunks, "put_checkpoint", refuse)
    with pytest.raises(StoreDenied):
        disk.checkpoint()
    # Now it is cleaned up behind the first one; but the second is the latest.
    trim(disk)
    assert latest(store).part_names() == set(named(store, "file/"))
    assert len(named(store, "file/")) == 2
    monkeypatch.setattr(ConditionalChunks, "put_checkpoint", put)
    disk.checkpoint()
    trim(disk)
    assert latest(store).part_names() == set(named(store, "file/"))
    assert as_others_see_it(store) == files_of(disk)


def test_a_checkpoint_in_doubt_is_put_again_as_it_was(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", bytes(200))
    attempts: list[StoreStep] = []

    def fault(step: StoreStep) -> StoreFault | None:
        if not step.name.startswith("checkpoint/"):
            return None
        attempts.append(step)
        if len(attempts) > 1:
            raise StoreDenied("the credentials have ended")
        return StoreFault.LATE

    store.fault = fault
    with pytest.raises(StoreDenied):
        disk.checkpoint()
    store.fault = lambda _: None
    # Of the same number, because nothing was done since.
    assert disk.checkpoint()
    trim(disk)
    store.deliver_late()
    assert len(named(store, "checkpoint/")) == 2
    assert len({store.objects[name] for name in named(store, "checkpoint/")}) == 1
    assert as_others_see_it(store)["a"] == bytes(200)


@pytest.mark.parametrize("operation", ["names", "remove"])
def test_a_sweep_that_fails_is_tried_again(store: MemoryStore, operation: str) -> None:
    with opened(store, SMALL) as first:
        left = ConditionalChunks(store)
        left._epoch = first.epoch
        left.put_file(b"never named")
    with opened(store.beside(), SMALL) as second:
        other = second._chunks
        assert isinstance(other, ConditionalChunks)
        below = other._store._store
        assert isinstance(below, MemoryStore)
        write(second, "a", bytes(200))
        second.checkpoint()
        below.fault = lambda step: (
            StoreFault.FAIL if step.operation == operation and step.name.startswith("file/") else None
        )
        write(second, "more", b"")
        second.sync_directory(second.root)
        with pytest.raises(StoreUnreachable):
            second.clean()
        assert len(named(store, "file/")) == 2
        below.fault = lambda _: None
        second.clean()
        assert set(named(store, "file/")) == latest(store).part_names()


def test_an_idle_disk_asks_nothing(store: MemoryStore) -> None:
    clock = ManualClock()
    limits = replace(SMALL, garbage_delay_s=60, cache_bytes_max=0, quiet_bytes_min=1)
    disk = open_shared(ConditionalChunks(store), CACHE, disk=FaultyDisk(), limits=limits, clock=clock)
    write(disk, "a", bytes(200))
    disk.checkpoint()
    write(disk, "a", bytes(300))
    disk.checkpoint()
    trim(disk)
    before = len(store.steps)
    done = threading.Event()
    store.fault = lambda step: done.set() if step.operation == "remove" else None
    clock.advance(24 * 3600)
    for condition in (disk._committer.changed, disk._checkpointer._changed):
        with condition.lock:
            condition.notify_all()
    # Both threads have looked whether there is something to do, before they do what there is now.
    write(disk, "b", b"")
    disk.sync_directory(disk.root)
    assert done.wait(5)
    assert sorted(step.operation for step in store.steps[before:]) == ["put_if_absent", "remove"]
    disk.abandon()


def test_what_earlier_owners_left_goes_after_the_first_checkpoint_of_the_next(store: MemoryStore) -> None:
    with opened(store, SMALL) as first:
        write(first, "a", bytes(200))
        first.checkpoint()
        orphan = ConditionalChunks(store)
        orphan._epoch = first.epoch
        left = orphan.put_file(b"never named")
    with opened(store.beside(), SMALL) as second:
        second.clean()
        assert left in store.objects
        second.checkpoint()
        second.clean()
        # The one before may still put a checkpoint that names it, until ours is certainly later.
        assert left in store.objects
        trim(second)
        assert left not in store.objects
        assert len(named(store, "file/")) == 1
        seen = files_of(second)
    assert as_others_see_it(store) == seen


def test_a_late_checkpoint_of_the_owner_before_harms_nobody(store: MemoryStore) -> None:
    with opened(store, SMALL) as first:
        write(first, "a", bytes(200))
        first.sync_directory(first.root)
        slow = at_each("put", StoreFault.LATE, times=1000)
        store.fault = lambda step: slow(step) if step.name.startswith("checkpoint/") else None

        def make() -> None:
            # Whether it is the store that does not answer, or the disk that is closed by then.
            with pytest.raises((StoreUnreachable, Closing)):
                first.checkpoint()

        making = threading.Thread(target=make)
        making.start()
        with opened(store.beside(), SMALL) as second:
            write(second, "b", bytes(300))
            second.checkpoint()
            trim(second)
            seen = files_of(second)
        first.abandon()
        making.join()
        store.deliver_late()
    assert as_others_see_it(store) == seen


def test_garbage_is_kept_for_readers_for_a_while(store: MemoryStore) -> None:
    clock = ManualClock()
    limits = replace(SMALL, garbage_delay_s=60)
    disk = open_shared(ConditionalChunks(store), CACHE, disk=FaultyDisk(), limits=limits, clock=clock)
    write(disk, "a", bytes(200))
    disk.checkpoint()
    disk.remove(disk.root / "a")
    disk.checkpoint()
    trim(disk)
    clock.advance(59)
    disk.clean()
    assert len(named(store, "file/")) == 1
    clock.advance(2)
    disk.clean()
    assert named(store, "file/") == []
    disk.abandon()


def test_who_is_not_the_owner_any_more_takes_nothing_away(store: MemoryStore) -> None:
    first = open_disk(store, SMALL)
    write(first, "a", bytes(200))
    first.checkpoint()
    with opened(store.beside(), SMALL) as second:
        objects = dict(store.objects)
        write(first, "b", b"")
        with pytest.raises(NotOwner):
            first.sync_directory(first.root)
        first.clean()
        assert store.objects == objects
        second.checkpoint()
    first.abandon()
    assert as_others_see_it(store) == {"a": bytes(200)}
