"""A disk over a store: what is done is there, what is synced is in the store, and in one order."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from support.shared import IMPATIENT, LIMITS, at_each, files_of, open_disk, opened, write

from quivermq.disk import read_file, remove_tree, replace_file
from quivermq.errors import (
    Closing,
    DiskFull,
    NotOwner,
    StorageFailed,
    StoreBehind,
    StoreDenied,
    StoreUnreachable,
)
from quivermq.shared import SharedDisk
from quivermq.shared.chunk import decode_chunk
from quivermq.shared.disk import SharedFile
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def disk(store: MemoryStore) -> Iterator[SharedDisk]:
    with opened(store) as disk:
        yield disk


def chunk_count(store: MemoryStore) -> int:
    return sum(name.startswith("chunk/") for name in store.objects)


def as_others_see_it(store: MemoryStore) -> dict[str, bytes]:
    """What the next owner finds. The one before is fenced by looking."""
    with opened(store.beside()) as disk:
        return files_of(disk)


def test_everything_that_is_synced_is_seen_by_the_next_owner(store: MemoryStore, disk: SharedDisk) -> None:
    disk.make_directory(disk.root / "a/b")
    file = disk.create(disk.root / "a/b/log")
    assert file.append([b"one ", memoryview(b"two "), bytearray(b"three")]) == 13
    file.truncate(8)
    file.append([b"3"])
    file.rewrite(0, b"one")
    disk.create(disk.root / "a/old", is_private=True).close()
    disk.rename(disk.root / "a/old", disk.root / "a/new")
    replace_file(disk, disk.root / "a/new", b"replaced")
    disk.create(disk.root / "gone").close()
    disk.remove(disk.root / "gone")
    disk.make_directory(disk.root / "empty")
    remove_tree(disk, disk.root / "empty")
    file.sync()
    assert (file.size(), file.read(4, 10), bytes(file.map(3))) == (9, b"two 3", b"one")
    file.close()
    seen = files_of(disk)
    assert seen == {"a/": b"", "a/b/": b"", "a/b/log": b"one two 3", "a/new": b"replaced"}
    assert as_others_see_it(store) == seen


def test_what_is_not_synced_is_not_in_the_store(store: MemoryStore, disk: SharedDisk) -> None:
    before = chunk_count(store)
    write(disk, "a", b"here")
    assert files_of(disk) == {"a": b"here"}
    assert chunk_count(store) == before
    assert as_others_see_it(store) == {}


def test_a_sync_of_one_file_is_a_sync_of_all_before(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"1")
    ticket = disk.commits.ticket()
    write(disk, "b", b"2")
    before = chunk_count(store)
    disk.commits.commit(ticket)
    disk.commits.commit(disk.commits.ticket())
    # The second was gathered with the first: nothing was left to send.
    assert chunk_count(store) == before + 1
    assert as_others_see_it(store) == {"a": b"1", "b": b"2"}


def test_a_sync_with_nothing_new_asks_nobody(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"1")
    disk.sync_directory(disk.root)
    before = len(store.steps)
    disk.sync_directory(disk.root)
    disk.make_directory(disk.root)
    assert len(store.steps) == before


def test_while_a_commit_is_under_way_the_next_one_gathers(store: MemoryStore, disk: SharedDisk) -> None:
    entered, goes_on = threading.Event(), threading.Event()

    def wait(step: StoreStep) -> None:
        entered.set()
        assert goes_on.wait(5)

    store.fault = wait
    files = [disk.create(disk.root / f"{n}") for n in range(20)]
    before = chunk_count(store)
    first = threading.Thread(target=files[0].sync)
    first.start()
    assert entered.wait(5)
    threads = []
    for file in files:
        file.append([b"x"])
        threads.append(threading.Thread(target=file.sync))
        threads[-1].start()
    goes_on.set()
    for thread in [first, *threads]:
        thread.join()
    assert chunk_count(store) == before + 2
    assert as_others_see_it(store) == {f"{n}": b"x" for n in range(20)}


def test_a_large_append_goes_in_several_chunks(store: MemoryStore) -> None:
    with opened(store, replace(LIMITS, chunk_bytes_max=1000)) as disk:
        before = chunk_count(store)
        write(disk, "a", bytes(range(250)) * 10)
        write(disk, "b", b"behind it")
        disk.sync_directory(disk.root)
        assert chunk_count(store) == before + 4
    assert as_others_see_it(store) == {"a": bytes(range(250)) * 10, "b": b"behind it"}


def test_enough_for_a_chunk_goes_without_being_asked_for(store: MemoryStore) -> None:
    arrived = threading.Event()
    with opened(store, replace(LIMITS, chunk_bytes_max=1000)) as disk:
        store.fault = lambda step: arrived.set() if step.operation == "put_if_absent" else None
        write(disk, "a", bytes(900))
        assert not arrived.is_set()
        write(disk, "b", bytes(900))
        assert arrived.wait(5)


def test_a_file_that_has_lost_its_name_is_not_noted_any_more(store: MemoryStore, disk: SharedDisk) -> None:
    removed, replaced, moved = (disk.create(disk.root / name) for name in ("removed", "replaced", "moved"))
    disk.remove(disk.root / "removed")
    write(disk, "replaced", b"new")
    disk.rename(disk.root / "moved", disk.root / "target")
    for file in (removed, replaced, moved):
        file.append([b"late"])
        file.truncate(3)
        file.rewrite(0, b"l")
        file.sync()
        file.close()
    assert files_of(disk) == as_others_see_it(store) == {"replaced": b"new", "target": b"lat"}


def test_a_directory_is_renamed_with_all_that_is_in_it(store: MemoryStore, disk: SharedDisk) -> None:
    disk.make_directory(disk.root / "a/deep")
    file = disk.create(disk.root / "a/deep/file")
    disk.rename(disk.root / "a", disk.root / "b")
    file.append([b"x"])
    file.sync()
    assert files_of(disk) == as_others_see_it(store) == {"b/": b"", "b/deep/": b"", "b/deep/file": b"x"}


def test_locks_and_what_is_elsewhere_are_the_machines_own(store: MemoryStore, disk: SharedDisk) -> None:
    lock = disk.lock(disk.root / "LOCK")
    file = disk.open(disk.root / "LOCK", writable=True)
    assert not isinstance(file, SharedFile)
    file.append([b"http://here"])
    elsewhere = Path("/elsewhere")
    disk.make_directory(elsewhere)
    disk.create(elsewhere / "a").append([b"x"])
    disk.rename(elsewhere / "a", elsewhere / "b")
    assert read_file(disk, elsewhere / "b", bytes_max=9) == b"x"
    disk.remove(elsewhere / "b")
    disk.remove_directory(elsewhere)
    assert disk.free_bytes(disk.root) > 0
    lock.release()
    assert disk.commits.ticket() == 0
    assert as_others_see_it(store) == {}


def test_nothing_goes_in_or_out_by_a_rename(disk: SharedDisk) -> None:
    write(disk, "a", b"x")
    for source, target in [(disk.root / "a", Path("/a")), (Path("/a"), disk.root / "b")]:
        with pytest.raises(StorageFailed, match="cannot leave or enter"):
            disk.rename(source, target)
    with pytest.raises(StorageFailed, match="is not there"):
        disk.rename(disk.root / "none", disk.root / "b")


def test_what_the_cache_refuses_is_in_neither() -> None:
    store, cache = MemoryStore(), FaultyDisk()
    disk = open_disk(store, disk=cache)
    file = disk.create(disk.root / "a")
    file.append([b"whole"])
    cache.fill_after(3)
    with pytest.raises(DiskFull):
        file.append([b"too much"])
    assert file.size() == 5
    cache.fill_after(None)
    file.append([b"!"])
    with pytest.raises(StorageFailed, match="only 6 bytes"):
        file.truncate(7)
    file.sync()
    disk.abandon()
    assert as_others_see_it(store) == {"a": b"whole!"}


def test_an_append_that_is_interrupted_is_in_neither(
    store: MemoryStore, disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create(disk.root / "a")

    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as struck:
        struck.setattr(disk, "_note", strike)
        with pytest.raises(KeyboardInterrupt):
            file.append([b"lost"])
    file.append([b"kept"])
    file.sync()
    assert files_of(disk) == as_others_see_it(store) == {"a": b"kept"}


def test_what_cannot_be_cut_off_again_ends_the_disk(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create(disk.root / "a")
    assert isinstance(file, SharedFile)

    def refuse(*_: object) -> None:
        raise StorageFailed("no", path=file.path)

    monkeypatch.setattr(disk, "_note", refuse)
    monkeypatch.setattr(file._file, "truncate", refuse)
    with pytest.raises(StorageFailed):
        file.append([b"half"])
    with pytest.raises(StorageFailed, match="longer than the store will know"):
        file.append([b"more"])


def test_closing_does_not_wait_for_a_checkpoint_that_waits(store: MemoryStore) -> None:
    disk = open_disk(store, replace(LIMITS, commit_timeout_s=600))
    store.fault = lambda _: StoreFault.FAIL
    write(disk, "a", b"x")
    failures: list[Exception] = []

    def make() -> None:
        try:
            disk.checkpoint()
        except Closing as error:
            failures.append(error)

    making = threading.Thread(target=make)
    making.start()
    disk.abandon()
    making.join(10)
    assert len(failures) == 1


def test_another_change_that_is_interrupted_ends_the_disk(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as struck:
        struck.setattr(disk, "_note", strike)
        with pytest.raises(KeyboardInterrupt):
            disk.create(disk.root / "a")
    # The cache has a name of which the store would never learn.
    with pytest.raises(StorageFailed, match="was interrupted: open the queue anew"):
        write(disk, "b", b"")


@pytest.mark.parametrize(
    "fault", [StoreFault.FAIL, StoreFault.LOSE_ANSWER, StoreFault.LATE, StoreFault.DOUBLE]
)
def test_a_sync_waits_for_a_store_that_stumbles(fault: StoreFault) -> None:
    store = MemoryStore()
    with opened(store) as disk:
        store.fault = at_each("put_if_absent", fault, times=2)
        for n in range(5):
            write(disk, f"{n}", b"%d" % n)
            disk.sync_directory(disk.root)
        store.deliver_late()
    assert as_others_see_it(store) == {f"{n}": b"%d" % n for n in range(5)}


def test_a_store_that_cannot_be_reached_refuses_and_all_goes_on_when_it_can() -> None:
    store = MemoryStore()
    with opened(store, IMPATIENT) as disk:
        store.fault = lambda _: StoreFault.FAIL
        file = disk.create(disk.root / "a")
        file.append([b"1"])
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match="as the test wants it") as raised:
                file.sync()
            assert raised.value.retryable
        file.append([b"2"])
        assert disk.failure is None
        store.fault = lambda _: None
        file.sync()
    assert as_others_see_it(store) == {"a": b"12"}


def test_a_store_that_does_not_let_us_in_refuses_at_once() -> None:
    store = MemoryStore()
    with opened(store) as disk:

        def refuse(_: StoreStep) -> None:
            raise StoreDenied("the key has expired")

        store.fault = refuse
        write(disk, "a", b"x")
        with pytest.raises(StoreDenied, match="expired"):
            disk.sync_directory(disk.root)
        store.fault = lambda _: None
        disk.sync_directory(disk.root)
    assert as_others_see_it(store) == {"a": b"x"}


def test_writers_do_not_get_further_ahead_than_they_may() -> None:
    store = MemoryStore()
    with opened(store, replace(IMPATIENT, uncommitted_bytes_max=1000)) as disk:
        store.fault = lambda _: StoreFault.FAIL
        file = disk.create(disk.root / "a")
        file.append([bytes(600)])
        with pytest.raises(StoreBehind, match="bytes wait for the object store") as raised:
            file.append([bytes(600)])
        assert raised.value.retryable
        assert file.size() == 600
        assert 600 < disk.uncommitted_bytes < 1000
        store.fault = lambda _: None
        # More than the bound goes when it is alone.
        file.append([bytes(5000)])
        file.sync()
        assert disk.uncommitted_bytes == 0
    assert as_others_see_it(store) == {"a": bytes(5600)}


def test_who_is_not_the_owner_any_more_changes_nothing(store: MemoryStore, disk: SharedDisk) -> None:
    file = disk.create(disk.root / "a")
    file.append([b"committed"])
    file.sync()
    with opened(store.beside()) as other:
        file.append([b", and not"])
        with pytest.raises(NotOwner):
            file.sync()
        assert isinstance(disk.failure, NotOwner)
        for change in (
            lambda: file.append([b"x"]),
            lambda: file.truncate(0),
            lambda: file.rewrite(0, b"c"),
            lambda: disk.create(disk.root / "b"),
            lambda: disk.rename(disk.root / "a", disk.root / "b"),
            lambda: disk.remove(disk.root / "a"),
            lambda: disk.make_directory(disk.root / "d"),
            disk.checkpoint,
            file.sync,
        ):
            with pytest.raises(NotOwner, match="another process has taken over"):
                change()
        # Looking goes on, and closing is quiet.
        assert file.read(0, 9) == b"committed"
        disk.close()
        assert files_of(other) == {"a": b"committed"}
        write(other, "b", b"mine")
        other.sync_directory(other.root)


def test_closing_commits_and_lets_go_of_the_cache() -> None:
    store, cache = MemoryStore(), FaultyDisk()
    disk = open_disk(store, disk=cache)
    write(disk, "a", b"x")
    disk.close()
    disk.close()
    with pytest.raises(Closing):
        write(disk, "b", b"x")
    again = open_disk(store, disk=cache)
    assert files_of(again) == {"a": b"x"}
    again.close()


def test_chunks_name_their_history(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"x")
    disk.sync_directory(disk.root)
    chunks = [decode_chunk(name, data) for name, data in sorted(store.objects.items())]
    assert [chunk.head.is_claim for chunk in chunks] == [True, False]
    assert {chunk.head.epoch for chunk in chunks} == {disk.epoch}


def test_a_mark_tells_what_is_stored_of_a_file(store: MemoryStore) -> None:
    with opened(store, replace(LIMITS, part_bytes_min=2)) as disk:
        write(disk, "a", b"first")
        path = disk.root / "a"
        assert disk.mark(path).text == "", "not all of it is stored"
        disk.checkpoint()
        stored = disk.mark(path)
        assert (stored.size, bool(stored.text)) == (5, True)
        disk.checkpoint()
        assert disk.mark(path) == stored
        file = disk.open(path, writable=True)
        file.append([b"more"])
        assert disk.mark(path).text == ""
        disk.checkpoint()
        assert disk.mark(path).text not in ("", stored.text)
        file.close()
        disk.remove(path)
        with pytest.raises(FileNotFoundError):
            disk.mark(path)
