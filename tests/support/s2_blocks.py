"""S2 blocks for tests: every tag by itself, and a small compressor that uses them all."""


def block(length: int, *tags: bytes) -> bytes:
    """A block that says it has so many bytes."""
    return uvarint(length) + b"".join(tags)


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def literal(data: bytes, width: int | None = None) -> bytes:
    """The bytes themselves; `width` is how many bytes tell their number, 0 for none of their own."""
    number = len(data) - 1
    if width is None:
        width = 0 if number < 60 else (number.bit_length() + 7) // 8
    if width == 0:
        return bytes([number << 2]) + data
    return bytes([(59 + width) << 2]) + number.to_bytes(width, "little") + data


def near(distance: int, length: int) -> bytes:
    """A copy of 4 to 11 bytes, up to 2047 back."""
    return bytes([1 | (length - 4) << 2 | distance >> 8 << 5, distance & 0xFF])


def far(distance: int, length: int, width: int = 2) -> bytes:
    """A copy of 1 to 64 bytes, whose distance has 2 or 4 bytes."""
    return bytes([(2 if width == 2 else 3) | (length - 1) << 2]) + distance.to_bytes(width, "little")


def repeat(length: int, width: int | None = None) -> bytes:
    """A copy from where the last one was from; `width` is how many bytes tell its length."""
    if width is None:
        width = 0 if length <= 8 else 1 if length < 264 else 2 if length < 65_796 else 3
    if width == 0:
        return bytes([1 | (length - 4) << 2, 0])
    base = {1: 8, 2: 260, 3: 65_540}[width]
    return bytes([1 | (4 + width) << 2, 0]) + (length - base).to_bytes(width, "little")


def compress(data: bytes) -> bytes:
    """A block of the data, with repeats wherever the last distance goes on."""
    tags: list[bytes] = []
    seen: dict[bytes, int] = {}
    position = literal_start = distance = 0
    while position < len(data):
        candidate = position - distance if distance else -1
        if not (candidate >= 0 and data[candidate : candidate + 4] == data[position : position + 4]):
            candidate = seen.get(data[position : position + 4], -1)
        seen[data[position : position + 4]] = position
        length = _common(data, candidate, position) if candidate >= 0 else 0
        if length < 4:
            position += 1
            continue
        if literal_start < position:
            tags.append(literal(data[literal_start:position]))
        tags.append(_copy(position - candidate, length, distance))
        distance = position - candidate
        position += length
        literal_start = position
    if literal_start < len(data):
        tags.append(literal(data[literal_start:]))
    return block(len(data), *tags)


def _common(data: bytes, start: int, position: int) -> int:
    length = 0
    while position + length < len(data) and data[start + length] == data[position + length]:
        length += 1
    return length


def _copy(distance: int, length: int, last: int) -> bytes:
    if distance == last:
        return repeat(length)
    first = min(length, 11 if distance < 2048 else 64)
    rest = length - first
    # What is left is repeated, and a repeat has 4 bytes at least.
    if 0 < rest < 4:
        first, rest = first - 4, rest + 4
    tag = near(distance, first) if distance < 2048 else far(distance, first, 2 if distance < 65_536 else 4)
    return tag + (repeat(rest) if rest else b"")
