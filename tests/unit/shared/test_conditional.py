"""Who owns the chunks of a bucket, when conditional puts decide it."""

from dataclasses import dataclass

import pytest
from support.shared import at_each, at_step

from quivermq.errors import DamagedChunk, NotOwner, StoreUnreachable
from quivermq.shared.checkpoint import Checkpoint, encode_checkpoint
from quivermq.shared.chunk import (
    CHAIN_START,
    ChunkHead,
    Kind,
    Mutation,
    chain_of,
    decode_chunk,
    encode_chunk,
)
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.counting import CountingStore
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep
from quivermq.shared.naming import numbered


@dataclass
class Owner:
    """Somebody who has claimed the chunks, and appends to them."""

    chunks: ConditionalChunks
    number: int = 0
    chain: bytes = CHAIN_START

    def append(self) -> bytes:
        chunk = self.next_chunk()
        self.chunks.append(self.number, chunk)
        self.number += 1
        self.chain = chain_of(chunk)
        return chunk

    def next_chunk(self) -> bytes:
        head = ChunkHead(self.number, self.chunks.epoch, self.chain)
        return encode_chunk(head, [Mutation(Kind.REMOVE, "x")])

    def checkpoint(self) -> None:
        self.chunks.put_checkpoint(self.number, encode_checkpoint(Checkpoint(self.number, self.chain)))


def claim(store: MemoryStore) -> Owner:
    chunks = ConditionalChunks(store)
    chunks.claim()
    stored = chunks.checkpoint()
    owner = Owner(chunks, 0 if stored is None else stored.number)
    for number, chunk in chunks.read(owner.number):
        owner.number, owner.chain = number + 1, chain_of(chunk)
    return owner


def numbers(store: MemoryStore) -> list[int]:
    return [int(name.partition("/")[2]) for name in store.names("chunk/")]


def test_the_first_owner_begins_with_its_claim() -> None:
    store = MemoryStore()
    owner = claim(store)
    assert (owner.chunks.epoch, owner.number) == (1, 1)
    owner.append()
    heads = [decode_chunk("chunk", chunk).head for _, chunk in owner.chunks.read(0)]
    assert [(head.number, head.epoch, head.is_claim) for head in heads] == [(0, 1, True), (1, 1, False)]
    assert heads[1].chain == chain_of(store.objects[numbered(0)])


def test_whoever_claims_later_is_the_owner() -> None:
    store = MemoryStore()
    first = claim(store)
    first.append()
    first.chunks.check_owner(first.number)
    second = claim(store.beside())
    with pytest.raises(NotOwner, match="chunk 2"):
        first.chunks.check_owner(first.number)
    assert second.chunks.epoch > first.chunks.epoch
    second.append()
    for _ in range(2):
        with pytest.raises(NotOwner, match="chunk 2"):
            first.append()
    second.append()
    assert numbers(store) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fault", [StoreFault.FAIL, StoreFault.LOSE_ANSWER, StoreFault.LATE])
def test_an_append_without_an_answer_is_repeated_until_it_counts(fault: StoreFault) -> None:
    store = MemoryStore(fault=at_each("put_if_absent", fault))
    owner = claim(store.beside())
    owner.chunks._store = CountingStore(store)
    chunk = owner.next_chunk()
    with pytest.raises(StoreUnreachable):
        owner.chunks.append(owner.number, chunk)
    owner.chunks.append(owner.number, chunk)
    store.deliver_late()
    assert store.objects[numbered(1)] == chunk
    owner.chunks.append(owner.number, chunk)


def test_an_append_that_is_doubled_meets_itself() -> None:
    store = MemoryStore(fault=at_each("put_if_absent", StoreFault.DOUBLE))
    owner = claim(store)
    chunk = owner.append()
    assert store.objects[numbered(1)] == chunk


def test_a_store_that_refuses_what_is_not_there_is_asked_again() -> None:
    store = MemoryStore()
    owner = claim(store)
    chunk = owner.next_chunk()
    put, store.put_if_absent = store.put_if_absent, lambda *_: False  # type: ignore[method-assign]
    with pytest.raises(StoreUnreachable, match="is not there"):
        owner.chunks.append(owner.number, chunk)
    store.put_if_absent = put  # type: ignore[method-assign]
    owner.chunks.append(owner.number, chunk)


def test_a_late_put_of_the_old_owner_changes_nothing() -> None:
    store = MemoryStore()
    first = claim(store)
    slow = store.beside(fault=at_each("put_if_absent", StoreFault.LATE))
    first.chunks._store = CountingStore(slow)
    chunk = first.next_chunk()
    with pytest.raises(StoreUnreachable):
        first.chunks.append(first.number, chunk)
    second = claim(store)
    second.append()
    slow.deliver_late()
    with pytest.raises(NotOwner):
        first.chunks.append(first.number, chunk)
    assert chunk not in store.objects.values()


