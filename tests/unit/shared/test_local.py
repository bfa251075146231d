"""Objects in a directory, durable once they are put."""

from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk

from quivermq.disk import SystemDisk
from quivermq.errors import DamagedChunk, DirectoryLocked
from quivermq.shared.local import DirectoryStore

ROOT = Path("/backups")


def test_objects_come_back_as_they_were_put(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "new")
    assert store.names("") == []
    store.put("file/1", b"abc")
    store.put("file/2", b"")
    store.put("set", b"x")
    assert store.get("file/1", 3) == b"abc"
    assert store.get_range("file/1", 1, 5) == b"bc"
    assert store.get("file/3", 3) is None
    assert store.get_range("file/3", 0, 1) is None
    assert store.names("file/") == ["file/1", "file/2"]
    assert store.names("file/2") == ["file/2"]
    assert store.names("") == ["file/1", "file/2", "set"]
    assert store.sizes("file/") == {name: len(store.get(name, 100) or b"") for name in store.names("file/")}
    with pytest.raises(DamagedChunk, match="file/1"):
        store.get("file/1", 2)
    store.remove(["file/1", "file/9"])
    assert store.names("file/") == ["file/2"]
    store.close()


def test_only_the_first_creates(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert store.put_if_absent("a", b"first")
    assert not store.put_if_absent("a", b"second")
    assert store.get("a", 10) == b"first"
    store.close()


def test_one_process_at_a_time_puts_and_others_read(tmp_path: Path) -> None:
    first, second = DirectoryStore(tmp_path), DirectoryStore(tmp_path)
    first.put("a", b"x")
    assert second.get("a", 1) == b"x"
    with pytest.raises(DirectoryLocked):
        second.put("b", b"y")
    first.close()
    second.put("b", b"y")
    second.close()
    second.close()


@pytest.mark.fault("power", "engine")
def test_what_was_put_survives_power_loss_and_half_an_object_is_none() -> None:
    whole = FaultyDisk()
    DirectoryStore(ROOT, whole).put("d/a", b"abc")
    assert DirectoryStore(ROOT, whole.after_power_loss(keep="nothing")).get("d/a", 3) == b"abc"
    for step in range(1, whole.steps + 1):
        disk = FaultyDisk()
        disk.stop_at(step)
        with pytest.raises(BaseException):  # noqa: B017, PT011 - The process ends.
            DirectoryStore(ROOT, disk).put("d/a", b"abc")
        disk.stop()
        found = DirectoryStore(ROOT, disk.after_power_loss())
        assert found.get("d/a", 3) in (None, b"abc")
        assert set(found.names("")) <= {"d/a"}


def test_what_is_put_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "new", SystemDisk())
    store.put("a", b"x")
    store.close()
    assert (tmp_path / "new" / "a").stat().st_mode & 0o077 == 0
