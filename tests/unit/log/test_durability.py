"""Many threads, full disks and failed syncs: what was acknowledged is there, what was refused is not."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from support.faulty_disk import FaultyDisk
from support.logs import Logs, values
from support.threads import PATIENCE_S, Gate, start, wait_until

from quivermq.errors import DiskFull, FsyncFailed, OffsetOutOfRange, StorageFailed
from quivermq.log import Log
from quivermq.settings import Durability

DURABILITIES = get_args(Durability)


def syncs(disk: FaultyDisk, since: int = 0) -> int:
    """How often a log file was synced."""
    return sum(step.operation == "sync" and step.path.suffix == ".log" for step in disk.history[since:])


def waiting(log: Log) -> int:
    return len(log._writer._commit._open.waiting)


# Threads


@pytest.mark.parametrize("durability", DURABILITIES)
def test_every_message_of_every_thread_is_there_once_and_in_order(
    logs: Logs, durability: Durability
) -> None:
    log = logs.open(durability=durability, batch_messages=7, segment_messages=50)
    count, each = 4, 60
    barrier = threading.Barrier(count)

    def run(name: int) -> list[int]:
        barrier.wait()
        told = []
        for number in range(each):
            if number % 10 == 9:
                told.append(log.append_many([b"%d.%d" % (name, number)]))
            else:
                told.append(log.append(b"%d.%d" % (name, number)))
        return told

    threads = [start(lambda name=name: run(name)) for name in range(count)]  # type: ignore[misc]
    told = [thread.result(PATIENCE_S) for thread in threads]
    records = list(log.records())
    assert [record.offset for record in records] == list(range(count * each))
    for name in range(count):
        assert [records[offset].value for offset in told[name]] == [
            b"%d.%d" % (name, number) for number in range(each)
        ]


def test_one_sync_is_shared_by_all_who_came_during_the_one_before(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open(durability="fsync")
    gate = Gate(faulty_disk, "sync", "*.log")
    since = faulty_disk.steps
    first = start(lambda: log.append(b"first"))
    gate.wait()
    others = []
    for number in range(10):
        others.append(start(lambda number=number: log.append(b"%d" % number)))  # type: ignore[misc]
        wait_until(lambda number=number: waiting(log) == number + 1)  # type: ignore[misc]
    assert log.synced_end == 0
    gate.open()
    assert first.result(PATIENCE_S) == 0
    assert [other.result(PATIENCE_S) for other in others] == list(range(1, 11))
    assert syncs(faulty_disk, since) == 2
    # They share a frame as well.
    assert [len(frame) for frame in log.frames()] == [1, 10]
    assert log.synced_end == 11


def test_batches_share_a_sync_too(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="fsync")
    gate = Gate(faulty_disk, "sync", "*.log")
    since = faulty_disk.steps
    first = start(lambda: log.append_many([b"first"]))
    gate.wait()
    others = []
    for number in range(10):
        others.append(start(lambda: log.append_many([b"a", b"b"])))
        wait_until(lambda number=number: log.end == 1 + 2 * (number + 1))  # type: ignore[misc]
    gate.open()
    assert first.result(PATIENCE_S) == 0
    assert [other.result(PATIENCE_S) for other in others] == list(range(1, 21, 2))
    assert syncs(faulty_disk, since) == 2
    assert log.synced_end == 21


def test_writing_goes_on_during_a_sync(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(segment_messages=2)
    log.append(b"0")
    gate = Gate(faulty_disk, "sync", "*.log")
    syncing = start(log.sync)
    gate.wait()
    for n in range(1, 6):
        log.append(b"%d" % n)
    assert values(log) == [b"%d" % n for n in range(6)]
    gate.open()
    syncing.result(PATIENCE_S)
    # Only what was there when it began is known to be safe.
    assert log.synced_end == 1
    log.sync()
    assert log.synced_end == 6


def test_readers_do_not_wait_for_a_sync(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="fsync")
    gate = Gate(faulty_disk, "sync", "*.log")
    first = start(lambda: log.append(b"first"))
    gate.wait()
    assert values(log) == [b"first"]
    gate.open()
    first.result(PATIENCE_S)


def test_threads_read_while_others_append_and_remove(logs: Logs) -> None:
    log = logs.open(segment_messages=5, segments_max=4)
    done = threading.Event()

    def append() -> None:
        for number in range(400):
            log.append(b"%d" % number)
            if number % 50 == 0:
                log.retain()
        done.set()

    def read() -> int:
        seen = 0
        # At least one after the last append: on a busy machine all of them may come first.
        while not (seen and done.is_set()):
            try:
                for record in log.records():
                    assert record.value == b"%d" % record.offset
                    seen += 1
                assert log.find_time(0) <= log.end
            except OffsetOutOfRange:
                continue
        return seen

    readers = [start(read) for _ in range(2)]
    writer = start(append)
    writer.result(PATIENCE_S)
    assert all(reader.result(PATIENCE_S) > 0 for reader in readers)


# A failed sync


FIRST_USES: list[Callable[[Log], object]] = [
    lambda log: log.append(b"x", durability="fsync"),
    lambda log: log.append_many([b"x"], durability="fsync"),
    lambda log: log.sync(),
]
OTHER_USES: list[Callable[[Log], object]] = [
    lambda log: log.append(b"y", durability="os"),
    lambda log: log.append(b"y", durability="buffered"),
    lambda log: log.append_many([b"y"], durability="os"),
    lambda log: log.flush(),
    lambda log: log.retain(),
    lambda log: log.truncate(0),
]


@pytest.mark.parametrize("use", FIRST_USES)
def test_a_failed_sync_fences_and_is_never_tried_again(
    faulty_logs: Logs, faulty_disk: FaultyDisk, use: Callable[[Log], object]
) -> None:
    log = faulty_logs.open()
    log.append(b"safe", durability="fsync")
    log.append(b"unsafe")
    since = faulty_disk.steps
    faulty_disk.fail_sync("*.log")
    with pytest.raises(FsyncFailed) as failed:
        use(log)
    assert syncs(faulty_disk, since) == 1
    told = [failed.value]
    for again in FIRST_USES + OTHER_USES:
        with pytest.raises(FsyncFailed) as refused:
            again(log)
        assert refused.value.path == failed.value.path
        told.append(refused.value)
    assert len(set(map(id, told))) == len(told)
    for _ in range(3):
        faulty_logs.clock.advance(10)
        faulty_logs.scheduler.run_due()
    # It can be read, and closed.
    assert values(log, 0)[:2] == [b"safe", b"unsafe"]
    assert log.synced_end == 1
    log.close()
    assert syncs(faulty_disk, since) == 1
    log = faulty_logs.open()
    assert values(log)[:2] == [b"safe", b"unsafe"]
    log.append(b"new", durability="fsync")
    after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing")).open()
    assert values(after) == values(log)
    assert values(log)[-1] == b"new"


def test_a_sync_that_fails_in_the_background_is_told_to_the_next_caller(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open()
    log.append(b"a")
    faulty_disk.fail_sync("*.log")
    faulty_logs.clock.advance(1)
    with pytest.raises(FsyncFailed):
        faulty_logs.scheduler.run_due()
    with pytest.raises(FsyncFailed):
        log.append(b"b")
    faulty_logs.clock.advance(10)
    faulty_logs.scheduler.run_due()
    log.close()


def test_a_fenced_log_can_be_read_with_messages_in_its_buffer(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open()
    log.append(b"a", durability="os")
    log.append(b"b", durability="buffered")
    gate = Gate(faulty_disk, "sync", "*.log")
    faulty_disk.fail_sync("*.log")
    syncing = start(log.sync)
    gate.wait()
    log.append(b"c", durability="buffered")
    gate.open()
    with pytest.raises(FsyncFailed):
        syncing.result(PATIENCE_S)
    assert values(log) == [b"a", b"b"]
    assert log.find_time(0) == 0
    log.close()


def test_a_failed_sync_is_told_to_everybody_who_waits(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="fsync")
    gate = Gate(faulty_disk, "sync", "*.log")
    first = start(lambda: log.append(b"first"))
    gate.wait()
    others = []
    for number in range(3):
        others.append(start(lambda: log.append(b"x")))
        wait_until(lambda number=number: waiting(log) == number + 1)  # type: ignore[misc]
        others.append(start(lambda: log.append_many([b"y"])))
        wait_until(lambda number=number: log.end == number + 2)  # type: ignore[misc]
    since = faulty_disk.steps
    # The gate stands before the step, so this is the first one's sync.
    faulty_disk.fail_sync("*.log")
    gate.open()
    told = [each.exception(PATIENCE_S) for each in (first, *others)]
    assert all(isinstance(each, FsyncFailed) for each in told)
    assert len(set(map(id, told))) == len(told)
    assert syncs(faulty_disk, since) == 1
    log.close()


def test_a_failed_sync_of_a_full_segment_fences_too(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(segment_messages=1)
    log.append(b"a")
    log.append(b"b")
    faulty_disk.fail_sync(f"*{0:020}.log")
    with pytest.raises(FsyncFailed):
        log.sync()
    assert log.synced_end == 0
    with pytest.raises(FsyncFailed):
        log.append(b"c")
    log.close()
    assert values(faulty_logs.open()) == [b"a", b"b"]


def test_a_log_whose_last_sync_fails_is_closed_all_the_same(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open()
    log.append(b"a")
    faulty_disk.fail_sync("*.log")
    with pytest.raises(FsyncFailed):
        log.close()
    log.close()
    assert values(faulty_logs.open()) == [b"a"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_closed_log_keeps_no_file_open(
    logs: Logs, is_fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    log = logs.open(segment_messages=1)
    for _ in range(5):
        log.append(b"x")
    assert open_files() >= before + 10
    if is_fenced:
        monkeypatch.setattr("quivermq.disk._fdatasync", _fail)
        with pytest.raises(FsyncFailed):
            log.sync()
    log.close()
    assert open_files() == before


def _fail(_: int) -> None:
    raise OSError(errno.EIO, "broken")


# Other errors of the disk


def test_a_write_that_fails_fences(faulty_logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    log = faulty_logs.open()
    log.append(b"a")

    def fail(*_: object) -> Any:
        raise StorageFailed("broken", path=Path("x"))

    with monkeypatch.context() as broken:
        broken.setattr(type(log._writer._active._log_file), "append", fail)
        with pytest.raises(StorageFailed):
            log.append(b"b")
    with pytest.raises(StorageFailed):
        log.append(b"c")
    log.close()
    log = faulty_logs.open()
    assert log.append(b"d") == 1


# A full disk


@pytest.mark.parametrize("room_bytes", [0, 1, 90])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_what_a_full_disk_refuses_is_not_in_the_log(
    faulty_logs: Logs, faulty_disk: FaultyDisk, durability: Durability, room_bytes: int
) -> None:
    log = faulty_logs.open(durability=durability)
    log.append(b"a")
    size = log.size_bytes
    faulty_disk.fill_after(room_bytes)
    uses: list[Callable[[], int]] = [
        lambda: log.append(b"refused"),
        lambda: log.append_many([b"refused"] * 2),
    ]
    for use in uses:
        with pytest.raises(DiskFull) as refused:
            use()
        assert refused.value.retryable
        assert (log.end, log.size_bytes) == (1, size)
        assert values(log) == [b"a"]
    faulty_disk.fill_after(None)
    assert log.append(b"b") == 1
    assert log.append_many([b"c", b"d"]) == 2
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_a_full_disk_keeps_what_is_buffered_and_refuses_more(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open(durability="buffered", batch_messages=3)
    faulty_disk.fill_after(0)
    taken = [log.append(b"%d" % n) for n in range(3)]
    for _ in range(3):
        with pytest.raises(DiskFull):
            log.append(b"refused")
    assert (taken, log.end) == ([0, 1, 2], 3)
    uses: list[Callable[[], object]] = [log.flush, log.sync]
    uses.append(lambda: log.append(b"refused", durability="os"))
    for use in uses:
        with pytest.raises(DiskFull):
            use()
    faulty_disk.fill_after(None)
    assert log.append(b"3") == 3
    assert values(log) == [b"0", b"1", b"2", b"3"]


def test_what_lingered_on_a_full_disk_is_tried_again(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="buffered")
    log.append(b"a")
    faulty_disk.fill_after(0)
    faulty_logs.clock.advance(0.005)
    with pytest.raises(DiskFull):
        faulty_logs.scheduler.run_due()
    faulty_disk.fill_after(None)
    faulty_logs.clock.advance(1)
    faulty_logs.scheduler.run_due()
    assert values(faulty_logs.follow()) == [b"a"]
    assert values(log) == [b"a"]


def test_what_others_wrote_is_synced_although_the_buffer_finds_no_room(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open(durability="os", linger_ms=10_000)
    log.append(b"a")
    log.append(b"b", durability="buffered")
    faulty_disk.fill_after(0)
    faulty_logs.clock.advance(1)
    faulty_logs.scheduler.run_due()
    assert log.synced_end == 1
    faulty_disk.fill_after(None)


def test_a_full_disk_refuses_every_member_of_a_group(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="fsync")
    gate = Gate(faulty_disk, "sync", "*.log")
    first = start(lambda: log.append(b"first"))
    gate.wait()
    others = []
    for number in range(5):
        others.append(start(lambda: log.append(b"refused")))
        wait_until(lambda number=number: waiting(log) == number + 1)  # type: ignore[misc]
    faulty_disk.fill_after(0)
    gate.open()
    assert first.result(PATIENCE_S) == 0
    told = [other.exception(PATIENCE_S) for other in others]
    assert all(isinstance(each, DiskFull) for each in told)
    assert len(set(map(id, told))) == 5
    assert (log.end, values(log)) == (1, [b"first"])
    faulty_disk.fill_after(None)
    assert log.append(b"second") == 1


def test_a_batch_that_is_in_the_log_is_not_refused_because_another_message_is(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open(durability="fsync")
    gate = Gate(faulty_disk, "sync", "*.log")
    first = start(lambda: log.append(b"first"))
    gate.wait()
    batch = start(lambda: log.append_many([b"a", b"b"]))
    wait_until(lambda: log.end == 3)
    single = start(lambda: log.append(b"refused"))
    wait_until(lambda: any(entry[0] == b"refused" for entry in log._writer._commit._open.entries))
    faulty_disk.fill_after(0)
    gate.open()
    assert first.result(PATIENCE_S) == 0
    assert isinstance(single.exception(PATIENCE_S), DiskFull)
    # Whoever is told that there was no room sends again: it must not be in the log then.
    assert batch.result(PATIENCE_S) == 1
    assert log.synced_end == 3
    assert values(log) == [b"first", b"a", b"b"]
    faulty_disk.fill_after(None)


def test_a_full_disk_can_be_made_room_on(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    """What is buffered waits for room; what makes room must not wait for it."""
    log = faulty_logs.open(segment_messages=1, segments_max=1)
    for n in range(3):
        log.append(b"%d" % n)
    log.append(b"waiting", durability="buffered")
    faulty_disk.fill_after(0)
    with pytest.raises(DiskFull):
        log.flush()
    assert log.retain().segments == 2
    assert values(log) == [b"2", b"waiting"]
