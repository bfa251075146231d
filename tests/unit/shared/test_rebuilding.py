"""Chunks and checkpoints become files again, or are refused where they do not fit."""

from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk

from quivermq.errors import DamagedChunk
from quivermq.shared.checkpoint import Checkpoint, Part, StoredFile
from quivermq.shared.chunk import ChunkHead, Kind, Mutation, encode_chunk
from quivermq.shared.rebuilding import Rebuilding

ROOT = Path("/data")
CREATE_A = Mutation(Kind.CREATE, "a")


def rebuilding() -> tuple[Rebuilding, FaultyDisk]:
    disk = FaultyDisk()
    disk.make_directory(ROOT)
    return Rebuilding(disk, ROOT), disk


def apply(target: Rebuilding, *mutations: Mutation, epoch: int = 1, is_claim: bool = False) -> bytes:
    chunk = encode_chunk(ChunkHead(target.number, epoch, target.chain, is_claim), mutations)
    target.apply(f"chunk {target.number}", chunk)
    return chunk


def test_every_kind_of_mutation_is_done_in_order() -> None:
    target, disk = rebuilding()
    apply(target, is_claim=True)
    apply(
        target,
        Mutation(Kind.MAKE_DIRECTORY, "t"),
        Mutation(Kind.MAKE_DIRECTORY, "t/empty"),
        Mutation(Kind.CREATE, "t/a"),
        Mutation(Kind.APPEND, "t/a", 0, data=b"0123456789"),
        Mutation(Kind.REWRITE, "t/a", 2, data=b"23"),
    )
    apply(
        target,
        Mutation(Kind.TRUNCATE, "t/a", 6),
        Mutation(Kind.APPEND, "t/a", 6, data=b"!"),
        Mutation(Kind.CREATE, "t/b", 1),
        Mutation(Kind.APPEND, "t/b", 0, data=b"old"),
        Mutation(Kind.RENAME, "t/a", target="t/b"),
        Mutation(Kind.CREATE, "t/c"),
        Mutation(Kind.REMOVE, "t/c"),
        Mutation(Kind.REMOVE_DIRECTORY, "t/empty"),
    )
    target.close()
    assert disk.files() == {ROOT / "t/b": b"012345!"}
    assert disk.names(ROOT / "t") == ["b"]
    assert (target.number, target.claims, target.epoch) == (3, [0], 1)


def test_more_files_than_are_kept_open() -> None:
    target, disk = rebuilding()
    apply(target, *(Mutation(Kind.CREATE, f"{n}") for n in range(200)))
    apply(target, *(Mutation(Kind.APPEND, f"{n}", 0, data=b"%d" % n) for n in range(200)))
    assert len(target._open) == 64
    target.close()
    assert disk.files() == {ROOT / f"{n}": b"%d" % n for n in range(200)}


@pytest.mark.parametrize(
    ("mutation", "reason"),
    [
        (Mutation(Kind.APPEND, "a", 1, data=b"x"), "a has 0 bytes, and 1 comes next"),
        (Mutation(Kind.APPEND, "b", 0, data=b"x"), "there is no b"),
        (Mutation(Kind.REWRITE, "a", 0, data=b"x"), "behind the end of a"),
        (Mutation(Kind.TRUNCATE, "a", 1), "more bytes than it has"),
        (Mutation(Kind.RENAME, "b", target="c"), "there is no b"),
        (Mutation(Kind.RENAME, "a", target="no/c"), "a directory that is not there"),
        (Mutation(Kind.REMOVE, "b"), "there is no b"),
        (Mutation(Kind.REMOVE, "d"), "d is a directory"),
        (Mutation(Kind.CREATE, "d"), "d is a directory"),
        (Mutation(Kind.CREATE, "no/x"), "a directory that is not there"),
        (Mutation(Kind.REMOVE_DIRECTORY, "a"), "no empty directory"),
        (Mutation(Kind.REMOVE_DIRECTORY, "d"), "no empty directory"),
        (Mutation(Kind.MAKE_DIRECTORY, "no/x"), "a directory that is not there"),
    ],
)
def test_what_does_not_fit_is_refused(mutation: Mutation, reason: str) -> None:
    target, _ = rebuilding()
    apply(target, CREATE_A, Mutation(Kind.MAKE_DIRECTORY, "d"), Mutation(Kind.CREATE, "d/x"))
    with pytest.raises(DamagedChunk, match=f"chunk 1 is damaged: .*{reason}"):
        apply(target, mutation)


def test_a_chunk_of_another_number_is_refused() -> None:
    target, _ = rebuilding()
    first = apply(target, CREATE_A)
    with pytest.raises(DamagedChunk, match="says that it is chunk 0, and 1 comes next"):
        target.apply("chunk 1", first)


def test_a_chunk_of_another_history_is_refused() -> None:
    target, other = rebuilding()[0], rebuilding()[0]
    apply(target, CREATE_A)
    apply(other, CREATE_A)
    with pytest.raises(DamagedChunk, match="another history"):
        target.apply("chunk 1", apply(other))


def test_an_owner_does_not_come_back() -> None:
    target, _ = rebuilding()
    apply(target, epoch=2)
    with pytest.raises(DamagedChunk, match="an owner of epoch 2 was there before its epoch 1"):
        apply(target, epoch=1)


def checkpoint(*files: StoredFile) -> Checkpoint:
    return Checkpoint(5, bytes(32), (0, 3), ("d",), files)


def test_a_checkpoint_is_loaded_and_gone_on_from() -> None:
    target, disk = rebuilding()
    part = Part("file/1", 3, 0x364B3FB7)  # The CRC32C of "abc".
    target.load(
        checkpoint(StoredFile("a", False, (part,), b"de"), StoredFile("d/b", True, (), b"")),
        [(part, b"abc")],
    )
    apply(target, Mutation(Kind.APPEND, "a", 5, data=b"f"))
    target.close()
    assert disk.files() == {ROOT / "a": b"abcdef", ROOT / "d/b": b""}
    assert (target.number, target.claims) == (6, [0, 3])
    assert target.tree.files["a"].parts == (part,)


@pytest.mark.parametrize("data", [b"abd", b"ab", b"abcd"])
def test_a_part_that_is_not_what_it_was_is_refused(data: bytes) -> None:
    target, _ = rebuilding()
    part = Part("file/1", 3, 0x364B3FB7)
    with pytest.raises(DamagedChunk, match="file/1 is damaged: it is not what its checkpoint says"):
        target.load(checkpoint(StoredFile("a", False, (part,), b"")), [(part, data)])


def test_a_part_that_is_missing_is_refused() -> None:
    target, _ = rebuilding()
    with pytest.raises(DamagedChunk, match="a part of a was not read"):
        target.load(checkpoint(StoredFile("a", False, (Part("file/1", 3, 0),), b"")), [])
