"""Every object of a disk in a store is looked at, and what is wrong with it is told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from support.shared import LIMITS, opened, write

from quivermq.errors import StoreUnreachable, UnsupportedChunk
from quivermq.model.stats import LogFinding
from quivermq.shared import SharedDisk
from quivermq.shared.chunk import ChunkHead, decode_chunk, encode_chunk
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, StoreStep
from quivermq.shared.naming import numbered
from quivermq.shared.survey import needed_bytes, survey

SMALL = replace(LIMITS, part_bytes_min=8, part_bytes_max=64)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def disk(store: MemoryStore) -> Iterator[SharedDisk]:
    with opened(store, SMALL) as disk:
        yield disk


def put(disk: SharedDisk, *names: str) -> None:
    """Each in a chunk of its own."""
    for name in names:
        write(disk, name, name.encode() * 10)
        disk.sync_directory(disk.root)


def trimmed(disk: SharedDisk) -> None:
    assert disk.checkpoint()
    put(disk, "more")
    disk.clean()


def look(store: MemoryStore) -> list[LogFinding]:
    return survey(ConditionalChunks(store.beside()))


def told(store: MemoryStore) -> list[tuple[str, str, int, str]]:
    return [(each.kind, str(each.path), each.end, each.reason) for each in look(store)]


def spoil(store: MemoryStore, name: str) -> int:
    data = store.objects[name]
    store.objects[name] = data[:-1] + bytes((data[-1] ^ 1,))
    return len(data)


def only(store: MemoryStore, kind: str) -> str:
    (name,) = [name for name in store.objects if name.startswith(kind)]
    return name


def test_a_sound_disk_has_no_findings(store: MemoryStore, disk: SharedDisk) -> None:
    assert look(store) == []
    put(disk, "a", "b")
    assert look(store) == []
    trimmed(disk)
    before = dict(store.objects)
    bytes_seen: list[int] = []
    chunks = ConditionalChunks(store.beside())
    assert survey(chunks, bytes_seen.append) == []
    assert sum(bytes_seen) == needed_bytes(chunks) == sum(map(len, before.values()))
    # Nor is anything changed, and the owner is who it was.
    assert store.objects == before
    put(disk, "c")


def test_a_damaged_chunk_and_what_it_makes_useless(store: MemoryStore, disk: SharedDisk) -> None:
    put(disk, "a", "b", "c")
    size = spoil(store, numbered(2))
    reason = "its checksum does not fit; 1 chunks behind it cannot be used"
    assert told(store) == [("damage", numbered(2), size, reason)]
    assert look(store)[0].offsets == (0, None)


def test_missing_chunks(store: MemoryStore, disk: SharedDisk) -> None:
    put(disk, "a", "b", "c", "d")
    del store.objects[numbered(2)], store.objects[numbered(3)]
    reason = "it is not there, nor are 1 more, but later ones are; 1 chunks behind it cannot be used"
    assert told(store) == [("damage", numbered(2), 0, reason)]


def test_a_chunk_of_another_history(store: MemoryStore, disk: SharedDisk) -> None:
    put(disk, "a")
    head = decode_chunk("last", store.objects[numbered(1)]).head
    store.objects[numbered(2)] = encode_chunk(ChunkHead(2, head.epoch, bytes(32)), ())
    store.objects[numbered(3)] = encode_chunk(ChunkHead(4, head.epoch, bytes(32)), ())
    found = [(kind, name, reason.partition(";")[0]) for kind, name, _, reason in told(store)]
    assert found == [
        ("damage", numbered(2), "it stands behind another history"),
        ("damage", numbered(3), "it says that it is chunk 4, not 3"),
    ]


def test_an_owner_that_came_too_late(store: MemoryStore, disk: SharedDisk) -> None:
    from quivermq.shared.chunk import chain_of

    put(disk, "a")
    last = store.objects[numbered(1)]
    store.objects[numbered(2)] = encode_chunk(ChunkHead(2, 0, chain_of(last)), ())
    assert [each.reason for each in look(store)] == ["an owner of epoch 1 was there before its epoch 0"]


def test_a_damaged_checkpoint(store: MemoryStore, disk: SharedDisk) -> None:
    put(disk, "a")
    trimmed(disk)
    name = only(store, "checkpoint/")
    size = spoil(store, name)
    # What it names is not known, so no file is told to have no name.
    assert told(store) == [("damage", name, size, "its checksum does not fit")]


def test_a_damaged_part_and_one_that_is_gone(store: MemoryStore, disk: SharedDisk) -> None:
    put(disk, "a", "b")
    trimmed(disk)
    first, second = sorted(name for name in store.objects if name.startswith("file/"))
    size = spoil(store, first)
    del store.objects[second]
    found = {name: (end, reason) for _, name, end, reason in told(store)}
    assert {end for end, _ in found.values()} == {size, 0}
    assert found[first][1].startswith("it is not what its checkpoint says of it; ")
    assert found[second][1].startswith("it is not there; ")
    assert {reason[-15:] for _, reason in found.values()} == {"a has its bytes", "b has its bytes"}


def test_a_claim_has_to_stay(store: MemoryStore, disk: SharedDisk) -> None:
    put(disk, "a")
    trimmed(disk)
    assert told(store) == []
    size = spoil(store, numbered(0))
    assert told(store) == [("damage", numbered(0), size, "its checksum does not fit")]


def test_what_nothing_names_is_no_damage(store: MemoryStore, disk: SharedDisk) -> None:
    put(disk, "a")
    trimmed(disk)
    store.objects["file/00000000000000000001-abc"] = b"12345"
    store.objects["quarantine/x/chunk/7"] = b"123"
    store.objects["archive/whatever"] = b"1"
    assert told(store) == [
        (
            "orphan",
            "file/00000000000000000001-abc",
            5,
            "nothing names it: it will be taken away, or named yet",
        ),
        ("gap", "quarantine/x/chunk/7", 3, "set aside by a repair"),
    ]


def test_a_later_release_is_not_damage(store: MemoryStore, disk: SharedDisk) -> None:
    body = bytearray(store.objects[numbered(0)][8:])
    body[0] = 9
    store.objects[numbered(0)] = b"QVC1" + crc32c(body).to_bytes(4, "little") + body
    with pytest.raises(UnsupportedChunk):
        look(store)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_an_owner_who_goes_on_damages_nothing(every: int) -> None:
    store = MemoryStore()
    steps = turns = 0
    with opened(store, SMALL) as disk:
        put(disk, "a", "b")

        def work(_: StoreStep) -> None:
            nonlocal steps, turns
            steps += 1
            if steps % every == 0 and turns < 10:
                turns += 1
                put(disk, f"n{turns}")
                if turns % 2:
                    trimmed(disk)

        found = survey(ConditionalChunks(MemoryStore(store.objects, fault=work)))
        assert turns == 10
        assert [each for each in found if each.kind != "orphan"] == []


def test_an_owner_who_never_rests_is_named() -> None:
    store = MemoryStore()
    with opened(store, SMALL) as disk:
        put(disk, "a")
        inside = False

        def work(step: StoreStep) -> None:
            nonlocal inside
            if step.operation == "get" and not inside:
                inside = True
                trimmed(disk)
                inside = False

        with pytest.raises(StoreUnreachable, match="faster than one can look"):
            survey(ConditionalChunks(MemoryStore(store.objects, fault=work)))


def test_paths_are_names_of_objects(store: MemoryStore, disk: SharedDisk) -> None:
    spoil(store, numbered(0))
    assert look(store)[0].path == Path(numbered(0))
