"""One contract, two disks: what crash tests learn on the faulty disk holds on the real one."""

import errno
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from support.faulty_disk import FaultyDisk

from quivermq.disk import Buffer, Disk, SystemDisk
from quivermq.errors import DirectoryLocked, DiskFull, FsyncFailed, StorageFailed


@pytest.fixture(params=["system", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "system":
        return SystemDisk()
    disk = FaultyDisk()
    disk.make_directory(tmp_path)
    return disk


def test_appended_bytes_are_read_at_once_by_every_opener(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    assert file.append([b"ab", bytearray(b"cd"), memoryview(b"ef")]) == 6
    assert file.append([b"gh"]) == 2
    reader = disk.open(tmp_path / "f")
    assert (reader.size(), reader.read(0, 8), reader.read(3, 2)) == (8, b"abcdefgh", b"de")
    file.append([b"i"])
    assert (reader.size(), reader.read(8, 1)) == (9, b"i")
    assert file.path == reader.path == tmp_path / "f"
    file.close()
    reader.close()


def test_appending_nothing_is_allowed(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    assert file.append([]) == 0
    assert file.append([b"", b""]) == 0
    assert file.size() == 0
    file.close()


def test_a_writer_goes_on_where_the_file_ended_when_it_was_opened(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f").append([b"ab"])
    file = disk.open(tmp_path / "f", writable=True)
    file.append([b"c"])
    assert file.read(0, 9) == b"abc"
    file.close()


def test_two_writers_of_one_file_overwrite_each_other(disk: Disk, tmp_path: Path) -> None:
    # Not a promise but a trap: the disks agree on it, so that crash tests fall into it as well.
    first = disk.create(tmp_path / "f")
    second = disk.open(tmp_path / "f", writable=True)
    first.append([b"111"])
    second.append([b"22"])
    assert first.read(0, 9) == b"221"
    second.truncate(0)
    first.append([b"1"])
    assert first.read(0, 9) == b"\0\0\0001"
    first.close()
    second.close()


def test_bytes_written_over_themselves_are_the_same(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    file.append([b"abcdef"])
    file.rewrite(2, b"cd")
    file.rewrite(0, memoryview(b"abcdef"))
    file.rewrite(6, b"")
    file.append([b"g"])
    assert file.read(0, 9) == b"abcdefg"
    reader = disk.open(tmp_path / "f")
    with pytest.raises(StorageFailed):
        reader.rewrite(0, b"a")
    file.close()
    reader.close()


def test_more_buffers_than_one_system_call_takes(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    buffers: list[Buffer] = [b"%d," % number for number in range(os.sysconf("SC_IOV_MAX") + 1)]
    assert file.append(buffers) == len(b"".join(buffers))
    assert file.read(0, file.size()) == b"".join(buffers)
    file.close()


def test_reading_past_the_end_gives_what_is_there(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    file.append([b"abc"])
    assert (file.read(1, 100), file.read(3, 1), file.read(50, 1)) == (b"bc", b"", b"")
    assert file.read(0, 0) == b""
    file.close()


def test_a_cut_file_ends_there_and_goes_on_there(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    file.append([b"abcdef"])
    file.truncate(2)
    assert (file.size(), file.read(0, 9)) == (2, b"ab")
    file.append([b"X"])
    assert file.read(0, 9) == b"abX"
    file.close()


def test_a_mapping_is_read_only_outlives_the_file_and_its_name(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    file.append([b"abcdef"])
    mapped = file.map(4)
    file.append([b"g"])
    file.close()
    disk.remove(tmp_path / "f")
    assert bytes(mapped) == b"abcd"
    assert mapped.readonly


def test_a_mapping_has_no_more_bytes_than_the_file(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    assert bytes(file.map(0)) == b""
    file.append([b"abc"])
    with pytest.raises(ValueError, match="mmap length"):
        file.map(4)
    file.close()


def test_mapping_a_closed_file_is_a_bug_of_the_caller(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    file.append([b"abc"])
    file.close()
    for length in (3, 0):
        with pytest.raises(AssertionError):
            file.map(length)


def test_create_replaces_what_is_there(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f").append([b"old"])
    file = disk.create(tmp_path / "f")
    assert file.size() == 0
    file.append([b"new"])
    assert disk.open(tmp_path / "f").read(0, 9) == b"new"


def test_create_leaves_the_old_file_to_those_who_have_it_open_or_mapped(disk: Disk, tmp_path: Path) -> None:
    old = disk.create(tmp_path / "f")
    old.append([b"old"])
    mapped = old.map(3)
    new = disk.create(tmp_path / "f")
    new.append([b"new!"])
    old.append([b"er"])
    assert (old.read(0, 9), bytes(mapped)) == (b"older", b"old")
    assert disk.open(tmp_path / "f").read(0, 9) == b"new!"
    old.close()
    new.close()


def test_create_open_rename_and_remove_of_what_is_not_there(disk: Disk, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError):
        disk.open(missing)
    with pytest.raises(FileNotFoundError):
        disk.open(missing, writable=True)
    with pytest.raises(FsyncFailed) as failure:
        disk.sync_directory(missing)
    assert failure.value.path == missing
    with pytest.raises(StorageFailed):
        disk.lock(missing / "LOCK")
    with pytest.raises(StorageFailed):
        disk.create(missing / "f")
    with pytest.raises(StorageFailed):
        disk.rename(missing, tmp_path / "f")
    with pytest.raises(StorageFailed):
        disk.remove(missing)


def test_a_directory_is_no_file_and_a_file_no_directory(disk: Disk, tmp_path: Path) -> None:
    directory, file = tmp_path / "d", tmp_path / "f"
    disk.make_directory(directory)
    disk.create(file).close()
    attempts: list[Callable[[], object]] = [
        lambda: disk.create(directory),
        lambda: disk.open(directory),
        lambda: disk.open(directory, writable=True),
        lambda: disk.lock(directory),
        lambda: disk.remove(directory),
        lambda: disk.open(file / "f"),
        lambda: disk.create(file / "f"),
        lambda: disk.lock(file / "f"),
        lambda: disk.sync_directory(file),
        lambda: disk.make_directory(file),
    ]
    for attempt in attempts:
        with pytest.raises(StorageFailed):
            attempt()
    assert disk.names(tmp_path) == ["d", "f"]


def test_a_file_opened_for_reading_refuses_changes(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "f").append([b"abc"])
    file = disk.open(tmp_path / "f")
    with pytest.raises(StorageFailed):
        file.append([b"d"])
    with pytest.raises(StorageFailed):
        file.truncate(0)
    file.sync()
    assert file.read(0, 9) == b"abc"
    file.close()


def test_rename_replaces_and_keeps_the_file_that_moves(disk: Disk, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    disk.create(target).append([b"old"])
    old = disk.open(target)
    file = disk.create(source)
    file.append([b"new"])
    disk.rename(source, target)
    assert disk.names(tmp_path) == ["target"]
    assert disk.open(target).read(0, 9) == b"new"
    assert old.read(0, 9) == b"old"
    assert (disk.exists(source), disk.exists(target)) == (False, True)
    file.append([b"er"])
    assert disk.open(target).read(0, 9) == b"newer"


def test_a_removed_file_is_there_for_those_who_have_it_open(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    file.append([b"abc"])
    disk.remove(tmp_path / "f")
    assert disk.names(tmp_path) == []
    assert not disk.exists(tmp_path / "f")
    file.append([b"d"])
    assert (file.size(), file.read(0, 9)) == (4, b"abcd")
    file.sync()
    file.close()


def test_files_and_directories_exist(disk: Disk, tmp_path: Path) -> None:
    assert disk.exists(tmp_path)
    assert not disk.exists(tmp_path / "f")
    assert not disk.exists(tmp_path / "f" / "f")
    disk.create(tmp_path / "f").close()
    assert disk.exists(tmp_path / "f")


def test_names_are_sorted_and_none_in_what_is_no_directory(disk: Disk, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        disk.create(tmp_path / name).close()
    assert disk.names(tmp_path) == ["a", "b", "c"]
    assert disk.names(tmp_path / "missing") == []
    assert disk.names(tmp_path / "a") == []


def test_make_directory_makes_the_parents_and_may_be_repeated(disk: Disk, tmp_path: Path) -> None:
    deep = tmp_path / "topics" / "orders" / "p0"
    assert not disk.is_directory(deep)
    disk.make_directory(deep)
    disk.make_directory(deep)
    assert disk.is_directory(deep)
    assert disk.names(tmp_path) == ["topics"]
    disk.create(deep / "f").close()
    disk.sync_directory(deep)
    disk.make_directory(deep)
    assert not disk.is_directory(deep / "f")
    assert disk.names(deep) == ["f"]


def test_a_lock_is_held_once_and_names_its_holder(disk: Disk, tmp_path: Path) -> None:
    lock = disk.lock(tmp_path / "LOCK")
    for _ in range(2):
        with pytest.raises(DirectoryLocked) as refused:
            disk.lock(tmp_path / "LOCK")
        assert (refused.value.path, refused.value.pid) == (tmp_path, os.getpid())
    assert disk.names(tmp_path) == ["LOCK"]
    lock.release()
    lock.release()
    again = disk.lock(tmp_path / "LOCK")
    lock.release()
    with pytest.raises(DirectoryLocked):
        disk.lock(tmp_path / "LOCK")
    again.release()
    assert disk.names(tmp_path) == ["LOCK"]


def test_closing_twice_is_allowed(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f")
    file.close()
    file.close()


# Only the system's disk: what the operating system does, and what becomes of its errors


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write

    def write_three(descriptor: int, buffers: Sequence[Buffer]) -> int:
        return real_write(descriptor, b"".join(buffers)[:3])

    monkeypatch.setattr(os, "writev", write_three)
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:2]))
    file = SystemDisk().create(tmp_path / "f")
    assert file.append([b"ab", b"cdef", b"", b"ghi"]) == 9
    assert file.read(0, 99) == b"abcdefghi"
    file.close()


def test_a_short_read_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pread = os.pread
    file = SystemDisk().create(tmp_path / "f")
    file.append([b"abcdefg"])
    monkeypatch.setattr(
        os,
        "pread",
        lambda descriptor, length, position: real_pread(descriptor, min(3, length), position),
    )
    assert (file.read(0, 7), file.read(1, 99)) == (b"abcdefg", b"bcdefg")
    file.close()


def test_no_space_is_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SystemDisk().create(tmp_path / "f")
    monkeypatch.setattr(os, "writev", failing(errno.ENOSPC))
    with pytest.raises(DiskFull) as refused:
        file.append([b"abc", b"de"])
    assert (refused.value.path, refused.value.needed_bytes) == (tmp_path / "f", 5)
    file.close()


def test_no_space_after_a_part_leaves_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write

    def write_three(descriptor: int, buffers: Sequence[Buffer]) -> int:
        return real_write(descriptor, b"".join(buffers)[:3])

    monkeypatch.setattr(os, "writev", write_three)
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))
    file = SystemDisk().create(tmp_path / "f")
    with pytest.raises(DiskFull):
        file.append([b"abcdef"])
    assert file.size() == 3
    file.close()


@pytest.mark.parametrize("call", ["writev", "pwrite", "ftruncate", "pread"])
def test_an_error_of_the_device_is_storage_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file = SystemDisk().create(tmp_path / "f")
    monkeypatch.setattr(os, call, failing(errno.EIO))
    calls: dict[str, Callable[[], object]] = {
        "writev": lambda: file.append([b"abc"]),
        "pwrite": lambda: file.rewrite(0, b"abc"),
        "ftruncate": lambda: file.truncate(0),
        "pread": lambda: file.read(0, 1),
    }
    with pytest.raises(StorageFailed) as failure:
        calls[call]()
    assert failure.value.path == tmp_path / "f"
    assert not isinstance(failure.value, FsyncFailed)
    file.close()


def test_a_failed_sync_of_a_file_is_fsync_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quivermq.disk._fdatasync", failing(errno.EIO))
    file = SystemDisk().create(tmp_path / "f")
    with pytest.raises(FsyncFailed) as failure:
        file.sync()
    assert failure.value.path == tmp_path / "f"
    file.close()


def test_a_failed_sync_of_a_directory_is_fsync_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(FsyncFailed) as failure:
        SystemDisk().sync_directory(tmp_path)
    assert failure.value.path == tmp_path


@pytest.mark.parametrize(("call", "act"), [("open", "create"), ("unlink", "remove"), ("open", "lock")])
def test_no_space_for_a_name_is_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, act: str
) -> None:
    monkeypatch.setattr(os, call, failing(errno.ENOSPC))
    with pytest.raises(DiskFull):
        getattr(SystemDisk(), act)(tmp_path / "f")


@pytest.mark.parametrize("act", ["open", "lock", "sync_directory"])
def test_what_the_system_refuses_to_open_is_storage_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    monkeypatch.setattr(os, "open", failing(errno.EACCES))
    with pytest.raises(StorageFailed) as failure:
        getattr(SystemDisk(), act)(tmp_path / "f")
    assert failure.value.path == tmp_path / "f"


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("fcntl.flock", errno.ENOLCK),
        ("os.ftruncate", errno.EIO),
        ("os.pwrite", errno.EIO),
    ],
)
def test_a_lock_that_could_not_be_taken_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(call, failing(number))
        with pytest.raises(StorageFailed):
            SystemDisk().lock(tmp_path / "LOCK")
    SystemDisk().lock(tmp_path / "LOCK").release()


def test_a_lock_is_held_on_a_full_disk_but_cannot_name_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SystemDisk().lock(tmp_path / "LOCK").release()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(errno.ENOSPC))
        lock = SystemDisk().lock(tmp_path / "LOCK")
    with pytest.raises(DirectoryLocked) as refused:
        SystemDisk().lock(tmp_path / "LOCK")
    assert refused.value.pid is None
    lock.release()


def test_an_empty_directory_may_be_new_and_is_made_durable_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(SystemDisk, "sync_directory", lambda _, directory: synced.append(directory))
    disk = SystemDisk()
    disk.make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "a"]
    disk.make_directory(tmp_path / "a" / "b")
    assert synced[3:] == [tmp_path / "a"]
    disk.make_directory(tmp_path / "a")
    assert synced[4:] == [], "whoever put something into it had made it durable before"


# What lies in a directory that somebody else filled


def link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


def dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


@pytest.mark.parametrize("make", [link, dangling_link, pipe, socket_file, Path.mkdir])
def test_only_a_regular_file_is_opened_or_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "victim").write_bytes(b"precious")
    path = tmp_path / "f"
    make(path)
    disk = SystemDisk()
    attempts: list[Callable[[], object]] = [
        lambda: disk.open(path),
        lambda: disk.open(path, writable=True),
        lambda: disk.lock(path),
    ]
    descriptors = os.listdir("/dev/fd")
    for attempt in attempts:
        with pytest.raises(StorageFailed, match="is not a regular file") as refused:
            attempt()
        assert refused.value.path == path
    assert os.listdir("/dev/fd") == descriptors
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_is_replaced_and_removed_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    link(tmp_path / "f")
    file = SystemDisk().create(tmp_path / "f")
    file.append([b"new"])
    file.close()
    assert (tmp_path / "f").read_bytes() == b"new"
    link(tmp_path / "g")
    SystemDisk().remove(tmp_path / "g")
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_a_directory_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    disk = SystemDisk()
    disk.make_directory(tmp_path / "linked")
    disk.create(tmp_path / "linked" / "f").close()
    disk.open(tmp_path / "linked" / "f").close()
    disk.lock(tmp_path / "linked" / "LOCK").release()
    disk.sync_directory(tmp_path / "linked")
    assert disk.is_directory(tmp_path / "linked")
    assert disk.names(tmp_path / "real") == ["LOCK", "f"]


def test_a_link_to_itself_is_neither_there_nor_a_directory(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not SystemDisk().exists(tmp_path / "loop")
    assert not SystemDisk().is_directory(tmp_path / "loop")


# Every error is one of the library's


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENAMETOOLONG])
@pytest.mark.parametrize(
    ("call", "act"),
    [("listdir", "names"), ("stat", "is_directory"), ("stat", "exists"), ("stat", "make_directory")],
)
def test_an_error_when_looking_at_a_directory_is_storage_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, act: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number))
        with pytest.raises(StorageFailed) as failure:
            getattr(SystemDisk(), act)(tmp_path)
    assert failure.value.path == tmp_path


def test_a_name_that_is_too_long_is_storage_failed(tmp_path: Path) -> None:
    disk, path = SystemDisk(), tmp_path / ("x" * 300)
    acts: list[Callable[[Path], object]] = [
        disk.names,
        disk.is_directory,
        disk.exists,
        disk.make_directory,
        disk.open,
        disk.create,
        disk.lock,
    ]
    for act in acts:
        with pytest.raises(StorageFailed):
            act(path)


@pytest.mark.parametrize("call", ["os.fstat", "os.close", "mmap.mmap"])
def test_an_error_of_an_open_file_is_storage_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file = SystemDisk().create(tmp_path / "f")
    file.append([b"abc"])
    calls: dict[str, Callable[[], object]] = {
        "os.fstat": file.size,
        "os.close": file.close,
        "mmap.mmap": lambda: file.map(3),
    }
    with monkeypatch.context() as patch:
        patch.setattr(call, failing(errno.EIO))
        with pytest.raises(StorageFailed) as failure:
            calls[call]()
    assert failure.value.path == tmp_path / "f"
    file.close()


@pytest.mark.parametrize("call", ["lseek", "fstat"])
@pytest.mark.parametrize("act", ["create", "open"])
def test_a_file_that_cannot_be_opened_after_all_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, act: str
) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    descriptors = os.listdir("/dev/fd")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.EIO))
        with pytest.raises(StorageFailed):
            getattr(SystemDisk(), act)(tmp_path / "f")
    assert os.listdir("/dev/fd") == descriptors


def test_a_held_lock_whose_file_cannot_be_read_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = SystemDisk().lock(tmp_path / "LOCK")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing(errno.EIO))
        with pytest.raises(DirectoryLocked) as refused:
            SystemDisk().lock(tmp_path / "LOCK")
    assert refused.value.pid is None
    lock.release()


def failing(number: int) -> Callable[..., NoReturn]:
    def fail(*arguments: object, **options: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_directory_of_thousands_is_not_listed_to_make_one_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SystemDisk()
    disk.make_directory(tmp_path / "topics" / "a")

    def refuse(_: object) -> list[str]:
        raise AssertionError("it was listed")

    monkeypatch.setattr(os, "listdir", refuse)
    disk.make_directory(tmp_path / "topics" / "b")
    monkeypatch.undo()
    assert disk.names(tmp_path / "topics") == ["a", "b"]
