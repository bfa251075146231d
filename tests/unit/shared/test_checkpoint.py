"""The bytes of a checkpoint: what goes in comes out, and anything else is refused by name."""

import json
import struct

import pytest
from crc32c import crc32c

from quivermq.errors import DamagedChunk, UnsupportedChunk
from quivermq.shared.checkpoint import (
    Checkpoint,
    Part,
    StoredFile,
    decode_checkpoint,
    encode_checkpoint,
)

CHECKPOINT = Checkpoint(
    9,
    bytes(range(32)),
    (0, 4),
    ("d", "d/é"),
    [
        StoredFile("d/a", False, (Part("file/1", 70, 5), Part("file/2", 1, 6)), b"tail"),
        StoredFile("b", True, (), b""),
        StoredFile("c", False, (), b"\0\1"),
    ],
)


def sealed(data: bytes) -> bytes:
    """With a checksum that fits: as somebody makes it who means harm."""
    return data[:4] + crc32c(data[8:]).to_bytes(4, "little") + data[8:]


def test_what_goes_in_comes_out() -> None:
    assert decode_checkpoint("checkpoint", encode_checkpoint(CHECKPOINT)) == CHECKPOINT
    assert CHECKPOINT.part_names() == {"file/1", "file/2"}


def test_every_changed_bit_and_every_cut_is_noticed() -> None:
    data = encode_checkpoint(CHECKPOINT)
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        for each in (bytes(broken), data[:position]):
            with pytest.raises((DamagedChunk, UnsupportedChunk), match="checkpoint 9"):
                decode_checkpoint("checkpoint 9", each)


def test_a_later_version_is_refused_by_name() -> None:
    data = encode_checkpoint(CHECKPOINT)
    with pytest.raises(UnsupportedChunk, match="checkpoint 9 has version 2; this release reads version 1"):
        decode_checkpoint("checkpoint 9", sealed(data[:8] + struct.pack("<I", 2) + data[12:]))


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"path": "../a", "is_private": False, "parts": [], "tail_bytes": 0}]},
        {"files": [{"path": "a", "is_private": False, "parts": [], "tail_bytes": 7}]},
        {"files": [{"path": "a", "is_private": False, "parts": [], "tail_bytes": -1}]},
        {"files": [{"path": "a", "is_private": False, "parts": [["x"]], "tail_bytes": 0}]},
        {"files": [{"path": 5}]},
        {"files": None},
        {"chain": "00"},
        {"chain": "no hex"},
        {"directories": ["/"]},
    ],
)
def test_a_document_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    whole = {"number": 1, "chain": "00" * 32, "claims": [], "directories": [], "files": []}
    document = json.dumps({**whole, **change}).encode()
    data = struct.pack("<4sIII", b"QVK1", 0, 1, len(document)) + document
    with pytest.raises(DamagedChunk):
        decode_checkpoint("checkpoint", sealed(data))
