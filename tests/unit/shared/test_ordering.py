import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from support.shared import PATIENT, fail, heal, opened, write

from quivermq.disk import File
from quivermq.errors import NotOwner, StoreBehind, StoreUnreachable
from quivermq.reentry import is_inside
from quivermq.shared import SharedDisk
from quivermq.shared.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def disk(store: MemoryStore) -> Iterator[SharedDisk]:
    with opened(store, PATIENT) as disk:
        yield disk


def chunks_put(store: MemoryStore) -> int:
    return sum(step.name.startswith("chunk/") and step.operation != "get" for step in store.steps)


def new_file(disk: SharedDisk, name: str) -> File:
    file = disk.create(disk.root / name)
    file.sync()
    return file


def append_and_sync(file: File) -> str:
    for _ in range(3):
        file.append([b"x"])
        file.sync()
    return "done"


def test_together_waits_once_for_all_that_was_synced(store: MemoryStore, disk: SharedDisk) -> None:
    files = [new_file(disk, f"{n}") for n in range(5)]
    before = chunks_put(store)
    assert disk.commits.together(lambda: [append_and_sync(file) for file in files]) == ["done"] * 5
    assert chunks_put(store) == before + 1
    assert disk.commits.is_committed(disk.commits.ticket())


def test_outside_of_both_every_sync_waits(store: MemoryStore, disk: SharedDisk) -> None:
    file = new_file(disk, "a")
    before = chunks_put(store)
    append_and_sync(file)
    assert chunks_put(store) == before + 3


def test_together_tells_that_the_store_cannot_be_reached(store: MemoryStore, disk: SharedDisk) -> None:
    file = new_file(disk, "a")
    fail(disk, store)
    with pytest.raises(StoreUnreachable):
        disk.commits.together(partial(append_and_sync, file))
    # It is done all the same, and later calls are not in a block any more.
    assert file.size() == 3
    with pytest.raises(StoreUnreachable):
        file.sync()


def test_nothing_is_waited_for_behind_an_error(store: MemoryStore, disk: SharedDisk) -> None:
    file = new_file(disk, "a")
    fail(disk, store)

    def act() -> None:
        append_and_sync(file)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        disk.commits.together(act)
    with pytest.raises(StoreUnreachable):
        file.sync()


def test_what_is_only_appended_is_not_waited_for(store: MemoryStore, disk: SharedDisk) -> None:
    file = new_file(disk, "a")
    fail(disk, store)
    assert disk.commits.together(lambda: file.append([b"x"])) == 1


def test_what_is_shown_is_waited_for(store: MemoryStore, disk: SharedDisk) -> None:
    write(disk, "a", b"1")
    ticket = disk.commits.ticket()
    disk.commits.together(lambda: disk.commits.note(ticket))
    assert disk.commits.is_committed(ticket)
    write(disk, "b", b"2")
    fail(disk, store)
    # Outside of a block nobody is shown anything.
    disk.commits.note(disk.commits.ticket())
    with pytest.raises(StoreUnreachable):
        disk.commits.together(lambda: disk.commits.note(disk.commits.ticket()))


def test_a_block_in_a_block_waits_for_itself(store: MemoryStore, disk: SharedDisk) -> None:
    file, other = new_file(disk, "a"), new_file(disk, "b")
    before = chunks_put(store)

    def act() -> None:
        append_and_sync(file)
        disk.commits.together(partial(append_and_sync, other))
        assert chunks_put(store) == before + 1
        file.append([b"x"])
        file.sync()

    disk.commits.together(act)
    assert chunks_put(store) == before + 2


def test_what_is_ordered_in_a_block_is_asked_for_at_its_end(store: MemoryStore, disk: SharedDisk) -> None:
    file, is_put = new_file(disk, "a"), threading.Event()
    may_go = threading.Event()

    def hold(_: object) -> None:
        may_go.wait(10)
        is_put.set()

    def act() -> None:
        for _ in range(2):
            disk.commits.ordered(lambda: disk.commits.ordered(partial(append_and_sync, file)))
        assert len(store.steps) == before

    store.fault, before = hold, len(store.steps)
    disk.commits.together(act)
    assert not is_put.is_set()
    may_go.set()
    assert is_put.wait(10)


