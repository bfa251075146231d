"""The bytes of a chunk: what goes in comes out, and anything else is refused by name."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from quivermq.errors import DamagedChunk, UnsupportedChunk
from quivermq.shared.chunk import (
    CHAIN_START,
    ChunkHead,
    Kind,
    Mutation,
    chain_of,
    decode_chunk,
    encode_chunk,
)

HEAD = ChunkHead(7, 3, bytes(range(32)))

names = st.text("ab.-_é", min_size=1, max_size=8).filter(lambda name: name.strip("."))
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


def mutations_of(*kinds: Kind, **fields: st.SearchStrategy[object]) -> st.SearchStrategy[Mutation]:
    defaults: dict[str, st.SearchStrategy[object]] = {
        "argument": st.just(0),
        "target": st.just(""),
        "data": st.just(b""),
    }
    return st.builds(Mutation, st.sampled_from(kinds), paths, **{**defaults, **fields})


mutations = st.one_of(
    mutations_of(Kind.CREATE, argument=st.integers(0, 1)),
    mutations_of(Kind.REWRITE, argument=st.integers(0, 2**40), data=st.binary(max_size=20)),
    mutations_of(Kind.TRUNCATE, argument=st.integers(0, 2**63)),
    mutations_of(Kind.RENAME, target=paths),
    mutations_of(Kind.REMOVE, Kind.MAKE_DIRECTORY, Kind.REMOVE_DIRECTORY),
)


@given(st.lists(mutations, max_size=20), st.booleans())
def test_what_goes_in_comes_out(given_mutations: list[Mutation], is_claim: bool) -> None:
    head = HEAD._replace(is_claim=is_claim)
    assert decode_chunk("chunk", encode_chunk(head, given_mutations)) == (head, given_mutations)


def test_appends_that_follow_on_one_another_become_one() -> None:
    given_mutations = [
        Mutation(Kind.APPEND, "a", 0, data=b"12"),
        Mutation(Kind.APPEND, "a", 2, data=b"34"),
        Mutation(Kind.APPEND, "b", 4, data=b"other file"),
        Mutation(Kind.APPEND, "a", 4, data=b"5"),
        Mutation(Kind.APPEND, "a", 6, data=b"a gap"),
    ]
    assert decode_chunk("chunk", encode_chunk(HEAD, given_mutations)).mutations == [
        Mutation(Kind.APPEND, "a", 0, data=b"1234"),
        *given_mutations[2:],
    ]


def test_the_same_chunk_is_never_made_twice() -> None:
    assert encode_chunk(HEAD, ()) != encode_chunk(HEAD, ())


def test_the_chain_covers_every_byte() -> None:
    chunk = encode_chunk(HEAD, [Mutation(Kind.REMOVE, "a")])
    assert len(
        {chain_of(chunk[:n] + bytes([chunk[n] ^ 1]) + chunk[n + 1 :]) for n in range(len(chunk))}
    ) == len(chunk)
    assert chain_of(chunk) != CHAIN_START


def test_every_changed_bit_is_noticed() -> None:
    chunk = encode_chunk(HEAD, [Mutation(Kind.APPEND, "a/b", 9, data=b"data")])
    for position in range(len(chunk)):
        broken = bytearray(chunk)
        broken[position] ^= 0x10
        with pytest.raises((DamagedChunk, UnsupportedChunk), match="chunk 7"):
            decode_chunk("chunk 7", bytes(broken))


def test_every_cut_is_noticed() -> None:
    chunk = encode_chunk(HEAD, [Mutation(Kind.APPEND, "a/b", 9, data=b"data")])
    for size in range(len(chunk)):
        with pytest.raises(DamagedChunk):
            decode_chunk("chunk", chunk[:size])
    with pytest.raises(DamagedChunk):
        decode_chunk("chunk", chunk + b"\0")


def sealed(chunk: bytes) -> bytes:
    """With a checksum that fits: as somebody makes it who means harm."""
    return chunk[:4] + crc32c(chunk[8:]).to_bytes(4, "little") + chunk[8:]


def test_a_later_version_is_refused_by_name() -> None:
    chunk = bytearray(encode_chunk(HEAD, ()))
    chunk[8:10] = struct.pack("<H", 2)
    with pytest.raises(UnsupportedChunk, match=r"chunk 7 has version 2.*reads version 1"):
        decode_chunk("chunk 7", sealed(bytes(chunk)))


def test_an_unknown_flag_is_refused() -> None:
    chunk = bytearray(encode_chunk(HEAD, ()))
    chunk[10:12] = struct.pack("<H", 2)
    with pytest.raises(UnsupportedChunk, match="flags 0x2"):
        decode_chunk("chunk", sealed(bytes(chunk)))


@pytest.mark.parametrize("place", [12, 32])
def test_counts_that_cannot_be_are_refused_before_anything_is_made(place: int) -> None:
    chunk = bytearray(encode_chunk(HEAD, [Mutation(Kind.REMOVE, "a")]))
    chunk[place : place + 4] = struct.pack("<I", 2**31)
    with pytest.raises(DamagedChunk, match="cannot have"):
        decode_chunk("chunk", sealed(bytes(chunk)))


@pytest.mark.parametrize(
    "path", ["/etc", "../x", "a/../b", "a//b", ".", "", "a\0b", "x" * 256, "a/" * 3000]
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(DamagedChunk, match="leads elsewhere"):
        decode_chunk("chunk", encode_chunk(HEAD, [Mutation(Kind.REMOVE, path)]))


@given(st.binary(max_size=200))
def test_nonsense_with_a_checksum_is_refused(noise: bytes) -> None:
    chunk = encode_chunk(HEAD, [Mutation(Kind.RENAME, "a", target="b")])
    broken = sealed(chunk[:12] + noise)
    if broken == chunk:
        return
    with pytest.raises((DamagedChunk, UnsupportedChunk)):
        decode_chunk("chunk", broken)
