"""Opening a shared disk: the store alone says what is in it."""

import pytest
from support.faulty_disk import FaultyDisk
from support.shared import CACHE, IMPATIENT, LIMITS, at_each, at_step, files_of, open_disk, opened, write

from quivermq.disk import replace_file
from quivermq.errors import DamagedChunk, DirectoryLocked, NotOwner, StoreUnreachable, UnsupportedChunk
from quivermq.shared import open_shared
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
    store.objects[name] = whole[:8] + b"\x07" + whole[9:]
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
