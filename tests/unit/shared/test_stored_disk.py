"""A disk in a store as others than its owner see it: always a state that there was, never an error."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from support.shared import IMPATIENT, LIMITS, at_each, files_of, open_disk, opened, write

from quivermq.disk import Disk, remove_tree, replace_file
from quivermq.errors import (
    DamagedChunk,
    NotFound,
    NotOwner,
    StorageFailed,
    StoreUnreachable,
    UnsupportedChunk,
)
from quivermq.shared import SharedDisk
from quivermq.shared.chunk import ChunkHead, Kind, Mutation, chain_of, decode_chunk, encode_chunk
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.limits import SharedLimits
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep
from quivermq.shared.naming import numbered
from quivermq.shared.stored_disk import StoredDisk

ROOT = Path("/stored")
SMALL = replace(LIMITS, part_bytes_min=8, part_bytes_max=64, block_bytes=16)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def disk(store: MemoryStore) -> Iterator[SharedDisk]:
    with opened(store, SMALL) as disk:
        yield disk


def beside(
    store: MemoryStore, limits: SharedLimits = SMALL, *, held_bytes_max: int = 1 << 20
) -> StoredDisk:
    return StoredDisk(
        ConditionalChunks(store.beside(store.fault)), ROOT, limits=limits, held_bytes_max=held_bytes_max
    )


def seen_by(disk: StoredDisk) -> dict[str, bytes]:
    disk.refresh()
    return files_of(disk)


def trim(disk: SharedDisk) -> None:
    """Make a checkpoint, one more commit, and take away what went out of use."""
    assert disk.checkpoint()
    write(disk, "more", b"")
    disk.sync_directory(disk.root)
    disk.clean()


def test_it_is_a_disk(store: MemoryStore, disk: SharedDisk) -> None:
    reader = beside(store)
    reader.refresh()
    same: Disk = reader
    assert same.is_directory(ROOT)
    assert same.free_bytes(ROOT) > 0


def test_what_is_committed_is_seen_and_nothing_else(store: MemoryStore, disk: SharedDisk) -> None:
    reader = beside(store)
    disk.make_directory(disk.root / "a/b")
    file = disk.create(disk.root / "a/b/log")
    file.append([b"0123456789"])
    file.rewrite(2, b"23")
    file.truncate(8)
    file.append([b"xy"])
    write(disk, "a/old", b"old")
    disk.rename(disk.root / "a/old", disk.root / "a/new")
    disk.make_directory(disk.root / "moved/inside")
    write(disk, "moved/inside/file", b"1")
    disk.rename(disk.root / "moved", disk.root / "there")
    disk.make_directory(disk.root / "gone")
    remove_tree(disk, disk.root / "gone")
    file.sync()
    committed = files_of(disk)
    assert committed["a/b/log"] == b"01234567xy"
    file.append([b" and what is not synced"])
    assert seen_by(reader) == committed
    file.sync()
    # Not before it looks again.
    assert files_of(reader) == committed
    assert seen_by(reader) == files_of(disk)
    file.close()


def test_looking_changes_nothing_and_claims_nothing(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"x")
    disk.sync_directory(disk.root)
    before = dict(store.objects)
    reader = beside(store)
    seen_by(reader)
    reader.close()
    assert store.objects == before
    write(disk, "b", b"y")
    disk.sync_directory(disk.root)


@pytest.mark.parametrize(
    "change",
    [
        lambda disk, path: disk.create(path),
        lambda disk, path: disk.open(path, writable=True),
        lambda disk, path: disk.make_directory(path.parent / "new"),
        lambda disk, path: disk.rename(path, path),
        lambda disk, path: disk.remove(path),
        lambda disk, path: disk.remove_directory(path),
        lambda disk, path: disk.lock(path),
        lambda disk, path: disk.open(path).append([b"x"]),
        lambda disk, path: disk.open(path).truncate(0),
        lambda disk, path: disk.open(path).rewrite(0, b"y"),
    ],
)
def test_it_cannot_be_changed(
    store: MemoryStore, disk: SharedDisk, change: Callable[[StoredDisk, Path], object]
) -> None:
    write(disk, "a", b"x")
    disk.sync_directory(disk.root)
    reader = beside(store)
    reader.refresh()
    with pytest.raises(NotOwner, match="only read here"):
        change(reader, ROOT / "a")
    assert seen_by(reader) == {"a": b"x"}


def test_what_needs_no_change_is_allowed(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"x")
    disk.sync_directory(disk.root)
    reader = beside(store)
    reader.refresh()
    reader.make_directory(ROOT)
    reader.sync_directory(ROOT)
    file = reader.open(ROOT / "a")
    file.sync()
    file.close()


def test_names_of_what_is_not_there(store: MemoryStore, disk: SharedDisk) -> None:
    disk.make_directory(disk.root / "d")
    reader = beside(store)
    reader.refresh()
    assert reader.names(ROOT / "none") == []
    assert not reader.exists(ROOT / "none")
    assert not reader.is_directory(Path("/"))
    with pytest.raises(FileNotFoundError):
        reader.open(ROOT / "none")
    with pytest.raises(StorageFailed, match="not a regular file"):
        reader.open(ROOT / "d")


def test_where_there_is_no_queue(store: MemoryStore) -> None:
    reader = beside(store)
    with pytest.raises(NotFound, match="no queue in /stored"):
        reader.refresh()
    with opened(store) as disk:
        write(disk, "a", b"x")
        disk.sync_directory(disk.root)
    assert seen_by(reader) == {"a": b"x"}


def test_files_in_objects_are_read_by_range(store: MemoryStore, disk: SharedDisk) -> None:
    content = bytes(range(150))
    write(disk, "large", content)
    trim(disk)
    reader = beside(store)
    reader.refresh()
    file = reader.open(ROOT / "large")
    assert (file.size(), file.read(60, 10), file.read(148, 10)) == (150, content[60:70], content[148:])
    assert file.read(150, 1) == b""
    assert bytes(file.map(100)) == content[:100]
    assert bytes(file.map(0)) == b""
    file.close()
    held = disk.open(disk.root / "large", writable=True)
    held.truncate(100)
    held.rewrite(20, b"\x14")
    held.append([b"more"])
    held.sync()
    held.close()
    reader.refresh()
    assert files_of(reader)["large"] == content[:100] + b"more"


def test_what_was_trimmed_is_in_the_checkpoint(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"x" * 20)
    disk.sync_directory(disk.root)
    reader = beside(store)
    assert seen_by(reader) == files_of(disk)
    for number in range(3):
        write(disk, f"b{number}", b"y" * 20)
        trim(disk)
    assert seen_by(reader) == files_of(disk)
    assert seen_by(beside(store)) == files_of(disk)


def test_a_file_that_is_being_read_goes_on_in_other_objects(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "log", b"0123456789" * 4)
    trim(disk)
    held = disk.open(disk.root / "log", writable=True)
    held.append([b"abcdefghij"])
    held.close()
    trim(disk)
    reader = beside(store, replace(SMALL, read_cache_bytes=0))
    reader.refresh()
    file = reader.open(ROOT / "log")
    assert file.read(0, 4) == b"0123"
    before = set(store.objects)
    # It does not grow any more: its parts become one.
    trim(disk)
    trim(disk)
    assert before - set(store.objects)
    assert file.read(38, 5) == b"89abc"


def test_a_file_that_went_while_it_was_read(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "log", b"0123456789" * 4)
    trim(disk)
    reader = beside(store, replace(SMALL, read_cache_bytes=0))
    reader.refresh()
    file = reader.open(ROOT / "log")
    disk.remove(disk.root / "log")
    trim(disk)
    with pytest.raises(FileNotFoundError):
        file.read(0, 4)


def test_an_object_that_is_gone_is_damage(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "log", b"0123456789" * 4)
    trim(disk)
    reader = beside(store)
    reader.refresh()
    for name in [name for name in store.objects if name.startswith("file/")]:
        del store.objects[name]
    with pytest.raises(DamagedChunk, match="an object with bytes of it is not there"):
        reader.open(ROOT / "log").read(0, 4)


def test_a_follower_lets_go_of_what_a_checkpoint_has(store: MemoryStore, disk: SharedDisk) -> None:
    reader = beside(store, held_bytes_max=1000)
    file = disk.create(disk.root / "log")
    for _ in range(10):
        file.append([b"x" * 200])
        file.sync()
        reader.refresh()
    assert disk.checkpoint()
    # Not trimmed: it looks for the checkpoint because it holds too much.
    seen_by(reader)
    file.close()
    asked = len(store.steps)
    reader.open(ROOT / "log").read(0, 10)
    assert [step.operation for step in store.steps[asked:]] == []
    assert seen_by(reader) == files_of(disk)


def damaged(store: MemoryStore, number: int, position: int = -1) -> None:
    data = bytearray(store.objects[numbered(number)])
    data[position] ^= 1
    store.objects[numbered(number)] = bytes(data)


def test_damage_is_told_and_what_comes_before_is_seen(store: MemoryStore, disk: SharedDisk) -> None:
    for name in "abcd":
        write(disk, name, name.encode())
        disk.sync_directory(disk.root)
    follower = beside(store)
    assert list(seen_by(follower)) == ["a", "b", "c", "d"]
    damaged(store, 3)
    reader = beside(store)
    with pytest.raises(DamagedChunk, match="chunk 3 is damaged"):
        reader.refresh()
    assert files_of(reader) == {"a": b"a", "b": b"b"}
    # It had seen it before, and goes on.
    assert list(seen_by(follower)) == ["a", "b", "c", "d"]
    del store.objects[numbered(3)]
    with pytest.raises(DamagedChunk, match="it is not there, but later ones are"):
        beside(store).refresh()


def test_a_chunk_that_does_not_fit_is_not_seen_in_part(store: MemoryStore) -> None:
    with opened(store) as disk:
        write(disk, "a", b"x")
        disk.sync_directory(disk.root)
        number = disk.epoch + 1
    follower = beside(store)
    follower.refresh()
    last = store.objects[numbered(number - 1)]
    chunk = encode_chunk(
        ChunkHead(number, decode_chunk("last", last).head.epoch, chain_of(last)),
        [Mutation(Kind.CREATE, "b"), Mutation(Kind.REMOVE, "c")],
    )
    store.objects[numbered(number)] = chunk
    for reader in (follower, beside(store)):
        with pytest.raises(DamagedChunk, match="there is no c"):
            reader.refresh()
        assert files_of(reader) == {"a": b"x"}


def test_a_later_release_is_named(store: MemoryStore, disk: SharedDisk) -> None:
    body = bytearray(store.objects[numbered(0)][8:])
    body[0] = 9
    store.objects[numbered(0)] = b"QVC1" + crc32c(body).to_bytes(4, "little") + body
    with pytest.raises(UnsupportedChunk):
        beside(store).refresh()


def test_a_store_that_stumbles_is_asked_again(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"x" * 20)
    trim(disk)
    committed = files_of(disk)
    for operation in ("get", "names", "get_range"):
        faulty = store.beside(at_each(operation, StoreFault.FAIL))
        reader = StoredDisk(ConditionalChunks(faulty), ROOT, limits=SMALL)
        assert seen_by(reader) == committed


def test_a_store_that_stays_away_is_named(store: MemoryStore, disk: SharedDisk) -> None:
    away = store.beside(lambda _: StoreFault.FAIL)
    with pytest.raises(StoreUnreachable):
        StoredDisk(ConditionalChunks(away), ROOT, limits=IMPATIENT).refresh()


class Owner:
    """Does one thing after the other on a disk, and knows every state that was committed."""

    def __init__(self, store: MemoryStore) -> None:
        self.disk = open_disk(store, replace(SMALL, checkpoint_chunks=10**6, checkpoint_bytes=1 << 40))
        self.disk.make_directory(self.disk.root / "d")
        self.states = [files_of(self.disk)]
        self.turn = 0

    def act(self) -> None:
        """One change, in one chunk. Now and then a checkpoint is made, and what it covers goes."""
        self.turn += 1
        disk, root, turn = self.disk, self.disk.root, self.turn
        if turn % 5 == 4:
            disk.checkpoint()
            return
        if turn % 7 == 6:
            disk.rename(root / "d/log", root / "d/sealed")
        elif disk.exists(root / "d/log"):
            file = disk.open(root / "d/log", writable=True)
            file.append([b"%d " % turn * 6])
            file.close()
        else:
            write(disk, "d/log", b"new %d" % turn)
        self.states.append(files_of(disk))
        disk.commits.commit(disk.commits.ticket())
        disk.clean()


TURNS = 24


def test_a_reader_sees_what_there_was_whatever_the_owner_is_doing() -> None:
    """At each step of the owner somebody looks who has looked before, and somebody new."""
    store = MemoryStore()
    with opened(store) as disk:
        disk.make_directory(disk.root)
    readers: list[StoredDisk] = []
    owner: list[Owner] = []
    places: dict[StoredDisk, int] = {}
    looks = 0

    def look(_: StoreStep) -> None:
        nonlocal looks
        if not owner:
            return
        for reader in (readers[0], beside_quietly()):
            states, seen = owner[0].states, seen_by(reader)
            assert seen in states
            # Each state is another, so its place is its time.
            place = states.index(seen)
            assert place >= places.get(reader, 0)
            assert place >= len(states) - 2
            places[reader] = place
            looks += 1

    def beside_quietly() -> StoredDisk:
        return StoredDisk(ConditionalChunks(MemoryStore(store.objects)), ROOT, limits=SMALL)

    owner_store = MemoryStore(store.objects)
    owner.append(Owner(owner_store))
    readers.append(beside_quietly())
    owner_store.fault = look
    for _ in range(TURNS):
        owner[0].act()
    owner_store.fault = lambda _: None
    assert looks > TURNS
    assert seen_by(readers[0]) == owner[0].states[-1]
    owner[0].disk.close()


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_an_owner_may_do_anything_while_somebody_looks(every: int) -> None:
    """Between the steps of a reader its owner goes on: what was listed may be gone when it is fetched."""
    store = MemoryStore()
    owner = Owner(store)
    for _ in range(6):
        owner.act()
    steps = 0

    def work(_: StoreStep) -> None:
        nonlocal steps
        steps += 1
        if steps % every == 0 and steps < 40:
            owner.act()

    reading = MemoryStore(store.objects, fault=work)
    reader = StoredDisk(
        ConditionalChunks(reading, readers=1), ROOT, limits=replace(SMALL, read_cache_bytes=0)
    )
    for _ in range(TURNS):
        committed = len(owner.states) - 1
        reader.refresh()
        names = reader.names(ROOT / "d")
        assert any(names == _names(state) for state in owner.states[committed:])
        owner.act()
    steps = 40
    assert seen_by(reader) == owner.states[-1]
    owner.disk.close()


def _names(state: dict[str, bytes]) -> list[str]:
    return sorted(path.removeprefix("d/") for path in state if path.startswith("d/") and path != "d/")


def test_a_document_that_is_replaced_is_always_one_of_them(store: MemoryStore, disk: SharedDisk) -> None:
    reader = beside(store)
    for number in range(10):
        replace_file(disk, disk.root / "doc", b"%d" % number * 30)
        if number % 3 == 2:
            trim(disk)
        reader.refresh()
        file = reader.open(ROOT / "doc")
        assert file.read(0, file.size()) == b"%d" % number * 30
