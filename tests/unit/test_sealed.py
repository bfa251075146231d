import json

import pytest

from quivermq.sealed import open_seal, sealed

DOCUMENT = {"version": 1, "name": "orders", "limits": [1, 20, 300]}


def opened(data: bytes) -> dict[str, object]:
    document: dict[str, object] = json.loads(data)
    open_seal(document, tuple(DOCUMENT))
    return document


@pytest.mark.parametrize("indent", [None, 2])
def test_what_was_sealed_is_opened(indent: int | None) -> None:
    assert opened(sealed(DOCUMENT, indent=indent)) == DOCUMENT


def test_every_bit_that_changes_the_meaning_is_noticed() -> None:
    data = sealed(DOCUMENT)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                document = opened(bytes(flipped))
            except ValueError:
                continue
            assert document == DOCUMENT, f"bit {bit} of byte {position}"


def test_who_takes_the_checksum_out_is_believed() -> None:
    changed = {**json.loads(sealed(DOCUMENT)), "name": "payments"}
    with pytest.raises(ValueError, match="checksum does not fit"):
        opened(json.dumps(changed).encode())
    del changed["checksum"]
    assert opened(json.dumps(changed).encode())["name"] == "payments"


def test_other_names_are_refused() -> None:
    with pytest.raises(ValueError, match="it must have exactly version, name, limits"):
        opened(json.dumps({**DOCUMENT, "more": 1}).encode())
