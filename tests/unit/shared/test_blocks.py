"""Ranges of objects are fetched in blocks: few requests for a walk, little for a look-up, none twice."""

import threading
from dataclasses import replace

import pytest
from crc32c import crc32c
from support.manual_clock import ManualClock
from support.shared import LIMITS, at_each

from quivermq.errors import DamagedChunk, StoreUnreachable
from quivermq.shared import SharedLimits
from quivermq.shared.blocks import Blocks
from quivermq.shared.checkpoint import Part
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep

DATA = bytes(n * 7 % 251 for n in range(1005))
TEN = replace(LIMITS, block_bytes=10, read_ahead_bytes=80, read_cache_bytes=400)


def part(store: MemoryStore, data: bytes = DATA, name: str = "file/a") -> Part:
    store.objects[name] = data
    return Part(name, len(data), crc32c(data))


def blocks(store: MemoryStore, limits: SharedLimits = TEN) -> Blocks:
    return Blocks(ConditionalChunks(store), limits, ManualClock())


def test_every_range_has_the_right_bytes() -> None:
    store = MemoryStore()
    whole = part(store)
    for limits in (TEN, replace(TEN, read_cache_bytes=0), replace(TEN, block_bytes=1)):
        reader = blocks(store, limits)
        for start in range(0, len(DATA), 13):
            for length in (1, 9, 10, 11, 95, 600):
                end = min(start + length, len(DATA))
                assert reader.read(whole, start, end) == DATA[start:end]


def test_a_look_up_fetches_a_block_and_only_once() -> None:
    store = MemoryStore()
    whole, reader = part(store), blocks(store)
    for _ in range(3):
        assert reader.read(whole, 502, 509) == DATA[502:509]
    assert [step.operation for step in store.steps] == ["get_range"]
    assert reader.held_bytes == 10


def test_a_walk_takes_few_requests() -> None:
    store = MemoryStore()
    whole, reader = part(store), blocks(store)
    walked = b"".join(reader.read(whole, at, min(at + 5, len(DATA))) for at in range(0, len(DATA), 5))
    assert walked == DATA
    # Blocks 1, 1, 2, 4, and then 8 at a time: 101 of them.
    assert len(store.steps) == 4 + 12


def test_a_long_read_is_one_request() -> None:
    store = MemoryStore()
    whole, reader = part(store), blocks(store)
    assert reader.read(whole, 105, 175) == DATA[105:175]
    assert len(store.steps) == 1


def test_memory_is_bounded_and_keeps_what_was_used_last() -> None:
    store = MemoryStore()
    whole = part(store)
    reader = blocks(store, replace(TEN, read_cache_bytes=30, read_ahead_bytes=10))
    for at in (0, 200, 400, 0, 600):
        reader.read(whole, at, at + 1)
        assert reader.held_bytes <= 30
    before = len(store.steps)
    reader.read(whole, 0, 10)
    reader.read(whole, 400, 410)
    assert len(store.steps) == before
    reader.read(whole, 200, 210)
    assert len(store.steps) == before + 1
    reader.forget("file/a")
    assert reader.held_bytes == 0
    reader.read(whole, 200, 210)
    assert len(store.steps) == before + 2


def test_two_who_want_the_same_block_fetch_it_once() -> None:
    store = MemoryStore()
    whole, reader = part(store), blocks(store)
    entered, goes_on = threading.Event(), threading.Event()

    def wait(_: StoreStep) -> None:
        entered.set()
        assert goes_on.wait(5)

    store.fault = wait
    read: list[bytes] = []
    threads = [threading.Thread(target=lambda: read.append(reader.read(whole, 0, 5))) for _ in range(4)]
    threads[0].start()
    assert entered.wait(5)
    for thread in threads[1:]:
        thread.start()
    goes_on.set()
    for thread in threads:
        thread.join()
    assert read == [DATA[:5]] * 4
    assert len(store.steps) == 1


def test_one_who_fails_leaves_the_block_to_the_next() -> None:
    store = MemoryStore()
    whole, reader = part(store), blocks(store, replace(TEN, commit_timeout_s=0))
    store.fault = lambda _: StoreFault.FAIL
    with pytest.raises(StoreUnreachable):
        reader.read(whole, 0, 5)
    store.fault = lambda _: None
    assert reader.read(whole, 0, 5) == DATA[:5]


def test_a_store_that_stumbles_is_asked_again() -> None:
    store = MemoryStore(fault=at_each("get_range", StoreFault.FAIL, times=2))
    whole, reader = part(store), blocks(store)
    assert reader.read(whole, 0, 5) == DATA[:5]
    store.fault = at_each("get", StoreFault.LOSE_ANSWER)
    assert reader.whole(whole) == DATA


def test_what_is_gone_or_changed_is_damaged() -> None:
    store = MemoryStore()
    whole, reader = part(store), blocks(store)
    store.objects["file/a"] = DATA[:1000]
    with pytest.raises(DamagedChunk, match="file/a is damaged: it has 0 of the 5 bytes from 1000 on"):
        reader.read(whole, 1001, 1002)
    with pytest.raises(DamagedChunk, match="it is not what its checkpoint says of it"):
        reader.whole(whole)
    store.objects["file/a"] = DATA[:-1] + b"\1"
    with pytest.raises(DamagedChunk, match="it is not what its checkpoint says of it"):
        reader.whole(whole)
    del store.objects["file/a"]
    with pytest.raises(DamagedChunk, match="it is not there"):
        reader.read(whole, 0, 1)
    with pytest.raises(DamagedChunk, match="it is not there"):
        reader.whole(whole)
