import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from support.logs import contents, values
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.remote import RemoteLog
from support.threads import PATIENCE_S, start, wait_until

from quivermq.disk import SystemDisk, SystemLock
from quivermq.errors import (
    Closing,
    DirectoryLocked,
    DiskFull,
    FsyncFailed,
    InvalidName,
    InvalidRequest,
    NotFound,
    StorageFailed,
)
from quivermq.log import DataDirectory, follow
from quivermq.log.directory import find_logs, locked
from quivermq.settings import StorageSettings

# Names


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "A-Z_0.9",
        "topics/orders/p0/normal",
        "x" * 255,
        "...a",
        "a..",
        "-",
        "groups/g/t/p0",
        "/".join(["x"] * 16),
        "/".join(["x" * 204] * 5),
        "a/LOCK",
    ],
)
def test_a_name_leads_down_from_the_directory(tmp_path: Path, name: str) -> None:
    with DataDirectory(tmp_path) as directory:
        log = directory.log(name)
        log.append(b"x")
        assert log.directory == tmp_path / name
        assert directory.log(name) is log
    assert values(follow(tmp_path, name)) == [b"x"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        ".",
        "..",
        "...",
        "../escape",
        "a/../b",
        "a/./b",
        "/absolute",
        "a//b",
        "a/",
        "x" * 256,
        "a/" + "x" * 256,
        "a b",
        "a\n",
        "a\0b",
        "ä",
        "a\\b",
        "@quarantine",
        "a/@quarantine",
        "~",
        "/".join(["x"] * 17),
        "/".join(["x" * 249] * 5),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    with DataDirectory(data) as directory:
        with pytest.raises(InvalidName):
            directory.log(name)
        with pytest.raises(InvalidName):
            follow(data, name)
    assert sorted(contents(tmp_path)) == ["data/LOCK"]
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "LOCK"]


# One data directory inside of another


def test_a_data_directory_inside_of_another_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    outer, inner = tmp_path / "p", tmp_path / "p" / "q" / "r"
    DataDirectory(outer).close()
    with pytest.raises(InvalidRequest, match="lies inside of the data directory") as refused:
        DataDirectory(inner)
    assert str(outer) in str(refused.value)
    assert not (outer / "q").exists()


def test_a_link_does_not_lead_into_another_data_directory(tmp_path: Path) -> None:
    (tmp_path / "p" / "q").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "p" / "q")
    with DataDirectory(tmp_path / "p"), pytest.raises(InvalidRequest, match="inside"):
        DataDirectory(tmp_path / "link")
    with DataDirectory(tmp_path / "d") as directory:
        (tmp_path / "d" / "link").symlink_to(tmp_path / "p" / "q")
        for name in ("link", "link/o"):
            with pytest.raises(InvalidRequest, match="inside"):
                directory.log(name)


def test_a_log_inside_of_another_data_directory_is_refused(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "p" / "q") as inner, DataDirectory(tmp_path / "p") as outer:
        for name in ("q/o", "q/a/b"):
            with pytest.raises(InvalidRequest, match="inside") as refused:
                outer.log(name)
            assert str(tmp_path / "p" / "q") in str(refused.value)
        outer.log("o").append(b"outer")
        inner.log("o").append(b"inner")
    assert values(follow(tmp_path / "p", "q/o")) == [b"inner"]


def test_directories_that_are_links_hold_logs(tmp_path: Path) -> None:
    for name in ("data", "topic"):
        (tmp_path / f"real-{name}").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "real-data")
    (tmp_path / "data" / "topic").symlink_to(tmp_path / "real-topic")
    for n in range(2):
        with DataDirectory(tmp_path / "data") as directory:
            assert directory.log("topic/p0").append(b"x") == n
            assert directory.log("p0").append(b"y") == n


def test_links_that_run_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StorageFailed):
        DataDirectory(tmp_path / "loop")
    with DataDirectory(tmp_path) as directory:
        for name in ("loop", "loop/o"):
            with pytest.raises(StorageFailed):
                directory.log(name)


