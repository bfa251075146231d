"""S2 blocks, which are Snappy blocks and one thing more: a copy may repeat the distance of the one before.

A block is the decoded length as a varint, then tags. The two lowest bits of a tag say what it is:

    00  literal: the bytes themselves. Their number less one is in the upper six bits or, where those are
        60…63, in the 1…4 bytes behind the tag.
    01  copy of 4…11 bytes; its distance has 11 bits. A distance of 0 is a repeat: the distance of the last
        copy again, and the length is 4…8, or 8, 260 or 65540 and what the 1, 2 or 3 bytes behind it add.
    10  copy of 1…64 bytes; its distance is in the 2 bytes behind.
    11  copy of 1…64 bytes; its distance is in the 4 bytes behind.

All numbers are little-endian. A copy may be longer than its distance, and then copies what it just made.
"""

import cramjam

from quivermq.disk import Buffer

_LITERAL, _COPY_1, _COPY_2 = 0, 1, 2
_LENGTH_BITS_MAX = 32

# What a repeat of these lengths has behind it, and what that is added to.
_REPEAT_BYTES = {9: (1, 8), 10: (2, 260), 11: (3, 65_540)}


class InvalidBlock(ValueError):
    """The bytes are no S2 block; `position` is where in them they go wrong."""

    def __init__(self, reason: str, *, position: int) -> None:
        super().__init__(f"{reason}, at byte {position} of the block")
        self.position = position


def decode_block(block: Buffer, *, bytes_max: int) -> bytes:
    """The bytes that a block stands for. Raises InvalidBlock, for over `bytes_max` before it begins."""
    length, position = _decoded_length(block)
    if length > bytes_max:
        raise InvalidBlock(f"it would have {length} bytes, the limit is {bytes_max}", position=0)
    try:
        # A block without repeats is one of Snappy, which refuses every other: it has no distance of 0.
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return decode_tags(bytes(block), position, length)


def _decoded_length(block: Buffer) -> tuple[int, int]:
    length = 0
    for position, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            if length >> _LENGTH_BITS_MAX:
                break
            return length, position + 1
    raise InvalidBlock("its length is no number of 32 bits", position=0)


def decode_tags(source: bytes, position: int, length_max: int) -> bytes:
    """What the tags from `position` on make, which must be exactly `length_max` bytes. Raises InvalidBlock.

    Each turn of the loop is a tag, and moves its bytes as slices.
    """
    end = len(source)
    made = bytearray()
    here = distance = 0
    while position < end:
        start = position
        tag = source[position]
        kind = tag & 3
        if kind == _LITERAL:
            length = (tag >> 2) + 1
            position += 1
            if length > 60:
                behind = length - 60
                length = int.from_bytes(source[position : position + behind], "little") + 1
                position += behind
            if length > length_max - here or length > end - position:
                raise InvalidBlock(f"a literal has {length} bytes, which do not fit", position=start)
            made += source[position : position + length]
            position += length
            here += length
            continue
        if kind == _COPY_1:
            position += 2
            length = (tag >> 2 & 7) + 4
            near = (tag & 0xE0) << 3 | (source[start + 1] if position <= end else 0)
            if near:
                distance = near
            elif length > 8:
                behind, base = _REPEAT_BYTES[length]
                length = int.from_bytes(source[position : position + behind], "little") + base
                position += behind
        else:
            length = (tag >> 2) + 1
            position += 3 if kind == _COPY_2 else 5
            distance = int.from_bytes(source[start + 1 : position], "little")
        if position > end:
            raise InvalidBlock("it ends inside of a tag", position=start)
        if not 0 < distance <= here:
            raise InvalidBlock(f"a copy begins {distance} bytes back, behind {here}", position=start)
        if length > length_max - here:
            raise InvalidBlock(f"a copy has {length} bytes, which do not fit", position=start)
        first = here - distance
        if distance >= length:
            made += made[first : first + length]
        else:
            # It runs into what it makes: the same few bytes again and again.
            made += (made[first:] * (length // distance + 1))[:length]
        here += length
    if here != length_max:
        raise InvalidBlock(f"it has {here} bytes, not the {length_max} it says", position=end)
    return bytes(made)
