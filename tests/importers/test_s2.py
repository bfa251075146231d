"""S2 blocks: every tag, every way to write a length, every way to be wrong."""

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.s2_blocks import block, compress, far, literal, near, repeat, uvarint

from quivermq.importers.files import Unreadable
from quivermq.importers.fluxmq_batches import decode_block, decode_tags

MIB = 1024 * 1024


def decoded(data: bytes) -> bytes:
    """What a block is, in both ways to find out: blocks without repeats go to a decoder of Snappy."""
    made = decode_block(data, bytes_max=16 * MIB)
    assert decode_tags(data, len(uvarint(len(made))), len(made)) == made
    return made


def said(data: bytes) -> int:
    """How long a block says that it is."""
    length = 0
    for place, byte in enumerate(data):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return length


def copied(start: bytes, distance: int, length: int) -> bytes:
    """What a copy makes, byte by byte."""
    made = bytearray(start)
    for _ in range(length):
        made.append(made[-distance])
    return bytes(made)


def test_an_empty_block_is_empty() -> None:
    assert decoded(block(0)) == b""


@pytest.mark.parametrize(
    ("length", "width"), [(1, 0), (60, 0), (1, 1), (61, 1), (256, 1), (257, 2), (1, 2), (65_537, 3), (5, 4)]
)
def test_a_literal_tells_its_length_in_up_to_four_bytes(length: int, width: int) -> None:
    data = bytes(index * 7 % 251 for index in range(length))
    assert decoded(block(length, literal(data, width))) == data


@pytest.mark.parametrize("length", range(4, 12))
@pytest.mark.parametrize("distance", [1, 2, 3, 7, 11, 255, 256, 2047])
def test_a_near_copy(distance: int, length: int) -> None:
    start = bytes(index % 251 for index in range(2100))
    assert decoded(block(2100 + length, literal(start), near(distance, length))) == copied(
        start, distance, length
    )


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("length", [1, 2, 3, 63, 64])
@pytest.mark.parametrize("distance", [1, 5, 64, 65, 300])
def test_a_far_copy(distance: int, length: int, width: int) -> None:
    start = bytes(index % 251 for index in range(300))
    assert decoded(block(300 + length, literal(start), far(distance, length, width))) == copied(
        start, distance, length
    )


def test_a_copy_from_more_than_64_kib_back() -> None:
    start = bytes(index % 251 for index in range(100_000))
    assert decoded(block(100_050, literal(start), far(99_999, 50, 4))) == copied(start, 99_999, 50)


@pytest.mark.parametrize(
    ("length", "width"),
    [
        *((length, 0) for length in range(4, 9)),
        *((length, 1) for length in (8, 9, 262, 263)),
        *((length, 2) for length in (260, 261, 65_794, 65_795)),
        *((length, 3) for length in (65_540, 65_541, 200_000)),
    ],
)
@pytest.mark.parametrize("distance", [1, 3, 10])
def test_a_repeat_tells_its_length_in_up_to_three_bytes(distance: int, length: int, width: int) -> None:
    start = b"0123456789"
    whole = copied(copied(start, distance, 4), distance, length)
    assert decoded(block(len(whole), literal(start), near(distance, 4), repeat(length, width))) == whole


@pytest.mark.parametrize("before", [near(3, 5), far(3, 5, 2), far(3, 5, 4), near(3, 5) + repeat(4)])
def test_a_repeat_goes_on_with_the_distance_of_whatever_copy_was_last(before: bytes) -> None:
    start = b"abcdef"
    made = copied(start, 3, 9 if before.endswith(repeat(4)) else 5)
    whole = copied(made + b"--", 3, 6)
    assert decoded(block(len(whole), literal(start), before, literal(b"--"), repeat(6))) == whole


@given(st.binary(max_size=3000))
def test_what_snappy_writes_is_read(data: bytes) -> None:
    assert decoded(bytes(cramjam.snappy.compress_raw(data))) == data


