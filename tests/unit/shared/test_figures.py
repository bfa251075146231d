"""What a shared disk tells of itself."""

from dataclasses import replace

import pytest
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.shared import CACHE, TINY, opened, settle, write

from quivermq.errors import NotOwner
from quivermq.shared import SharedDisk, open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.counting import Requests
from quivermq.shared.figures import CacheFigures, CheckpointFigures, CommitCounter, CommitFigures
from quivermq.shared.memory import MemoryStore, StoreStep


def opened_at(store: MemoryStore, clock: ManualClock) -> SharedDisk:
    limits = replace(TINY, garbage_delay_s=60)
    return open_shared(ConditionalChunks(store), CACHE, disk=FaultyDisk(), limits=limits, clock=clock)


def test_commits_and_how_long_they_took() -> None:
    counter = CommitCounter()
    assert counter.figures() == CommitFigures()
    for n in range(100):
        counter.add(10, n / 100)
    assert counter.figures() == CommitFigures(chunks=100, bytes=1000, last_s=0.99, p50_s=0.5, p99_s=0.99)
    for _ in range(1000):
        counter.add(1, 7)
    # What is long ago does not count for times any more.
    assert counter.figures() == CommitFigures(chunks=1100, bytes=2000, last_s=7, p50_s=7, p99_s=7)


def test_a_disk_that_has_done_nothing() -> None:
    store = MemoryStore()
    with opened(store) as disk:
        figures = disk.figures()
        assert (figures.epoch, figures.failure, figures.uncommitted_bytes) == (1, None, 0)
        assert figures.commits == CommitFigures()
        assert figures.checkpoint == CheckpointFigures()
        assert figures.cache == CacheFigures()
        # The claim.
        assert figures.requests["put"].count == 1


def test_what_was_done_is_told() -> None:
    store, clock = MemoryStore(), ManualClock()
    disk = opened_at(store, clock)

    def answer_late(step: StoreStep) -> None:
        if step.name.startswith("chunk/"):
            clock.advance(2)

    store.fault = answer_late
    write(disk, "a", bytes(1000))
    assert disk.figures().uncommitted_bytes > 1000
    disk.sync_directory(disk.root)
    figures = disk.figures()
    chunk = next(data for name, data in store.objects.items() if name.endswith("1"))
    assert figures.uncommitted_bytes == 0
    assert figures.commits == CommitFigures(chunks=1, bytes=len(chunk), last_s=2, p50_s=2, p99_s=2)
    assert figures.cache == CacheFigures(files=1, bytes=1000)
    store.fault = lambda _: None
    settle(disk)
    clock.advance(5)
    figures = disk.figures()
    assert figures.checkpoint == CheckpointFigures(number=4, age_s=5)
    # Two empty ones stay.
    assert figures.cache == CacheFigures(files=2, evicted_files=1, evicted_bytes=1000)
    file = disk.open(disk.root / "a")
    file.read(0, 1)
    file.close()
    figures = disk.figures()
    assert figures.cache.memory_bytes == 1000
    assert figures.requests["range"] == Requests(1, 0, 1000)
    disk.remove(disk.root / "a")
    settle(disk)
    write(disk, "more", b"")
    disk.sync_directory(disk.root)
    disk.clean()
    assert disk.figures().checkpoint.garbage_objects == 1
    clock.advance(61)
    disk.clean()
    assert disk.figures().checkpoint.garbage_objects == 0
    disk.abandon()


def test_the_next_owner_counts_anew() -> None:
    store, clock = MemoryStore(), ManualClock()
    first = opened_at(store, clock)
    write(first, "a", b"x")
    settle(first)
    second = opened_at(store.beside(), clock)
    clock.advance(3)
    figures = second.figures()
    assert figures.epoch > first.epoch
    assert figures.commits == CommitFigures()
    assert figures.checkpoint == CheckpointFigures(number=3, age_s=3)
    write(first, "b", b"late")
    with pytest.raises(NotOwner):
        first.sync_directory(first.root)
    assert first.figures().failure == "not_owner"
    first.abandon()
    second.abandon()
