"""The files of one moment, read while others go on writing."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk

from quivermq.disk import Buffer, Disk, SystemDisk, SystemFile
from quivermq.errors import Conflict, StorageFailed
from quivermq.log.open_files import OpenFiles
from quivermq.log.picture import Picture, Spoiled

# Long after whatever the test does.
LATER_US = 4_000_000_000_000_000


@pytest.fixture(params=["memory", "system"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[OpenFiles, Path]:
    disk: Disk = FaultyDisk() if request.param == "memory" else SystemDisk()
    root = Path("/data") if request.param == "memory" else tmp_path / "data"
    disk.make_directory(root / "d")
    return OpenFiles(disk, 2), root


def write(files: OpenFiles, path: Path, *values: bytes) -> None:
    file = files.create(path)
    for value in values:
        file.append([value])
    file.close()


def read(picture: Picture, name: str) -> bytes:
    with picture.reading(name) as file:
        return file.read(0, picture.files[name].size)


def test_it_has_what_was_there_and_nothing_later(place: tuple[OpenFiles, Path]) -> None:
    files, root = place
    # More than may be open at a time, so that some are closed for others.
    growing = [files.create(root / "d" / str(number)) for number in range(5)]
    for file in growing:
        file.append([b"before"])
    write(files, root / "LOCK", b"1234")
    with files.picture(root, LATER_US) as picture:
        for file in growing:
            file.append([b" after"])
        write(files, root / "new", b"x")
        assert picture.directories == ["d"]
        assert sorted(picture.files) == [f"d/{number}" for number in range(5)]
        assert {read(picture, name) for name in picture.files} == {b"before"}
    for file in growing:
        file.close()


@pytest.mark.parametrize("act", ["remove", "replace", "rename"])
def test_a_file_that_loses_its_name_is_read_all_the_same(place: tuple[OpenFiles, Path], act: str) -> None:
    files, root = place
    write(files, root / "a", b"mine")
    write(files, root / "b", b"other")
    with files.picture(root, LATER_US) as picture:
        if act == "remove":
            files.remove(root / "a")
        elif act == "replace":
            files.rename(root / "b", root / "a")
        else:
            files.rename(root / "a", root / "c")
            write(files, root / "a", b"another one")
        assert read(picture, "a") == b"mine"
        assert read(picture, "b") == b"other"


def cut(files: OpenFiles, root: Path) -> None:
    file = files.open(root / "a", writable=True)
    file.truncate(3)
    file.close()


def test_what_is_cut_spoils_it_until_it_was_read(place: tuple[OpenFiles, Path]) -> None:
    files, root = place
    write(files, root / "a", b"abcdef")
    with files.picture(root, LATER_US) as picture:
        assert read(picture, "a") == b"abcdef"
        cut(files, root)
    with files.picture(root, LATER_US) as picture:
        assert read(picture, "a") == b"abc"
        write(files, root / "a", b"abcdef")
    with files.picture(root, LATER_US) as picture:
        cut(files, root)
        with pytest.raises(Spoiled, match="a was shortened"):
            read(picture, "a")


def test_what_is_cut_while_it_is_read_does_not_count(place: tuple[OpenFiles, Path]) -> None:
    files, root = place
    write(files, root / "a", b"abcdef")
    with files.picture(root, LATER_US) as picture, pytest.raises(Spoiled), picture.reading("a"):
        cut(files, root)


def test_what_was_only_appended_may_be_cut_again(place: tuple[OpenFiles, Path]) -> None:
    files, root = place
    write(files, root / "a", b"abc")
    with files.picture(root, LATER_US) as picture:
        file = files.open(root / "a", writable=True)
        file.append([b"de"])
        file.truncate(3)
        file.close()
        assert read(picture, "a") == b"abc"


def test_too_many_files_without_a_name_spoil_it(
    place: tuple[OpenFiles, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quivermq.log.picture._HELD_MAX", 2)
    files, root = place
    for name in ("a", "b", "c"):
        write(files, root / name, b"x")
    with files.picture(root, LATER_US) as picture:
        for name in ("a", "b", "c"):
            files.remove(root / name)
        with pytest.raises(Spoiled, match="more than 2 files"):
            read(picture, "a")


def test_one_picture_at_a_time(place: tuple[OpenFiles, Path]) -> None:
    files, root = place
    with files.picture(root, LATER_US), pytest.raises(Conflict), files.picture(root, LATER_US):
        pass
    with files.picture(root, LATER_US) as picture:
        assert picture.files == {}


class HalfWritten(SystemFile):
    """A file of which the second half is written when the test says so."""

    half = threading.Event()
    rest = threading.Event()

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        written = super().append([data[: len(data) // 2]])
        self.half.set()
        self.rest.wait()
        return written + super().append([data[len(data) // 2 :]])


class HalfDisk(SystemDisk):
    def create(self, path: Path, *, is_private: bool = False, is_program: bool = False) -> SystemFile:
        super().create(path, is_private=is_private, is_program=is_program).close()
        return HalfWritten(path, os.O_RDWR)


def test_it_is_never_of_half_a_write(tmp_path: Path) -> None:
    files = OpenFiles(HalfDisk(), 8)
    file = files.create(tmp_path / "a")
    sizes = []

    def take() -> None:
        with files.picture(tmp_path, LATER_US) as picture:
            sizes.append(picture.files["a"].size)

    writing, taking = (
        threading.Thread(target=lambda: file.append([b"abcdef"])),
        threading.Thread(target=take),
    )
    writing.start()
    HalfWritten.half.wait()
    taking.start()
    HalfWritten.rest.set()
    writing.join()
    taking.join()
    assert sizes == [6]
    file.close()


# Other processes.


def settled(files: OpenFiles, root: Path) -> str:
    with files.picture(root, LATER_US) as picture:
        return picture.files["a"].mark


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"other"),
        lambda path: (path.with_name("b").write_bytes(b"mine!"), path.with_name("b").rename(path)),
        lambda path: path.unlink(),
    ],
    ids=["written", "replaced", "removed"],
)
def test_what_another_process_does_to_a_file_spoils_it(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    files = OpenFiles(SystemDisk(), 8)
    (tmp_path / "a").write_bytes(b"mine.")
    with files.picture(tmp_path, LATER_US) as picture:
        change(tmp_path / "a")
        with pytest.raises(Spoiled, match="another process has"):
            read(picture, "a")


def test_a_mark_is_the_same_until_the_file_changes(tmp_path: Path) -> None:
    files = OpenFiles(SystemDisk(), 8)
    write(files, tmp_path / "a", b"mine")
    first = settled(files, tmp_path)
    assert first
    assert settled(files, tmp_path) == first
    file = files.open(tmp_path / "a", writable=True)
    assert settled(files, tmp_path) == first
    file.append([b"more"])
    file.close()
    assert settled(files, tmp_path) not in ("", first)


def test_a_file_that_has_just_changed_has_no_mark(tmp_path: Path) -> None:
    files = OpenFiles(SystemDisk(), 8)
    write(files, tmp_path / "a", b"mine")
    changed_us = SystemDisk().mark(tmp_path / "a").changed_us
    with files.picture(tmp_path, changed_us + 1_000_000) as picture:
        assert picture.files["a"].mark == ""


def test_a_link_is_refused_by_name(tmp_path: Path) -> None:
    files = OpenFiles(SystemDisk(), 8)
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(StorageFailed, match="link is not a regular file"), files.picture(tmp_path, 0):
        pass


def test_directories_may_be_links_but_not_in_a_circle(tmp_path: Path) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "data"
    for each in (elsewhere, root):
        each.mkdir()
    (elsewhere / "a").write_bytes(b"x")
    (root / "topic").symlink_to(elsewhere)
    files = OpenFiles(SystemDisk(), 8)
    with files.picture(root, LATER_US) as picture:
        assert read(picture, "topic/a") == b"x"
    (elsewhere / "back").symlink_to(root)
    with pytest.raises(StorageFailed, match="leads back"), files.picture(root, LATER_US):
        pass
