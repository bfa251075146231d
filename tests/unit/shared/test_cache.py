"""What is stored as it stays may leave the cache, and nobody who uses the disk notices."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from support.shared import (
    CACHE,
    LIMITS,
    TINY,
    as_others_see_it,
    at_each,
    files_of,
    open_disk,
    opened,
    settle,
    write,
)

from quivermq.disk import File, file_size, read_file, remove_tree, replace_file
from quivermq.errors import (
    DamagedChunk,
    DiskFull,
    DiskRefused,
    QuiverError,
    StorageFailed,
    StoreUnreachable,
)
from quivermq.shared import SharedDisk
from quivermq.shared.memory import MemoryStore, StoreFault
from quivermq.shared.remote_file import RemoteFile

LARGE = bytes(range(250))
ROOT = CACHE / "data"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def disk(store: MemoryStore, cache: FaultyDisk) -> Iterator[SharedDisk]:
    disk = open_disk(store, TINY, disk=cache)
    try:
        yield disk
    finally:
        disk.abandon()


def in_cache(cache: FaultyDisk) -> set[str]:
    """The files that this machine has."""
    return {str(path.relative_to(ROOT)) for path in cache.files() if path.is_relative_to(ROOT)}


def evicted(disk: SharedDisk, *names: str) -> None:
    """Some files of the same content, all of which have left the cache."""
    for name in names:
        write(disk, name, name.encode() + LARGE)
    settle(disk)
    for name in names:
        file = disk.open(disk.root / name)
        assert isinstance(file, RemoteFile)
        file.close()


def steps_of(store: MemoryStore, operation: str) -> int:
    return sum(step.operation == operation for step in store.steps)


def test_a_file_that_left_is_there_for_everybody(
    store: MemoryStore, disk: SharedDisk, cache: FaultyDisk
) -> None:
    disk.make_directory(disk.root / "d")
    write(disk, "d/a", LARGE)
    write(disk, "d/b", LARGE * 2)
    before = files_of(disk)
    settle(disk)
    assert not {"d/a", "d/b"} & in_cache(cache)
    assert disk.names(disk.root / "d") == ["a", "b"]
    assert disk.exists(disk.root / "d/a")
    assert not disk.is_directory(disk.root / "d/a")
    assert file_size(disk, disk.root / "d/b") == 500
    asked = steps_of(store, "get_range")
    assert files_of(disk).items() >= before.items()
    assert steps_of(store, "get_range") == asked + 2
    assert as_others_see_it(store, TINY).items() >= before.items()


def test_a_file_that_changes_stays(store: MemoryStore, disk: SharedDisk, cache: FaultyDisk) -> None:
    write(disk, "quiet", LARGE)
    written = disk.create(disk.root / "written")
    written.append([LARGE])
    write(disk, "growing", LARGE)
    for _ in range(5):
        file = disk.open(disk.root / "growing", writable=True)
        file.append([LARGE])
        file.close()
        disk.checkpoint()
    # Nothing is written to it, but it could be.
    assert {"written", "growing"} <= in_cache(cache)
    assert "quiet" not in in_cache(cache)
    written.close()
    written.close()
    settle(disk)
    assert "written" not in in_cache(cache)


def test_a_small_file_stays(store: MemoryStore) -> None:
    cache = FaultyDisk()
    disk = open_disk(store, replace(TINY, quiet_bytes_min=50), disk=cache)
    write(disk, "a", bytes(49))
    write(disk, "b", bytes(50))
    settle(disk)
    assert {"a", "b"} & in_cache(cache) == {"a"}
    disk.abandon()


def test_those_that_were_opened_last_stay(store: MemoryStore) -> None:
    cache = FaultyDisk()
    disk = open_disk(store, replace(TINY, cache_bytes_max=600), disk=cache)
    for name in "abcd":
        write(disk, name, LARGE)
    for name in "bca":
        disk.open(disk.root / name).close()
    settle(disk)
    assert {"a", "b", "c", "d"} & in_cache(cache) == {"a", "c"}
    disk.abandon()


def test_without_a_limit_only_a_full_disk_lets_files_go(store: MemoryStore) -> None:
    cache = FaultyDisk()
    disk = open_disk(store, replace(TINY, cache_bytes_max=None, cache_free_bytes_min=100), disk=cache)
    evicting = ("a", "b")
    for name in evicting:
        write(disk, name, LARGE)
    settle(disk)
    assert set(evicting) <= in_cache(cache)
    cache.fill_after(90)
    # Whoever asks how much room there is gets what can be had.
    assert disk.free_bytes(disk.root) == 90 + 250
    assert len({"a", "b"} & in_cache(cache)) == 1
    disk.abandon()


def test_room_is_made_before_a_write_is_refused(store: MemoryStore) -> None:
    cache = FaultyDisk()
    disk = open_disk(store, replace(TINY, cache_bytes_max=None, cache_free_bytes_min=0), disk=cache)
    write(disk, "a", LARGE)
    settle(disk)
    cache.fill_after(100)
    file = disk.create(disk.root / "b")
    file.append([bytes(300)])
    assert "a" not in in_cache(cache)
    cache.fill_after(0)
    with pytest.raises(DiskFull):
        file.append([b"x"])
    assert (file.size(), file.read(0, 400)) == (300, bytes(300))
    # Nor is there room to fetch what is to be written.
    with pytest.raises(DiskFull):
        disk.open(disk.root / "a", writable=True)
    assert read_file(disk, disk.root / "a", bytes_max=250) == LARGE
    cache.fill_after(None)
    disk.open(disk.root / "a", writable=True).append([b"!"])
    disk.sync_directory(disk.root)
    seen = files_of(disk)
    assert seen["a"] == LARGE + b"!"
    assert as_others_see_it(store) == seen
    disk.abandon()


def test_a_new_file_gets_room_too(store: MemoryStore) -> None:
    cache = FaultyDisk()
    disk = open_disk(store, replace(TINY, cache_bytes_max=None, cache_free_bytes_min=0), disk=cache)
    write(disk, "a", LARGE)
    settle(disk)
    cache.fill_after(0)
    disk.create(disk.root / "b").close()
    assert "a" not in in_cache(cache)
    disk.abandon()


def test_a_disk_that_lets_go_of_nothing_is_none_the_worse(
    store: MemoryStore, disk: SharedDisk, cache: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise DiskRefused("the disk is read-only", path=path)

    write(disk, "a", LARGE)
    monkeypatch.setattr(cache, "remove", refuse)
    settle(disk)
    assert "a" in in_cache(cache)
    assert disk.figures().cache.evicted_files == 0
    monkeypatch.undo()
    settle(disk)
    assert "a" not in in_cache(cache)
    assert read_file(disk, disk.root / "a", bytes_max=250) == LARGE


def test_one_that_is_open_goes_on_being_read(
    store: MemoryStore, disk: SharedDisk, cache: FaultyDisk
) -> None:
    write(disk, "a", LARGE)
    here = disk.open(disk.root / "a")
    memory = here.map(100)
    settle(disk)
    assert "a" not in in_cache(cache)
    away = disk.open(disk.root / "a")
    disk.open(disk.root / "a", writable=True).close()
    assert "a" in in_cache(cache)
    disk.remove(disk.root / "a")
    settle(disk)
    disk.clean()
    store.fault = lambda _: None
    for file in (here, away):
        assert file.read(10, 1000) == LARGE[10:]
        assert file.map(200) == LARGE[:200]
        file.close()
    assert memory == LARGE[:100]


def test_objects_stay_as_long_as_somebody_reads_them(store: MemoryStore, disk: SharedDisk) -> None:
    evicted(disk, "a", "b")
    files = [disk.open(disk.root / "a"), disk.open(disk.root / "a")]
    disk.remove(disk.root / "a")
    disk.remove(disk.root / "b")

    def objects() -> int:
        settle(disk)
        write(disk, "more", b"")
        disk.sync_directory(disk.root)
        disk.clean()
        return len(store.names("file/"))

    assert objects() == 1
    files[0].close()
    assert objects() == 1
    assert files[1].read(0, 300) == b"a" + LARGE
    files[1].close()
    assert objects() == 0


def test_one_that_is_written_is_fetched_first(
    store: MemoryStore, disk: SharedDisk, cache: FaultyDisk
) -> None:
    evicted(disk, "a")
    file = disk.open(disk.root / "a", writable=True)
    file.append([b" more"])
    file.rewrite(1, LARGE[:3])
    file.sync()
    assert "a" in in_cache(cache)
    assert file.read(0, 1000) == b"a" + LARGE + b" more"
    seen = files_of(disk)
    assert as_others_see_it(store, TINY) == seen


def test_two_who_want_to_write_fetch_it_without_harm(disk: SharedDisk, cache: FaultyDisk) -> None:
    evicted(disk, "a")
    files = []
    threads = [
        threading.Thread(target=lambda: files.append(disk.open(disk.root / "a", writable=True)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.read(0, 300) for file in files] == [b"a" + LARGE] * 4
    assert cache.names(CACHE / "fetched") == []


def test_one_that_cannot_be_fetched_stays_as_it_is(store: MemoryStore) -> None:
    cache = FaultyDisk()
    disk = open_disk(store, replace(TINY, commit_timeout_s=0.02), disk=cache)
    evicted(disk, "a")
    store.fault = lambda _: StoreFault.FAIL
    with pytest.raises(StoreUnreachable):
        disk.open(disk.root / "a", writable=True)
    file = disk.open(disk.root / "a")
    with pytest.raises(StoreUnreachable):
        file.read(0, 1)
    assert cache.names(CACHE / "fetched") == []
    store.fault = at_each("get", StoreFault.FAIL)
    assert disk.open(disk.root / "a", writable=True).read(0, 1) == b"a"
    assert file.read(0, 1) == b"a"
    disk.abandon()


NAMES: dict[str, Callable[[SharedDisk], object]] = {
    "away over here": lambda disk: disk.rename(disk.root / "away", disk.root / "here"),
    "here over away": lambda disk: disk.rename(disk.root / "here", disk.root / "away"),
    "away over away": lambda disk: disk.rename(disk.root / "away", disk.root / "d/away"),
    "to a new name": lambda disk: disk.rename(disk.root / "away", disk.root / "new"),
    "to itself": lambda disk: disk.rename(disk.root / "away", disk.root / "away"),
    "a directory": lambda disk: disk.rename(disk.root / "d", disk.root / "e"),
    "remove": lambda disk: disk.remove(disk.root / "away"),
    "remove all": lambda disk: remove_tree(disk, disk.root / "d"),
    "create": lambda disk: write(disk, "away", b"new"),
    "replace": lambda disk: replace_file(disk, disk.root / "away", b"new"),
}


@pytest.mark.parametrize("act", NAMES)
def test_names_change_as_if_all_were_here(act: str) -> None:
    def acted(cache_bytes_max: int | None) -> tuple[dict[str, bytes], dict[str, bytes]]:
        store = MemoryStore()
        with opened(store, replace(TINY, cache_bytes_max=cache_bytes_max)) as disk:
            disk.make_directory(disk.root / "d")
            evicting = ("away", "d/away") if cache_bytes_max == 0 else ()
            for name in ("away", "d/away"):
                write(disk, name, name.encode() + LARGE)
            settle(disk)
            write(disk, "here", b"here")
            write(disk, "d/here", b"here")
            for name in evicting:
                assert isinstance(disk.open(disk.root / name), RemoteFile)
            NAMES[act](disk)
            disk.sync_directory(disk.root)
            seen = files_of(disk)
        return seen, as_others_see_it(store, replace(TINY, cache_bytes_max=cache_bytes_max))

    here, away = acted(None), acted(0)
    assert here[0] == here[1] == away[0] == away[1]


def test_what_is_in_the_way_is_seen_though_it_is_away(store: MemoryStore, disk: SharedDisk) -> None:
    disk.make_directory(disk.root / "d")
    disk.make_directory(disk.root / "e")
    write(disk, "here", b"here")
    evicted(disk, "a", "d/a")
    seen = files_of(disk)
    acts: tuple[Callable[[], None], ...] = (
        lambda: disk.remove_directory(disk.root / "d"),
        lambda: disk.rename(disk.root / "e", disk.root / "d"),
        lambda: disk.rename(disk.root / "e", disk.root / "a"),
        lambda: disk.rename(disk.root / "a", disk.root / "e"),
        lambda: disk.rename(disk.root / "a", disk.root / "missing/a"),
        lambda: disk.make_directory(disk.root / "a"),
    )
    for act in acts:
        with pytest.raises(StorageFailed):
            act()
    assert files_of(disk) == seen
    disk.sync_directory(disk.root)
    assert as_others_see_it(store, TINY) == seen


def test_a_checkpoint_needs_no_bytes_of_what_is_away(store: MemoryStore, disk: SharedDisk) -> None:
    evicted(disk, "a", "b")
    before = set(store.names("file/"))
    asked = steps_of(store, "get") + steps_of(store, "get_range")
    for _ in range(3):
        settle(disk)
        disk.clean()
    disk.rename(disk.root / "a", disk.root / "c")
    disk.remove(disk.root / "b")
    settle(disk)
    assert set(store.names("file/")) <= before
    assert steps_of(store, "get") + steps_of(store, "get_range") == asked


def test_a_file_goes_away_while_a_checkpoint_is_made(store: MemoryStore, disk: SharedDisk) -> None:
    growing = disk.create(disk.root / "0")
    evicted(disk, "a", "b")
    growing.append([LARGE])
    acted: list[str] = []

    def act(step: object) -> None:
        if not acted:
            acted.append("now")
            disk.remove(disk.root / "a")
            disk.open(disk.root / "b", writable=True).truncate(5)

    store.fault = act
    # What was cut is not in the picture any more.
    assert not disk.checkpoint()
    assert disk.checkpoint()
    seen = files_of(disk)
    assert seen["b"] == b"b" + LARGE[:4]
    assert as_others_see_it(store, TINY) == seen


def test_who_takes_over_fetches_nothing_that_is_only_read_later(store: MemoryStore) -> None:
    names = [f"{n}" for n in range(100)]
    with opened(store, TINY) as disk:
        evicted(disk, *names)
        seen = files_of(disk)
    cache = FaultyDisk()
    other = store.beside()
    disk = open_disk(other, TINY, disk=cache)
    assert not in_cache(cache) & set(names)
    # Of the checkpoint and the chunks behind it; and one look at what there is.
    assert steps_of(other, "get") < 6
    assert steps_of(other, "get_range") == 0
    assert len(other.steps) < 15
    assert files_of(disk) == seen
    disk.abandon()


def test_what_is_written_behind_the_checkpoint_is_fetched_at_a_takeover(store: MemoryStore) -> None:
    with opened(store, TINY) as disk:
        evicted(disk, *"abcdef")
        acts: dict[str, Callable[[File], object]] = {
            "a": lambda file: file.append([b"more"]),
            "b": lambda file: file.truncate(3),
            "c": lambda file: file.rewrite(1, LARGE[:3]),
        }
        for name, act in acts.items():
            file = disk.open(disk.root / name, writable=True)
            act(file)
            file.close()
        disk.rename(disk.root / "d", disk.root / "a2")
        disk.rename(disk.root / "c", disk.root / "e")
        disk.rename(disk.root / "f", disk.root / "b")
        disk.sync_directory(disk.root)
        seen = files_of(disk)
    cache = FaultyDisk()
    disk = open_disk(store.beside(), TINY, disk=cache)
    assert {"a", "e", "b", "a2"} & in_cache(cache) == {"a", "e"}
    assert files_of(disk) == seen
    disk.abandon()


def test_an_object_that_is_gone_is_found_out_at_the_takeover(store: MemoryStore) -> None:
    with opened(store, TINY) as disk:
        evicted(disk, "a", "b")
    gone = store.names("file/")[0]
    del store.objects[gone]
    with pytest.raises(DamagedChunk, match=f"{gone} is damaged: it is not there, and checkpoint"):
        open_disk(store.beside(), TINY)


def test_a_cache_of_an_earlier_process_has_no_say(store: MemoryStore) -> None:
    cache = FaultyDisk()
    open_disk(MemoryStore(), TINY, disk=cache).abandon()
    cache.make_directory(CACHE / "fetched")
    cache.create(CACHE / "fetched/7").append([b"half of it"])
    disk = open_disk(store, TINY, disk=cache)
    assert not cache.exists(CACHE / "fetched")
    disk.abandon()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_done_a_small_cache_shows_the_same(seed: int) -> None:
    """The same steps with and without a limit, and with a process in between that goes on."""
    chance = random.Random(seed)
    stores = (MemoryStore(), MemoryStore())
    limits = (replace(LIMITS, part_bytes_min=100), replace(TINY, cache_bytes_max=chance.choice([0, 1000])))
    disks = [open_disk(store, each) for store, each in zip(stores, limits, strict=True)]
    for _ in range(80):
        act = chance.choice(ACTS)
        arguments = chance.choice("abcd"), chance.choice("abcd"), chance.randrange(400)
        told = [_told(act, disk, *arguments) for disk in disks]
        assert told[0] == told[1]
        assert files_of(disks[0]) == files_of(disks[1])
        if chance.random() < 0.1:
            for disk in disks:
                disk.close()
            disks = [open_disk(store.beside(), each) for store, each in zip(stores, limits, strict=True)]
            stores = tuple(store.beside() for store in stores)  # type: ignore[assignment]
    for disk in disks:
        disk.abandon()


def _told(act: Callable[[SharedDisk, str, str, int], object], disk: SharedDisk, *rest: object) -> object:
    try:
        return act(disk, *rest)  # type: ignore[arg-type]
    except (QuiverError, FileNotFoundError) as error:
        return type(error)


def _append(disk: SharedDisk, name: str, _: str, size: int) -> None:
    file = disk.open(disk.root / name, writable=True)
    file.append([bytes([size % 251]) * size])
    file.close()


def _truncate(disk: SharedDisk, name: str, _: str, size: int) -> None:
    file = disk.open(disk.root / name, writable=True)
    try:
        file.truncate(size)
    finally:
        file.close()


def _read(disk: SharedDisk, name: str, _: str, size: int) -> bytes:
    file = disk.open(disk.root / name)
    data = file.read(size // 2, size)
    assert bytes(file.map(min(size, file.size()))) == file.read(0, size)
    file.close()
    return data


def _clean(disk: SharedDisk, *_: object) -> None:
    disk.checkpoint()
    disk.make_directory(disk.root / "d")
    disk.sync_directory(disk.root)
    write(disk, "turn", b"")
    disk.sync_directory(disk.root)
    disk.clean()


ACTS: list[Callable[[SharedDisk, str, str, int], object]] = [
    lambda disk, name, _, size: write(disk, name, bytes([size % 251]) * size),
    lambda disk, name, other, _: disk.rename(disk.root / name, disk.root / other),
    lambda disk, name, _other, _size: disk.remove(disk.root / name),
    lambda disk, name, _other, _size: disk.exists(disk.root / name),
    lambda disk, _name, _other, _size: settle(disk),
    lambda disk, _name, _other, _size: settle(disk),
    _append,
    _truncate,
    _read,
    _read,
    _clean,
    _clean,
]