def test_a_late_put_that_comes_first_is_part_of_the_history() -> None:
    store = MemoryStore()
    first = claim(store)
    chunk = first.next_chunk()
    slow = store.beside(fault=at_each("put_if_absent", StoreFault.LATE))
    first.chunks._store = CountingStore(slow)
    with pytest.raises(StoreUnreachable):
        first.chunks.append(first.number, chunk)
    slow.deliver_late()
    second = claim(store)
    assert dict(second.chunks.read(0))[1] == chunk
    first.chunks.append(first.number, chunk)
    first.chunks._store = CountingStore(store)
    first.number, first.chain = 2, chain_of(chunk)
    with pytest.raises(NotOwner):
        first.append()


def trimmed(store: MemoryStore, *, keep: bool) -> tuple[Owner, Owner]:
    """A first owner, and a second one that has trimmed everything that it may, or more."""
    first = claim(store)
    second = claim(store)
    second.append()
    second.checkpoint()
    second.append()
    second.chunks.trim(second.number - 1, {0, 1} if keep else ())
    return first, second


def test_a_claim_is_kept_for_ever_so_that_the_owner_before_finds_it() -> None:
    store = MemoryStore()
    first, second = trimmed(store, keep=True)
    assert numbers(store) == [0, 1, 3]
    with pytest.raises(NotOwner):
        first.append()
    second.append()


def test_without_its_claim_an_old_owner_would_not_know() -> None:
    """What the kept claim is for: this is the loss that was seen when it was trimmed."""
    store = MemoryStore()
    first, _ = trimmed(store, keep=False)
    first.append()


def test_a_claim_that_a_checkpoint_covers_is_void() -> None:
    store = MemoryStore()
    first = claim(store)
    for _ in range(3):
        first.append()

    def go_on(step: StoreStep) -> None:
        # While the second one has found the end, and has not put its claim there yet.
        if step.operation == "put_if_absent" and first.number == 4:
            for _ in range(4):
                first.append()
            first.checkpoint()
            first.append()
            first.chunks.trim(first.number - 1, {0})

    second = claim(store.beside(fault=go_on))
    # The object of chunk 4 was free again, and taking it meant nothing.
    assert second.chunks.epoch == 10
    with pytest.raises(NotOwner):
        first.append()
    assert [number for number, _ in second.chunks.read(8)] == [8, 9]


def test_a_claim_in_the_middle_of_a_trim_begins_anew() -> None:
    store = MemoryStore()
    first = claim(store)
    for _ in range(5):
        first.append()
    done: list[StoreStep] = []

    def go_on(step: StoreStep) -> None:
        if step == (2, "names", "chunk/") and not done:
            done.append(step)
            first.checkpoint()
            first.append()
            # A part of the trim is seen, and the checkpoint was not.
            store.remove([numbered(1), numbered(3)])

    second = claim(store.beside(fault=go_on))
    assert done
    assert second.number == 8


def test_a_chunk_that_is_missing_is_damage() -> None:
    store = MemoryStore()
    owner = claim(store)
    for _ in range(3):
        owner.append()
    store.remove([numbered(2)])
    with pytest.raises(DamagedChunk, match=r"chunk/0*2 is damaged: it is not there, but later ones are"):
        list(owner.chunks.read(0))
    with pytest.raises(DamagedChunk):
        claim(store)


def test_the_checkpoint_of_an_old_owner_is_right_and_older() -> None:
    store = MemoryStore()
    first = claim(store)
    first.append()
    second = claim(store)
    second.append()
    second.checkpoint()
    first.checkpoint()
    stored = second.chunks.checkpoint()
    assert stored is not None
    assert stored.number == second.number


@pytest.mark.parametrize("step", range(1, 8))
@pytest.mark.parametrize("fault", [StoreFault.STOP_BEFORE, StoreFault.STOP_AFTER])
def test_a_claim_that_ends_at_any_step_leaves_room_for_the_next(step: int, fault: StoreFault) -> None:
    store = MemoryStore()
    first = claim(store)
    first.append()
    with pytest.raises(RuntimeError, match="has ended"):
        claim(store.beside(fault=at_step(step, fault)))
    third = claim(store)
    third.append()
    with pytest.raises(NotOwner):
        first.append()


def test_files_have_names_of_their_own_and_know_their_owner() -> None:
    store = MemoryStore()
    first = claim(store)
    old = {first.chunks.put_file(b"same"), first.chunks.put_file(b"same")}
    assert len(old) == 2
    assert set(first.chunks.left_files()) == old
    second = claim(store)
    new = second.chunks.put_file(b"new")
    assert set(second.chunks.left_files()) == {*old, new}
    # Nobody knows what becomes of those of a later one.
    assert set(first.chunks.left_files()) == old
    assert second.chunks.get_file(new, 3) == b"new"
    with pytest.raises(DamagedChunk, match="at most 2"):
        second.chunks.get_file(new, 2)
    second.chunks.remove_files([*old, "file/none"])
    assert second.chunks.left_files() == [new]
    with pytest.raises(DamagedChunk, match="is not there"):
        second.chunks.get_file(old.pop(), 4)