def test_a_lock_that_appears_while_a_directory_is_opened_is_seen(tmp_path: Path) -> None:
    class Racing(SystemDisk):
        def lock(self, path: Path, **options: bool) -> SystemLock:
            held = super().lock(path)
            (tmp_path / "LOCK").write_bytes(b"")
            return held

    with pytest.raises(InvalidRequest, match="inside"):
        DataDirectory(tmp_path / "q", disk=Racing())
    SystemDisk().lock(tmp_path / "q" / "LOCK").release()


def test_a_log_called_like_the_lock_is_no_lock(tmp_path: Path) -> None:
    for n in range(2):
        with DataDirectory(tmp_path) as directory:
            assert directory.log("a/LOCK").append(b"x") == n
            assert directory.log("a/b").append(b"x") == n
    with locked(SystemDisk(), tmp_path):
        pass


# Logs


def test_the_logs_of_a_directory_are_apart(tmp_path: Path) -> None:
    names = ["a", "b", "a/b", "a/b/c"]
    with DataDirectory(tmp_path) as directory:
        for name in names:
            directory.log(name).append(name.encode())
    with DataDirectory(tmp_path) as directory:
        assert {name: values(directory.log(name)) for name in names} == {n: [n.encode()] for n in names}
    assert list(find_logs(SystemDisk(), tmp_path)) == sorted(tmp_path / name for name in names)


