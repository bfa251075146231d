from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk

from quivermq.disk import SystemDisk
from quivermq.segment.recovery import COPY_BYTES, QUARANTINE, copy_range, set_aside

DISK = SystemDisk()


def file_of(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def aside(path: Path, position: int, end: int) -> Path:
    file = DISK.open(path)
    try:
        return set_aside(DISK, file, position, end)
    finally:
        file.close()


@pytest.mark.damages
def test_the_bytes_are_copied_and_the_file_is_left_alone(tmp_path: Path) -> None:
    path = file_of(tmp_path / "00000000000000000007.log", b"0123456789")
    side_file = aside(path, 2, 6)
    assert side_file == tmp_path / QUARANTINE / "00000000000000000007.2-6.bytes"
    assert (side_file.read_bytes(), path.read_bytes()) == (b"2345", b"0123456789")


def test_the_same_bytes_are_set_aside_once(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.log", b"0123456789")
    assert aside(path, 2, 6) == aside(path, 2, 6)
    assert len(list((tmp_path / QUARANTINE).iterdir())) == 1


@pytest.mark.parametrize("there", [b"", b"2", b"234", b"2345"])
def test_an_unfinished_copy_is_finished(tmp_path: Path, there: bytes) -> None:
    path = file_of(tmp_path / "a.log", b"0123456789")
    (tmp_path / QUARANTINE).mkdir()
    file_of(tmp_path / QUARANTINE / "a.2-6.bytes", there)
    assert aside(path, 2, 6).read_bytes() == b"2345"
    assert [p.name for p in (tmp_path / QUARANTINE).iterdir()] == ["a.2-6.bytes"]


@pytest.mark.parametrize("there", [b"2x", b"x", b"2346", b"23456"])
def test_other_bytes_of_that_name_are_kept(tmp_path: Path, there: bytes) -> None:
    path = file_of(tmp_path / "a.log", b"0123456789")
    (tmp_path / QUARANTINE).mkdir()
    other = file_of(tmp_path / QUARANTINE / "a.2-6.bytes", there)
    second = aside(path, 2, 6)
    assert (second.name, second.read_bytes()) == ("a.2-6.2.bytes", b"2345")
    file_of(path, b"##########")
    third = aside(path, 2, 6)
    assert (third.name, third.read_bytes()) == ("a.2-6.3.bytes", b"####")
    assert (other.read_bytes(), second.read_bytes()) == (there, b"2345")


def test_more_than_fits_into_memory_at_once(tmp_path: Path) -> None:
    data = bytes(range(256)) * (COPY_BYTES // 100)
    path = file_of(tmp_path / "a.log", data)
    start, end = 77, len(data) - 33
    side_file = aside(path, start, end)
    assert side_file.read_bytes() == data[start:end]
    # Compared chunk by chunk, too: what differs only far behind is another copy.
    file_of(side_file, data[start : end - 1] + b"?")
    assert aside(path, start, end).name == f"a.{start}-{end}.2.bytes"


def test_a_range_is_appended_behind_what_is_there(tmp_path: Path) -> None:
    source, target = DISK.open(file_of(tmp_path / "a", b"0123456789")), DISK.create(tmp_path / "b")
    target.append([b">"])
    copy_range(source, target, 3, 5)
    copy_range(source, target, 5, 5)
    copy_range(source, target, 9, 10)
    assert target.read(0, 99) == b">349"
    source.close()
    target.close()


def test_what_was_set_aside_survives_power_loss(faulty_disk: FaultyDisk) -> None:
    path = Path("/a.log")
    file = faulty_disk.create(path)
    file.append([b"0123456789"])
    faulty_disk.sync_directory(Path("/"))
    side_file = set_aside(faulty_disk, file, 2, 6)
    after = faulty_disk.after_power_loss(keep="nothing")
    assert after.files() == {path: b"", side_file: b"2345"}
