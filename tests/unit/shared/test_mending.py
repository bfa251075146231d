"""A disk that cannot be opened is mended: what can be read is kept, the rest is set aside and told."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.shared import LIMITS, at_step, files_of, open_disk, opened, write

from quivermq.errors import DamagedChunk, NotOwner
from quivermq.shared import SharedDisk
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, Stopped, StoreFault
from quivermq.shared.mending import LostChunk, LostPart, Mending, mend
from quivermq.shared.naming import numbered
from quivermq.shared.survey import survey

SMALL = replace(LIMITS, part_bytes_min=8, part_bytes_max=64)


def put(disk: SharedDisk, *names: str) -> None:
    """Each in a chunk of its own."""
    for name in names:
        write(disk, name, name.encode() * 10)
        disk.sync_directory(disk.root)


def files(*names: str) -> dict[str, bytes]:
    return {name: name.encode() * 10 for name in names}


def trimmed(disk: SharedDisk) -> None:
    assert disk.checkpoint()
    put(disk, "more")
    disk.clean()


def mended(store: MemoryStore) -> Mending:
    return mend(ConditionalChunks(store.beside()), limits=SMALL, times=lambda data: [len(data)])


def check(store: MemoryStore, expected: dict[str, bytes]) -> None:
    """It opens, with what is expected, has no damage any more, and is as good as any other disk."""
    assert [each for each in survey(ConditionalChunks(store.beside())) if each.kind == "damage"] == []
    for name in ("later", "latest"):
        with opened(store.beside(), SMALL) as disk:
            assert files_of(disk) == expected
            put(disk, name)
            expected = {**expected, **files(name)}
            trimmed(disk)
            expected |= files("more")
    assert [each for each in survey(ConditionalChunks(store.beside())) if each.kind == "damage"] == []


def spoil(store: MemoryStore, name: str) -> bytes:
    data = store.objects[name]
    store.objects[name] = data[:-1] + bytes((data[-1] ^ 1,))
    return store.objects[name]


def only(store: MemoryStore, kind: str) -> str:
    (name,) = [name for name in store.objects if name.startswith(kind)]
    return name


def test_what_comes_before_a_damaged_chunk_is_kept() -> None:
    store = MemoryStore()
    disk = open_disk(store, SMALL)
    put(disk, "a", "b", "c")
    second, third = spoil(store, numbered(2)), store.objects[numbered(3)]
    done = mended(store)
    assert done.checkpoint == 5
    aside = [each.side_object for each in done.chunks]
    sizes = len(second), len(third)
    assert done.chunks == [
        LostChunk(2, sizes[0], "its checksum does not fit", sizes[0], sizes[0], aside[0]),
        LostChunk(3, sizes[1], "it stands behind chunk 2", sizes[1], sizes[1], aside[1]),
    ]
    assert (done.parts, done.side_objects) == ([], [])
    assert [store.objects[name or ""] for name in aside] == [second, third]
    assert [(name or "").split("/", 2)[2] for name in aside] == [numbered(2), numbered(3)]
    # Whoever was the owner is told, and can do no harm.
    with pytest.raises(NotOwner):
        put(disk, "x")
    disk.abandon()
    check(store, files("a"))
    assert all(name in store.objects for name in aside)


def test_a_chunk_that_is_gone() -> None:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a", "b", "c")
    del store.objects[numbered(2)]
    done = mended(store)
    assert [(each.number, each.size, each.side_object is None) for each in done.chunks] == [
        (2, 0, True),
        (3, len(store.objects[numbered(3)]), False),
    ]
    assert done.chunks[0].reason == "it is not there"
    check(store, files("a"))


def test_a_writer_that_was_stopped_for_long_finds_its_name_taken() -> None:
    store = MemoryStore()
    first = open_disk(store, SMALL)
    put(first, "a")
    with opened(store.beside(), SMALL) as disk:
        # Its claim has the name that the first one would put its next chunk under.
        put(disk, "b")
    spoil(store, numbered(2))
    mended(store)
    check(store, files("a"))
    with pytest.raises(NotOwner):
        put(first, "c")
    first.abandon()


def test_claims_among_what_is_lost_stay() -> None:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a", "b")
    with opened(store, SMALL) as disk:
        put(disk, "c")
        claim = disk.epoch - 1
    whole = store.objects[numbered(claim)]
    spoil(store, numbered(2))
    assert [each.number for each in mended(store).chunks] == [2, 4]
    check(store, files("a"))
    assert store.objects[numbered(claim)] == whole


def test_a_damaged_claim_behind_a_checkpoint_is_made_anew() -> None:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a")
        trimmed(disk)
    bad = spoil(store, numbered(0))
    done = mended(store)
    assert (done.chunks, done.parts) == ([], [])
    (aside,) = done.side_objects
    assert store.objects[aside] == bad
    check(store, files("a", "more"))


def test_a_damaged_part_leaves_its_bytes_as_they_are() -> None:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a", "b")
        disk.make_directory(disk.root / "d")
        trimmed(disk)
    first, second = sorted(
        (name for name in store.objects if name.startswith("file/")), key=lambda name: store.objects[name]
    )
    bad = spoil(store, first)
    del store.objects[second]
    done = mended(store)
    assert done.chunks == []
    assert done.parts == [
        LostPart("a", 0, 10, "it is not what its checkpoint says of it", done.parts[0].side_object),
        LostPart("b", 0, 10, "it is not there", None),
    ]
    assert store.objects[done.parts[0].side_object or ""] == bad
    check(store, {"a": bad, "b": bytes(10), "d/": b"", **files("more")})


def test_parts_before_a_damaged_one_are_not_stored_again() -> None:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        write(disk, "log", bytes(range(64)) + bytes(64) + bytes(range(64, 100)))
        trimmed(disk)
        before = {name for name in store.objects if name.startswith("file/")}
    (middle,) = [name for name in before if store.objects[name] == bytes(64)]
    del store.objects[middle]
    assert mended(store).parts == [LostPart("log", 64, 128, "it is not there", None)]
    kept = [name for name in before if name in store.objects and store.objects[name] == bytes(range(64))]
    with opened(store, SMALL) as disk:
        assert files_of(disk)["log"] == bytes(range(64)) + bytes(64) + bytes(range(64, 100))
        trimmed(disk)
    assert all(name in store.objects for name in kept)


def test_an_older_checkpoint_does_while_its_chunks_are_there() -> None:
    for damage in (_no_checkpoint, _no_part):
        store = MemoryStore()
        with opened(store, SMALL) as disk:
            put(disk, "a")
            trimmed(disk)
            put(disk, "b")
            # The process ends before anything is trimmed.
            assert disk.checkpoint()
        damage(store)
        done = mended(store)
        assert (done.chunks, done.parts) == ([], [])
        check(store, files("a", "b", "more"))


def _no_checkpoint(store: MemoryStore) -> None:
    spoil(store, max(name for name in store.objects if name.startswith("checkpoint/")))


def _no_part(store: MemoryStore) -> None:
    del store.objects[next(name for name in store.objects if store.objects[name] == b"b" * 10)]


def test_where_nothing_is_left_to_go_on_from_nobody_is_fenced() -> None:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a")
        trimmed(disk)
        spoil(store, only(store, "checkpoint/"))
        before = dict(store.objects)
        with pytest.raises(DamagedChunk, match="restore a backup"):
            mended(store)
        assert store.objects == before
        put(disk, "b")


def _damaged() -> MemoryStore:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a", "b")
        trimmed(disk)
        put(disk, "c", "d", "e")
        lost = disk.epoch
    number = max(int(name[6:]) for name in store.objects if name.startswith("chunk/"))
    assert lost
    spoil(store, numbered(number - 1))
    spoil(store, next(name for name in store.objects if store.objects[name] == b"a" * 10))
    return store


@pytest.mark.parametrize("fault", [StoreFault.STOP_BEFORE, StoreFault.STOP_AFTER])
def test_a_crash_at_any_step_is_mended_by_mending_again(fault: StoreFault) -> None:
    probe = _damaged().beside()
    mend(ConditionalChunks(probe), limits=SMALL)
    expected = {**files("b", "c", "more"), "a": b"aaaaaaaaa`"}
    for number in range(1, len(probe.steps) + 1):
        store = _damaged()
        with pytest.raises(Stopped):
            mend(ConditionalChunks(store.beside(at_step(number, fault))), limits=SMALL)
        mended(store)
        check(store, expected)


def test_times_are_asked_of_what_is_lost_alone() -> None:
    asked: list[bytes] = []
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a", "b")
    spoil(store, numbered(2))

    def times(data: bytes) -> list[int]:
        asked.append(data)
        return []

    note: Callable[[bytes], list[int]] = times
    done = mend(ConditionalChunks(store.beside()), limits=SMALL, times=note)
    assert len(asked) == 1
    assert (done.chunks[0].first_us, done.chunks[0].last_us) == (None, None)
