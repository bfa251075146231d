"""Opening a shared disk: the store alone says what is in it."""

from dataclasses import replace

import pytest
from crc32c import crc32c
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.shared import (
    CACHE,
    IMPATIENT,
    LIMITS,
    TINY,
    at_each,
    at_step,
    files_of,
    open_disk,
    opened,
    settle,
    write,
)

import quivermq
from quivermq.disk import replace_file
from quivermq.engine import open_engine
from quivermq.errors import DamagedChunk, DirectoryLocked, NotOwner, StoreUnreachable, UnsupportedChunk
from quivermq.shared import SharedDisk, open_shared
from quivermq.shared.chunk import decode_chunk
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, StoreFault


def filled() -> MemoryStore:
    store = MemoryStore()
    with opened(store) as disk:
        write(disk, "a", b"x")
        disk.checkpoint()
        write(disk, "b", b"y")
        disk.sync_directory(disk.root)
    return store


def test_a_cache_that_is_ahead_of_the_store_is_made_anew() -> None:
    store, cache = MemoryStore(), FaultyDisk()
    disk = open_disk(store, disk=cache)
    write(disk, "a", b"committed")
    disk.sync_directory(disk.root)
    disk.open(disk.root / "a", writable=True).append([b", and ahead"])
    disk.abandon()
    after = cache.after_kill()
    replace_file(after, CACHE / "data/stray", b"whatever")
    with opened(store) as disk:
        assert files_of(disk) == {"a": b"committed"}


def test_a_cache_is_of_one_process_at_a_time() -> None:
    store, cache = MemoryStore(), FaultyDisk()
    disk = open_disk(store, disk=cache)
    with pytest.raises(DirectoryLocked):
        open_disk(store, disk=cache)
    # Nor was anything claimed.
    write(disk, "a", b"x")
    disk.close()
    open_disk(store, disk=cache).close()


@pytest.mark.parametrize(
    "fault", [StoreFault.FAIL, StoreFault.LOSE_ANSWER, StoreFault.DOUBLE, StoreFault.LATE]
)
@pytest.mark.parametrize("operation", ["put_if_absent", "get", "names"])
def test_it_waits_for_a_store_that_stumbles(operation: str, fault: StoreFault) -> None:
    store = filled().beside(fault=at_each(operation, fault))
    with opened(store) as disk:
        assert files_of(disk) == {"a": b"x", "b": b"y"}
        store.deliver_late()
        write(disk, "c", b"z")
        disk.sync_directory(disk.root)
    # However often it was asked for, there is one claim more.
    chunks = [decode_chunk(name, data) for name, data in store.objects.items() if name.startswith("chunk/")]
    assert sum(chunk.head.is_claim for chunk in chunks) == 2


def test_a_store_that_cannot_be_reached_is_an_error_in_the_end() -> None:
    cache = FaultyDisk()
    with pytest.raises(StoreUnreachable):
        open_disk(MemoryStore(fault=lambda _: StoreFault.FAIL), IMPATIENT, disk=cache)
    open_disk(MemoryStore(), disk=cache).close()


def test_somebody_else_may_claim_it_meanwhile() -> None:
    store = filled()

    class Late(ConditionalChunks):
        """Has claimed, and reads when it is too late."""

        def claim(self) -> int:
            epoch = super().claim()
            ConditionalChunks(store).claim()
            return epoch

    with pytest.raises(NotOwner, match="meanwhile"):
        open_shared(Late(store.beside()), CACHE, disk=FaultyDisk(), limits=LIMITS)


@pytest.mark.parametrize("kind", ["chunk/", "checkpoint/"])
def test_damage_is_named_and_nothing_is_opened(kind: str) -> None:
    store = filled()
    name = max(name for name in store.objects if name.startswith(kind))
    whole = store.objects[name]
    cache = FaultyDisk()
    store.objects[name] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(DamagedChunk, match=kind[:-1]):
        open_disk(store.beside(), disk=cache)
    later = b"\x07" + whole[9:]
    store.objects[name] = whole[:4] + crc32c(later).to_bytes(4, "little") + later
    with pytest.raises(UnsupportedChunk, match="version 7"):
        open_disk(store.beside(), disk=cache)


@pytest.mark.parametrize("fault", [StoreFault.STOP_BEFORE, StoreFault.STOP_AFTER])
def test_a_process_that_ends_while_it_opens_harms_nobody(fault: StoreFault) -> None:
    step = 0
    while True:
        step += 1
        store = filled()
        try:
            with opened(store.beside(fault=at_step(step, fault))):
                break
        except RuntimeError:
            with opened(store.beside()) as disk:
                assert files_of(disk) == {"a": b"x", "b": b"y"}
    assert step > 8


def requests_to_open(segments: int) -> tuple[list[str], list[bytes]]:
    """What is asked of the store to open a topic of so many segments and use both ends; and its values."""
    store, clock = MemoryStore(), ManualClock()
    limits = replace(TINY, part_bytes_min=1)
    with opened(store, limits) as disk:
        with queue_at(disk, clock) as mq:
            mq.create_topic("orders", segment_messages=1)
            for n in range(segments):
                mq.queue("orders").put(b"%d" % n)
                clock.advance(600)
        settle(disk)
        disk.sync_directory(disk.root)
        disk.clean()
    other = store.beside()
    with opened(other, limits) as disk, queue_at(disk, clock) as mq:
        queue = mq.queue("orders")
        queue.put(b"more")
        [first] = queue.read(limit=1)
        assert first.value == b"0"
        asked = [step.operation for step in other.steps if not step.operation.startswith("put")]
        values = [record.value for record in queue.read(limit=1000)]
    return asked, values


def queue_at(disk: SharedDisk, clock: ManualClock) -> quivermq.Connection:
    engine = open_engine(disk.root, disk=disk, clock=clock, scheduler=ManualScheduler(clock))
    return quivermq.Connection(engine)


def test_a_topic_of_many_segments_opens_as_fast_as_one_of_few() -> None:
    few, _ = requests_to_open(10)
    many, values = requests_to_open(150)
    assert values == [*(b"%d" % n for n in range(150)), b"more"]
    assert len(many) == len(few) < 40