def words() -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from([b"orders", b"-eu-", b"aaaa", b"\0", b"123"]), max_size=400).map(
        b"".join
    )


@given(words() | st.binary(max_size=2000))
def test_what_was_compressed_with_repeats_comes_out_again(data: bytes) -> None:
    assert decoded(compress(data)) == data


def test_the_compressor_of_these_tests_makes_what_snappy_cannot_read() -> None:
    data = b"orders-eu-" * 40 + b"x" + b"orders-eu-" * 40
    with pytest.raises(cramjam.DecompressionError):
        cramjam.snappy.decompress_raw(compress(data))
    assert decoded(compress(data)) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no number"),
        (b"\x80", "no number"),
        (b"\xff\xff\xff\xff\xff\x01", "no number"),
        (b"\xff\xff\xff\xff\x1f", "no number"),
        (block(5), "it has 0 bytes, not the 5"),
        (block(4, literal(b"abcde")), "a literal has 5 bytes"),
        (block(6, literal(b"abcde")), "it has 5 bytes, not the 6"),
        (block(9, literal(b"abcdefghi")[:-1]), "a literal has 9 bytes"),
        (block(9, repeat(9)), "begins 0 bytes back"),
        (block(9, literal(b"abcd"), repeat(5)), "begins 0 bytes back"),
        (block(9, literal(b"abcd"), near(5, 5)), "begins 5 bytes back, behind 4"),
        (block(9, literal(b"abcd"), far(0, 5)), "begins 0 bytes back"),
        (block(9, literal(b"abcd"), far(70_000, 5, 4)), "begins 70000 bytes back"),
        (block(8, literal(b"abcd"), near(4, 5)), "a copy has 5 bytes"),
        (block(99, literal(b"abcd"), near(4, 5), repeat(65_540, 3)), "a copy has 65540 bytes"),
        (block(9, literal(b"abcd"), near(4, 5)[:-1]), "ends inside"),
        (block(9, literal(b"abcd"), far(4, 5)[:-1]), "ends inside"),
        (block(9, literal(b"abcd"), far(4, 5, 4)[:-1]), "ends inside"),
        (block(280, literal(b"abcd"), near(4, 5), repeat(262, 2)[:-1]), "ends inside"),
        (block(10**6, literal(b"abcd"), near(4, 5), repeat(70_000, 3)[:-1]), "ends inside"),
        (block(300, bytes([61 << 2, 43])), "a literal has 44 bytes"),
    ],
)
def test_what_is_no_block_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        decoded(data)


def test_the_length_is_checked_before_anything_is_decoded() -> None:
    with pytest.raises(Unreadable, match="4294967295 bytes, the limit is 1000"):
        decode_block(uvarint(2**32 - 1) + b"garbage", bytes_max=1000)
    assert decode_block(block(1000, literal(b"x"), far(1, 7), repeat(992)), bytes_max=1000) == b"x" * 1000


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_block_that_was_cut_is_refused(cut: int) -> None:
    whole = compress(b"orders-eu-" * 30 + b"something else" + b"orders-eu-" * 30)
    assert len(whole) > 30
    with pytest.raises(Unreadable):
        decoded(whole[:-cut])


@given(words(), st.data())
def test_a_flipped_bit_makes_other_bytes_of_the_length_it_says_or_an_error(
    data: bytes, drawn: st.DataObject
) -> None:
    whole = bytearray(compress(data))
    place = drawn.draw(st.integers(0, len(whole) * 8 - 1))
    whole[place // 8] ^= 1 << place % 8
    try:
        made = decode_block(bytes(whole), bytes_max=MIB)
    except Unreadable:
        return
    assert len(made) == said(bytes(whole))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_block_or_refused(data: bytes) -> None:
    try:
        made = decode_block(data, bytes_max=MIB)
    except Unreadable:
        return
    assert len(made) == said(data)
