"""What the fault suite has found, each once more by itself, so that it is not found again."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop
from support.broker import serving
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.queues import DATA

import quivermq
from quivermq.engine import engine_of
from quivermq.errors import Corruption, DirectoryLocked, DiskFull, DiskRefused, StorageFailed
from quivermq.frame import Producer, encode
from quivermq.log import DataDirectory, repair
from quivermq.server.polling import Polls
from quivermq.settings import EngineSettings, Settings, StorageSettings

HOUR_S = 3600


def opened(disk: FaultyDisk, clock: ManualClock | None = None) -> quivermq.Connection:
    clock = clock or ManualClock()
    settings = Settings(engine=EngineSettings(free_bytes_min=0))
    return quivermq.open(DATA, settings, disk=disk, clock=clock, scheduler=ManualScheduler(clock))


def frame_of(sequence: int, *values: bytes) -> bytes:
    return bytes(encode(list(values), timestamp=1, producer=Producer(9, 0, sequence)))


def test_a_roll_that_is_refused_does_not_fence_the_log() -> None:
    """Too many open files when a segment is full: the log took nothing more until it was opened again."""
    disk = FaultyDisk()
    with DataDirectory(DATA, StorageSettings(segment_messages=1), disk=disk) as directory:
        log = directory.log("log")
        assert log.append(b"a") == 0
        for operations in (("create",), ("sync_directory",), ("append", "create", "rename", "remove")):
            # Only while the segment is made: to take it away again has to be made durable, too.
            disk.refuse(*operations, at=range(disk.steps + 1, disk.steps + 6))
            with pytest.raises(DiskRefused):
                log.append(b"refused")
            disk.refuse()
        assert log.append(b"b") == 1
        assert [record.value for record in log.records()] == [b"a", b"b"]


def test_segments_that_could_not_go_do_not_go_out_of_order() -> None:
    """A removal that was refused was forgotten, and the next one left a hole in front of it."""
    disk = FaultyDisk()
    settings = StorageSettings(segment_messages=1, segments_max=1)
    with DataDirectory(DATA, settings, disk=disk) as directory:
        log = directory.log("log")
        for number in range(4):
            log.append(b"%d" % number)
        for operation in ("remove", "sync_directory"):
            disk.refuse(operation)
            with pytest.raises(DiskRefused):
                log.retain()
            disk.refuse()
        log.retain()
        assert log.start == 3
    after = disk.after_power_loss(keep="nothing")
    with DataDirectory(DATA, settings, disk=after) as directory:
        assert [record.value for record in directory.log("log").records()] == [b"3"]


@pytest.mark.fault("full", "engine")
def test_delayed_messages_that_do_not_fit_leave_nothing_behind() -> None:
    """Those of the first bucket stayed when there was no room for those of the second."""
    disk = FaultyDisk()
    with opened(disk) as mq:
        mq.create_topic("t", durability="os")
        queue = mq.queue("t")
        queue.put_many([quivermq.Message(b"x" * 1000, delay=1800) for _ in range(50)])
        queue.put(b"y", delay=30 * HOUR_S)
        before = queue.scheduled()
        disk.fill_after(3000)
        several = [quivermq.Message(b"a", delay=1801), quivermq.Message(b"b" * 5000, delay=30 * HOUR_S)]
        with pytest.raises(DiskFull):
            queue.put_many(several)
        disk.fill_after(None)
        assert queue.scheduled() == before
    with opened(disk) as mq:
        assert mq.queue("t").scheduled() == before


def test_a_producer_goes_on_after_a_full_disk_and_a_restart() -> None:
    """A batch that was not written along was taken for the last one, and the next one refused for good."""
    disk = FaultyDisk()
    with opened(disk) as mq:
        mq.create_topic("t", durability="os")
        queue = mq.queue("t")
        queue.put_frame(frame_of(0, b"a"), partition=0)
        room = 0
        # Room for the frame, and none for the note of it.
        while queue.stats().pending == 1:
            disk.fill_after(room := room + 8)
            try:
                queue.put_frame(frame_of(1, b"b"), partition=0)
            except DiskFull:
                continue
        disk.fill_after(None)
        queue.put_frame(frame_of(2, b"c"), partition=0)
    with opened(disk) as mq:
        assert not mq.queue("t").put_frame(frame_of(3, b"d"), partition=0).duplicate


def test_a_release_whose_intent_is_not_durable_is_not_finished() -> None:
    """After a sync of the delay journal had failed, messages went to their lane and stayed in the store."""
    disk, clock = FaultyDisk(), ManualClock()
    mq = opened(disk, clock)
    mq.create_topic("t", durability="fsync")
    queue = mq.queue("t")
    queue.put(b"first", delay=1)
    clock.advance(2)
    assert queue.pop() is not None
    queue.put(b"delayed", delay=1)
    clock.advance(2)
    disk.fail_sync("*/delayed/journal/*")
    for _ in range(3):
        assert queue.get() is None
    disk.stop()
    with opened(disk.after_power_loss(keep="nothing"), clock) as again:
        clock.advance(60)
        assert [delivery.value for delivery in again.queue("t").get_many(10)] == [b"delayed"]
        assert again.queue("t").get_many(10) == []


def test_a_delay_store_that_fails_does_not_keep_the_lanes_from_being_served() -> None:
    disk, clock = FaultyDisk(), ManualClock()
    mq = opened(disk, clock)
    mq.create_topic("t", durability="fsync")
    queue = mq.queue("t")
    queue.put(b"delayed", delay=1)
    queue.put(b"now")
    clock.advance(2)
    disk.fail_sync("*/delayed/journal/*")
    assert [delivery.value for delivery in queue.get_many(10)] == [b"now"]
    [problem] = engine_of(mq).problems()
    assert "delayed messages do not come" in problem.message
    disk.stop()


def test_a_damaged_delay_store_costs_only_what_is_delayed() -> None:
    """The whole topic could not be opened for a flipped bit in one delayed message."""
    disk = FaultyDisk()
    with opened(disk) as mq:
        mq.queue("t").put(b"now")
        mq.queue("t").put(b"delayed", delay=HOUR_S)
    [bucket] = [p for p in disk.files() if p.match("delayed/*-*/*.log")]
    disk.flip(bucket, 100)
    with opened(disk) as mq:
        assert [record.value for record in mq.queue("t").read()] == [b"now"]
        assert mq.queue("t").put(b"more").offset == 1
        for ask in (mq.queue("t").scheduled, lambda: mq.queue("t").put(b"x", delay=1)):
            with pytest.raises(Corruption):
                ask()
        assert mq.stats().topics["t"].delayed == 0
    repair(DATA, disk=disk)
    with opened(disk) as mq:
        assert mq.queue("t").scheduled() == []


def test_a_damaged_lane_costs_only_itself() -> None:
    """Ids are looked for in the lanes at opening: one that is damaged kept the whole topic from opening."""
    disk = FaultyDisk()
    with opened(disk) as mq:
        mq.create_topic("t", partitions=2, dedup_window_ms=10**9)
        for number in range(4):
            mq.queue("t").put(b"%d" % number, dedup_id=f"id {number}", partition=number % 2)
    disk.flip(DATA / "topics/t/p0/normal" / f"{0:020d}.log", 100)
    with opened(disk) as mq:
        queue = mq.queue("t")
        assert [record.value for record in queue.read(1)] == [b"1", b"3"]
        assert queue.put(b"3", dedup_id="id 3").duplicate
        with pytest.raises(Corruption) as caught:
            queue.read(0)
        assert caught.value.offsets == (0, 1)
    repair(DATA, disk=disk)
    with opened(disk) as mq:
        # What lies behind the damage is known again.
        assert mq.queue("t").put(b"2", dedup_id="id 2").duplicate
        assert [record.value for record in mq.queue("t").read(0)] == [b"2"]


def test_a_journal_that_lost_its_end_is_not_believed() -> None:
    """A group began anew from the first message, and nobody was told."""
    disk = FaultyDisk()
    with opened(disk) as mq:
        mq.queue("t").put_many([b"a", b"b", b"c"])
        mq.queue("t").ack(mq.queue("t").get_many(2))
    journal = DATA / "groups/default/t/p0" / f"{0:020d}.log"
    disk.chop(journal, len(disk.files()[journal]) - 30)
    with opened(disk) as mq:
        with pytest.raises(Corruption, match="shorter than it was when last synced"):
            mq.queue("t").get()
        assert len(mq.queue("t").read()) == 3
        assert mq.queue("t", group="other").get() is not None
    repair(DATA, disk=disk)
    with opened(disk) as mq:
        assert mq.queue("t").get() is not None


def test_ids_are_known_again_when_their_files_are_gone() -> None:
    disk = FaultyDisk()
    with opened(disk) as mq:
        mq.create_topic("t", dedup_window_ms=10**9)
        mq.queue("t").put(b"a", dedup_id="a")
    seen = [path for path in disk.files() if path.parent.name == "seen"]
    for path in seen:
        disk.remove(path)
    disk.remove_directory(seen[0].parent)
    with opened(disk) as mq:
        assert mq.queue("t").put(b"a", dedup_id="a").duplicate


def test_a_dead_letter_that_is_not_durable_is_not_sent_back() -> None:
    """After a power loss it was in the topic twice: it had never left it, and was sent back to it."""
    disk = FaultyDisk()
    mq = opened(disk)
    mq.create_topic("t", durability="fsync")
    queue = mq.queue("t")
    queue.put(b"healthy")
    queue.reject(queue.get_many(1))
    queue.put(b"a")
    held = queue.get_many(1)
    disk.fail_sync("*/t.dlq/p0/normal/*")
    with pytest.raises(StorageFailed):
        queue.reject(held)
    with pytest.raises(StorageFailed):
        queue.redrive(ids=[letter.id for letter in queue.dead_letters() if letter.value == b"a"])
    disk.stop()
    with opened(disk.after_power_loss(keep="nothing")) as again:
        assert [record.value for record in again.queue("t").read()] == [b"healthy", b"a"]


HOLDER = """
import sys, quivermq
with quivermq.open(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_the_lock_holds_though_its_file_is_gone(tmp_path: Path) -> None:
    """Who took the file away could open the directory a second time."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        (tmp_path / "LOCK").unlink()
        for _ in range(2):
            with pytest.raises(DirectoryLocked):
                quivermq.open(tmp_path)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        quivermq.open(tmp_path).close()


def test_two_who_wait_for_what_is_due_now_are_both_served(tmp_path: Path) -> None:
    """A timer of uvloop that goes off at once does not know when: the second receive was a 500."""

    class DueNow:
        groups = (("topic", "group"),)

        def until_next_event(self) -> float:
            return 0.0

    async def wait_twice(polls: Polls) -> None:
        for _ in range(2):
            polls._expect(DueNow())  # type: ignore[arg-type]

    with serving(tmp_path) as served:

        async def run() -> None:
            await wait_twice(served.app.broker.part(Polls))

        asyncio.run_coroutine_threadsafe(run(), served.loop).result(10)
        assert isinstance(served.loop, uvloop.Loop)