def test_what_is_ordered_and_told_of_is_waited_for(store: MemoryStore, disk: SharedDisk) -> None:
    file = new_file(disk, "a")

    def act() -> None:
        disk.commits.ordered(partial(append_and_sync, file))
        disk.commits.commit(disk.commits.ticket())

    before = chunks_put(store)
    disk.commits.together(act)
    assert chunks_put(store) == before + 1
    assert disk.commits.is_committed(disk.commits.ticket())


def test_what_is_ordered_is_committed_soon_and_not_waited_for(store: MemoryStore, disk: SharedDisk) -> None:
    file, is_put = new_file(disk, "a"), threading.Event()
    may_go = threading.Event()

    def hold(_: object) -> None:
        may_go.wait(10)
        is_put.set()

    store.fault = hold
    assert disk.commits.ordered(partial(append_and_sync, file)) == "done"
    assert not is_put.is_set()
    may_go.set()
    assert is_put.wait(10)


def test_other_threads_are_not_in_the_block(store: MemoryStore, disk: SharedDisk) -> None:
    file, other = new_file(disk, "a"), new_file(disk, "b")
    before = chunks_put(store)
    seen: list[int] = []

    def act() -> None:
        append_and_sync(file)
        thread = threading.Thread(target=append_and_sync, args=(other,))
        thread.start()
        thread.join(10)
        seen.append(chunks_put(store))

    disk.commits.together(act)
    assert seen == [before + 3]


def test_a_sync_waits_for_its_own_file_alone(store: MemoryStore, disk: SharedDisk) -> None:
    file = new_file(disk, "a")
    other = new_file(disk, "b")
    other.append([b"x"])
    fail(disk, store)
    before = len(store.steps)
    file.sync()
    disk.sync_directory(disk.root)
    assert len(store.steps) == before
    with pytest.raises(StoreUnreachable):
        other.sync()
    # A name that changed since is one of the directory's, and of its file.
    disk.rename(disk.root / "a", disk.root / "c")
    for sync in (file.sync, partial(disk.sync_directory, disk.root)):
        with pytest.raises(StoreUnreachable):
            sync()


def test_whoever_waits_cannot_be_interrupted_by_a_call(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(file: File) -> int:
        file.append([b"x"])
        # The others that look are not waiting.
        seen.clear()
        return disk.commits.ticket()

    file, seen = new_file(disk, "a"), []

    def look() -> None:
        seen.append(is_inside())

    monkeypatch.setattr(disk.commits._committer, "check_usable", look)
    disk.commits.together(lambda: disk.commits.commit(append(file)))
    assert True in seen
    assert not is_inside()


def test_who_is_admitted_need_not_wait_in_the_middle() -> None:
    store = MemoryStore()
    with opened(store, replace(PATIENT, uncommitted_bytes_max=1000)) as disk:
        file = new_file(disk, "a")
        fail(disk, store)
        disk.commits.admit()
        file.append([bytes(900)])
        disk.commits.admit()
        with pytest.raises(StoreBehind):
            file.append([bytes(900)])
        # Whoever has begun goes on for a while.
        disk.commits.ordered(lambda: file.append([bytes(900)]))
        with pytest.raises(StoreBehind):
            disk.commits.admit()
        with pytest.raises(StoreBehind):
            disk.commits.ordered(lambda: file.append([bytes(900)]))
        heal(disk, store)
        disk.commits.admit()


def test_nobody_is_admitted_where_nothing_can_be_changed(store: MemoryStore) -> None:
    with opened(store, PATIENT) as disk:
        write(disk, "a", b"x")
        disk.sync_directory(disk.root)
        with opened(store.beside(), PATIENT):
            write(disk, "b", b"x")
            with pytest.raises(NotOwner):
                disk.sync_directory(disk.root)
            with pytest.raises(NotOwner):
                disk.commits.admit()
            assert isinstance(disk.commits.failure, NotOwner)