def test_one_log_is_opened_once_however_many_ask_for_it(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    count = 8
    for number in range(10):
        barrier = threading.Barrier(count)

        def ask(name: str = f"log{number}", barrier: threading.Barrier = barrier) -> object:
            barrier.wait()
            return directory.log(name)

        threads = [start(ask) for _ in range(count)]
        assert len({id(thread.result(PATIENCE_S)) for thread in threads}) == 1
    directory.close()


def test_the_settings_disk_clock_and_scheduler_are_those_that_were_given() -> None:
    disk, clock = FaultyDisk(), ManualClock()
    scheduler = ManualScheduler(clock)
    settings = StorageSettings(durability="buffered", linger_ms=7)
    directory = DataDirectory("/data", settings, disk=disk, clock=clock, scheduler=scheduler)
    log = directory.log("a")
    log.append(b"x")
    assert log.settings is settings
    assert log.size_bytes == 0
    clock.advance(0.007)
    scheduler.run_due()
    assert log.size_bytes > 0
    assert next(log.records()).timestamp == clock.now_us()
    directory.close()
    assert scheduler.is_closed


def test_logs_of_one_directory_share_a_background_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    directory = DataDirectory(tmp_path, StorageSettings(durability="buffered"))
    for name in "abc":
        directory.log(name).append(b"x")
    # Another thread starts it, and may not have come to it yet.
    wait_until(lambda: threading.active_count() == before + 1)
    directory.close()
    assert threading.active_count() == before


# Closing


def test_closing_twice_is_allowed_and_nothing_can_be_opened_afterwards(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    log = directory.log("a")
    directory.close()
    directory.close()
    with pytest.raises(Closing):
        log.append(b"x")
    for name in ("a", "b"):
        # Somebody else may hold the lock by now.
        with pytest.raises(Closing):
            directory.log(name)
    assert not (tmp_path / "b").exists()


def on_faulty_disk(disk: FaultyDisk) -> DataDirectory:
    clock = ManualClock()
    return DataDirectory(
        "/data",
        StorageSettings(durability="buffered"),
        disk=disk,
        clock=clock,
        scheduler=ManualScheduler(clock),
    )


def test_every_log_is_closed_although_one_fails(faulty_disk: FaultyDisk) -> None:
    directory = on_faulty_disk(faulty_disk)
    for name in "abc":
        directory.log(name).append(name.encode())
    faulty_disk.fail_sync("/data/b/*.log")
    with pytest.raises(FsyncFailed):
        directory.close()
    with on_faulty_disk(faulty_disk) as again:
        assert [values(again.log(name)) for name in "abc"] == [[b"a"], [b"b"], [b"c"]]


def test_a_directory_with_unwritten_messages_stays_locked(faulty_disk: FaultyDisk) -> None:
    directory = on_faulty_disk(faulty_disk)
    for name in "ab":
        directory.log(name).append(name.encode())
    faulty_disk.fill_after(0)
    for _ in range(2):
        with pytest.raises(DiskFull):
            directory.close()
        with pytest.raises(DirectoryLocked):
            on_faulty_disk(faulty_disk)
    faulty_disk.fill_after(None)
    directory.close()
    with on_faulty_disk(faulty_disk) as again:
        assert [values(again.log(name)) for name in "ab"] == [[b"a"], [b"b"]]


# The lock


def test_a_second_opener_in_this_process_is_refused(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as first:
        first.log("a").append(b"x")
        for _ in range(2):
            with pytest.raises(DirectoryLocked) as refused:
                DataDirectory(tmp_path)
            assert (refused.value.path, refused.value.pid) == (tmp_path, os.getpid())
        first.log("a").append(b"y")
    with DataDirectory(tmp_path) as second:
        assert values(second.log("a")) == [b"x", b"y"]


def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with RemoteLog(tmp_path) as remote:
        remote.append("a")
        with pytest.raises(DirectoryLocked, match=f"in use by process {remote.pid}") as refused:
            DataDirectory(tmp_path)
        assert refused.value.pid == remote.pid
        # Reading needs no lock.
        assert values(follow(tmp_path, "log")) == [b"a"]
    with DataDirectory(tmp_path) as directory:
        assert values(directory.log("log")) == [b"a"]


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    remote = RemoteLog(tmp_path)
    remote.append("a", "b")
    remote.kill()
    with DataDirectory(tmp_path) as directory:
        assert values(directory.log("log")) == [b"a", b"b"]


def test_a_lock_that_cannot_be_had_opens_nothing(tmp_path: Path) -> None:
    before = threading.active_count()
    with DataDirectory(tmp_path), pytest.raises(DirectoryLocked):
        DataDirectory(tmp_path, StorageSettings(durability="buffered"))
    assert threading.active_count() == before


def test_the_lock_of_a_part_is_that_of_the_whole_and_the_other_way_round(tmp_path: Path) -> None:
    disk = SystemDisk()
    (tmp_path / "data" / "part").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data" / "part")
    (tmp_path / "data" / "part" / "loop").symlink_to(tmp_path)
    with DataDirectory(tmp_path / "data"):
        for way in ("data/part", "data", ".", "link"):
            with pytest.raises(DirectoryLocked), locked(disk, tmp_path / way):
                pass
    with locked(disk, tmp_path), pytest.raises(DirectoryLocked):
        DataDirectory(tmp_path / "data")
    DataDirectory(tmp_path / "data").close()


def test_a_directory_without_a_lock_gets_its_own(tmp_path: Path) -> None:
    with locked(SystemDisk(), tmp_path), pytest.raises(DirectoryLocked):
        DataDirectory(tmp_path)


# Looking


def test_looking_at_a_directory_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no directory"):
        follow(tmp_path / "missing", "log")
    assert not (tmp_path / "missing").exists()


def test_quarantine_is_no_log(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.log("a").append(b"x")
    (tmp_path / "a" / "@quarantine").mkdir()
    (tmp_path / "a" / "@quarantine" / f"{0:020}.log").write_bytes(b"rotten")
    assert list(find_logs(SystemDisk(), tmp_path)) == [tmp_path / "a"]


# Forking


def forked(tmp_path: Path, in_child: str, in_parent: str = "") -> None:
    """Run code in a fork of a process that has the log `log` of `tmp_path/data` open.

    In a process of its own, so that a child that hangs or dies takes nothing along.
    """
    code = f"""
import os, signal, sys
from pathlib import Path
from quivermq.errors import *
from quivermq.log import *
from quivermq.settings import StorageSettings

def refused(error, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except error:
        return True
    raise AssertionError(f"{{call}} was allowed")

tmp_path = Path(sys.argv[1])
directory = DataDirectory(tmp_path / "data", StorageSettings(durability="buffered", linger_ms=10**9))
log = directory.log("log")
log.append(b"before")
{in_parent}
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
{_indented(in_child, 8)}
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
_, status = os.waitpid(child, 0)
assert status == 0, f"the child ended with {{status}}"
{_LEAVE_LOCKS}
log.append(b"after")
directory.close()
"""
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert values(follow(tmp_path / "data", "log")) == [b"before", b"after"]


_LEAVE_LOCKS = """
for lock in (log._writer.lock, log._writer.sync_lock, directory._opening):
    if lock.locked():
        lock.release()
"""


def _indented(code: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in code.strip().splitlines())


def test_a_forked_child_cannot_write_to_the_logs_of_its_parent(tmp_path: Path) -> None:
    forked(
        tmp_path,
        """
for durability in ("fsync", "os", "buffered"):
    refused(Closing, log.append, b"x", durability=durability)
refused(Closing, log.append_many, [b"x"])
refused(Closing, log.flush)
refused(Closing, log.sync)
refused(Closing, log.retain)
refused(Closing, log.truncate, 0)
""",
    )


def test_a_forked_child_cannot_open_logs_under_the_lock_of_its_parent(tmp_path: Path) -> None:
    forked(
        tmp_path,
        """
refused(Closing, directory.log, "log")
refused(Closing, directory.log, "new")
refused(DirectoryLocked, DataDirectory, tmp_path / "data")
""",
    )
    assert not (tmp_path / "data" / "new").exists()


def test_a_forked_child_that_closes_what_it_inherited_does_no_harm(tmp_path: Path) -> None:
    forked(
        tmp_path,
        """
log.close()
directory.close()
refused(DirectoryLocked, DataDirectory, tmp_path / "data")
""",
    )


def test_a_forked_child_can_open_another_directory(tmp_path: Path) -> None:
    forked(
        tmp_path,
        """
with DataDirectory(tmp_path / "other") as other:
    other.log("log").append(b"child")
    assert [record.value for record in other.log("log").records()] == [b"child"]
assert [record.value for record in follow(tmp_path / "data", "log").records()] == []
""",
    )
    assert values(follow(tmp_path / "other", "log")) == [b"child"]


def test_a_forked_child_does_not_wait_for_locks_that_threads_of_its_parent_held(tmp_path: Path) -> None:
    forked(
        tmp_path,
        """
for durability in ("fsync", "os", "buffered"):
    refused(Closing, log.append, b"x", durability=durability)
refused(Closing, log.append_many, [b"x"], durability="fsync")
refused(Closing, log.sync)
refused(Closing, log.retain)
refused(Closing, directory.log, "log")
log.close()
directory.close()
""",
        in_parent="for x in (log._writer.lock, log._writer.sync_lock, directory._opening): x.acquire()",
    )


def test_a_forked_child_does_not_keep_the_lock_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from quivermq.log import DataDirectory
directory = DataDirectory(sys.argv[1])
directory.log("log").append(b"a")
if os.fork() == 0:
    signal.alarm(60)
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    parent.wait()
    try:
        with DataDirectory(tmp_path) as directory:
            assert values(directory.log("log")) == [b"a"]
    finally:
        parent.stdin.close()
        parent.stdout.close()


def test_what_is_read_in_a_forked_child_is_read_from_the_files(tmp_path: Path) -> None:
    forked(
        tmp_path,
        """
assert [record.value for record in log.records()] == []
""",
    )


def test_a_log_that_was_closed_is_opened_again(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        with directory.log("a") as log:
            log.append(b"first")
        assert directory.log("a").append(b"second") == 1
        assert directory.log("a") is directory.log("a")
