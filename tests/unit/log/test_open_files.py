"""Files for writing are a bounded cache: closed for others, synced, and opened again when they are used."""

from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from support.logs import values
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

from quivermq.disk import SystemDisk
from quivermq.errors import FsyncFailed, StorageFailed
from quivermq.log import DataDirectory, follow, verify
from quivermq.log.open_files import OpenFiles, files_allowed

FILES_MAX = 8


def open_descriptors(path: Path) -> int:
    return sum(str(each.resolve()).startswith(str(path)) for each in Path("/proc/self/fd").iterdir())


def test_many_logs_share_few_descriptors(tmp_path: Path) -> None:
    with DataDirectory(tmp_path, files_max=FILES_MAX) as directory:
        logs = [directory.log(f"log{number}") for number in range(40)]
        for turn in range(3):
            for log in logs:
                log.append(b"%d" % turn, durability="os")
        # Two of them are the lock's.
        assert open_descriptors(tmp_path) <= FILES_MAX + 2
        assert [log.end for log in logs] == [3] * 40
    assert values(follow(tmp_path, "log7")) == [b"0", b"1", b"2"]
    assert verify(tmp_path).is_sound


def test_half_of_what_the_process_may_have_is_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, files in ((256, 128), (20, 16), (1_000_000, 4096), (-1, 4096)):
        monkeypatch.setattr("resource.getrlimit", lambda _, soft=soft: (soft, soft))
        assert files_allowed() == files


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def files(disk: FaultyDisk) -> OpenFiles:
    return OpenFiles(disk, 1)


def test_what_was_not_synced_is_synced_before_the_file_is_closed(
    disk: FaultyDisk, files: OpenFiles
) -> None:
    first = files.create(Path("/first"))
    first.append([b"abc"])
    files.create(Path("/second"))
    disk.sync_directory(Path("/"))
    assert files.count == 1
    assert disk.after_power_loss(keep="nothing").files()[Path("/first")] == b"abc"
    first.append([b"def"])
    first.sync()
    assert disk.after_power_loss(keep="nothing").files()[Path("/first")] == b"abcdef"


def test_files_with_nothing_to_sync_are_closed_first(disk: FaultyDisk) -> None:
    files = OpenFiles(disk, 3)
    dirty, clean = files.create(Path("/dirty")), files.create(Path("/clean"))
    dirty.append([b"abc"])
    clean.append([b"abc"])
    clean.sync()
    before = disk.steps
    files.create(Path("/third"))
    files.create(Path("/fourth"))
    # Two were created, and none was synced.
    assert disk.steps == before + 2
    assert not clean.is_open  # type: ignore[attr-defined]  # It is a cached one.


def test_a_sync_that_failed_on_the_way_out_is_told_to_the_next_user(
    disk: FaultyDisk, files: OpenFiles
) -> None:
    first = files.create(Path("/first"))
    first.append([b"abc"])
    disk.fail_sync("*first")
    files.create(Path("/second"))
    for act in (first.sync, lambda: first.append([b"def"]), first.sync):
        with pytest.raises(FsyncFailed):
            act()
    first.close()


def test_a_log_whose_sync_failed_on_the_way_out_is_fenced() -> None:
    disk, clock = FaultyDisk(), ManualClock()
    directory = DataDirectory(
        "/data", disk=disk, clock=clock, scheduler=ManualScheduler(clock), files_max=2
    )
    log = directory.log("log")
    log.append(b"kept", durability="fsync")
    log.append(b"in doubt", durability="os")
    disk.fail_sync("*/log/*.log")
    for name in ("more", "and-more"):
        directory.log(name).append(b"x", durability="os")
    with pytest.raises(FsyncFailed):
        log.append(b"late", durability="os")
    assert isinstance(log.failure, FsyncFailed)
    with pytest.raises(FsyncFailed):
        log.sync()
    directory.close()


@pytest.mark.parametrize("change", ["removed", "longer"])
def test_a_file_that_somebody_changed_meanwhile_is_not_written_to(tmp_path: Path, change: str) -> None:
    files = OpenFiles(SystemDisk(), 1)
    first = files.create(tmp_path / "first")
    first.append([b"abc"])
    second = files.create(tmp_path / "second")
    if change == "removed":
        (tmp_path / "first").unlink()
    else:
        (tmp_path / "first").write_bytes(b"abcd")
    with pytest.raises(StorageFailed, match="first was"):
        first.append([b"def"])
    first.close()
    second.close()


def test_closing_twice_is_allowed(files: OpenFiles) -> None:
    first, second = files.create(Path("/first")), files.create(Path("/second"))
    for file in (first, second, first, second):
        file.close()
    assert files.count == 0
