from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quivermq.topic import routing
from quivermq.topic.routing import Router, murmur3

# Of the reference implementation, smhasher's MurmurHash3_x86_32, with seed 0.
VECTORS = {
    b"": 0x00000000,
    b"\x00": 0x514E28B7,
    b"\x00\x00": 0x30F4C306,
    b"\x00\x00\x00": 0x85F0B427,
    b"\x00\x00\x00\x00": 0x2362F9DE,
    b"\xff\xff\xff\xff": 0x76293B50,
    b"\x21\x43\x65\x87": 0xF55B516B,
    b"\x21\x43\x65": 0x7E4A8634,
    b"\x21\x43": 0xA0F7B07A,
    b"\x21": 0x72661CF4,
    b"test": 0xBA6BD213,
    b"Hello, world!": 0xC0363E43,
    b"The quick brown fox jumps over the lazy dog": 0x2E4FF723,
}


@pytest.mark.parametrize(("key", "result"), VECTORS.items())
def test_the_hash_is_the_one_everybody_knows(key: bytes, result: int) -> None:
    assert murmur3(key) == result


def by_the_book(key: bytes) -> int:
    """MurmurHash3_x86_32 as its specification has it, byte by byte, with every step cut to 32 bits."""

    def times(a: int, b: int) -> int:
        return (a * b) % 2**32

    def rotated(a: int, bits: int) -> int:
        return ((a << bits) % 2**32) + (a >> (32 - bits))

    def scrambled(chunk: bytes) -> int:
        word = sum(byte << (8 * place) for place, byte in enumerate(chunk))
        return times(rotated(times(word, 0xCC9E2D51), 15), 0x1B873593)

    state = 0
    for position in range(0, len(key), 4):
        chunk = key[position : position + 4]
        state ^= scrambled(chunk)
        if len(chunk) == 4:
            state = (times(rotated(state, 13), 5) + 0xE6546B64) % 2**32
    state ^= len(key)
    state = times(state ^ (state >> 16), 0x85EBCA6B)
    state = times(state ^ (state >> 13), 0xC2B2AE35)
    return state ^ (state >> 16)


@given(st.binary(max_size=200))
@example(b"\xff" * 63)
@example(b"\xff" * 64)
@example(b"\xff" * 65)
def test_the_hash_is_right_for_every_length(key: bytes) -> None:
    assert murmur3(key) == by_the_book(key)
    assert murmur3(key) == by_the_book(key), "as it is remembered"


def test_only_short_keys_are_remembered_and_not_too_many() -> None:
    remembered = routing._murmur3_short.cache_info
    before = remembered().currsize
    murmur3(b"x" * 65)
    assert remembered().currsize == before
    for number in range(5000):
        murmur3(b"%d" % number)
    assert remembered().currsize == remembered().maxsize == 4096


def test_a_key_stays_in_its_partition() -> None:
    router = Router(7)
    keys = [b"", b"a", b"orders/17", b"x" * 1000]
    assert [router.partition_of(key) for key in keys] == [murmur3(key) % 7 for key in keys]
    router.partition_of(None)
    assert [router.partition_of(key) for key in keys] == [Router(7).partition_of(key) for key in keys]


def test_keys_are_spread() -> None:
    router = Router(8)
    counts = Counter(router.partition_of(b"key-%d" % number) for number in range(8000))
    assert set(counts) == set(range(8))
    assert min(counts.values()) > 800


def test_without_a_key_each_partition_has_its_turn() -> None:
    router = Router(3)
    assert [router.partition_of(None) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert {Router(1).partition_of(None), Router(1).partition_of(b"a")} == {0}


def test_threads_share_the_turns_evenly() -> None:
    router = Router(4)
    with ThreadPoolExecutor(8) as threads:
        turns = threads.map(lambda _: [router.partition_of(None) for _ in range(5000)], range(8))
        counts = Counter(partition for each in turns for partition in each)
    assert counts == dict.fromkeys(range(4), 10_000)


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_router_has_somewhere_to_go(partitions: int) -> None:
    with pytest.raises(AssertionError):
        Router(partitions)


@given(st.lists(st.binary(max_size=80), min_size=1))
def test_keys_go_together_where_they_go_alone(keys: list[bytes]) -> None:
    router = Router(7)
    assert router.partitions_of(keys) == list(map(router.partition_of, keys))
