"""Where `quiver put` has its messages from: an argument, a file, or a stream in pieces.

Messages of a stream are handed on as soon as they are there, in batches that are as large as what has
arrived: a fast pipe makes large ones, and `tail -f` is not kept waiting for the thousandth line.
"""

from collections.abc import Iterator
from typing import BinaryIO

from quivermq.errors import InvalidRequest

BATCH_MESSAGES = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_READ_BYTES = 1024 * 1024
# More than any broker takes by default. A stream without separators must not fill the memory.
PIECE_BYTES_MAX = 64 * 1024 * 1024


def batches(stream: BinaryIO, separator: bytes) -> Iterator[list[bytes]]:
    """What lies between separators, in batches. What is behind the last one counts if there is any."""
    for pieces in _arrivals(stream, separator):
        yield from _cut(pieces)


def whole(stream: BinaryIO) -> bytes:
    """All of a stream as one value. Raises InvalidRequest for more than a message can be."""
    value = stream.read(PIECE_BYTES_MAX + 1)
    _check(value)
    return value


def _arrivals(stream: BinaryIO, separator: bytes) -> Iterator[list[bytes]]:
    # In parts, and joined only once the separator came: a long piece would be copied again and again.
    rest: list[bytes] = []
    rest_bytes = 0
    # read1 returns what there is, where read would wait for more.
    while chunk := _read_some(stream):
        pieces = chunk.split(separator)
        rest.append(pieces[0])
        rest_bytes += len(pieces[0])
        if rest_bytes > PIECE_BYTES_MAX:
            _check(b"".join(rest))
        if len(pieces) > 1:
            pieces[0] = b"".join(rest)
            rest = [pieces.pop()]
            rest_bytes = len(rest[0])
            yield pieces
    if rest_bytes:
        yield [b"".join(rest)]


def _read_some(stream: BinaryIO) -> bytes:
    read1 = getattr(stream, "read1", stream.read)
    some: bytes = read1(_READ_BYTES)
    return some


def _cut(pieces: list[bytes]) -> Iterator[list[bytes]]:
    """Batches that are neither too many messages nor too many bytes."""
    for start in range(0, len(pieces), BATCH_MESSAGES):
        batch = pieces[start : start + BATCH_MESSAGES]
        if sum(map(len, batch)) <= _BATCH_BYTES:
            yield batch
            continue
        size, taken = 0, 0
        for index, piece in enumerate(batch):
            if index > taken and size + len(piece) > _BATCH_BYTES:
                yield batch[taken:index]
                size, taken = 0, index
            size += len(piece)
        yield batch[taken:]


def _check(value: bytes) -> None:
    if len(value) > PIECE_BYTES_MAX:
        raise InvalidRequest(
            f"a message has more than {PIECE_BYTES_MAX} bytes: is this the right separator?"
        )
