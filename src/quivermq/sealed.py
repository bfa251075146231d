"""Small JSON documents with a checksum inside, so that a bit that was flipped is noticed, not obeyed.

People read these files, and some edit them: who does takes the checksum out, and the document is believed.
"""

import json
from collections.abc import Collection
from typing import Any

from crc32c import crc32c

CHECKSUM = "checksum"


def sealed(document: dict[str, Any], *, indent: int | None = 2) -> bytes:
    """The bytes of a document, with its checksum."""
    return json.dumps({**document, CHECKSUM: _sum(document)}, indent=indent).encode() + b"\n"


def open_seal(document: dict[str, Any], names: Collection[str]) -> None:
    """Take the checksum out of a document that has exactly these names besides. Raises ValueError."""
    checksum = document.pop(CHECKSUM, None)
    if checksum is not None and checksum != _sum(document):
        raise ValueError(
            f"its checksum does not fit: it was damaged, or somebody changed it and left {CHECKSUM!r} in it"
        )
    if set(document) != set(names):
        raise ValueError(f"it must have exactly {', '.join(names)}")


def _sum(document: dict[str, Any]) -> str:
    """Over the meaning, not the looks: spaces and the order of names do not count."""
    plain = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return f"crc32c:{crc32c(plain):08x}"
