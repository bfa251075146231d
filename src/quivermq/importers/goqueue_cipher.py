"""Values that GoQueue has encrypted: AES-256-GCM, a nonce of 12 bytes, the contents, a tag of 16 bytes.

Nothing in a record says that it is encrypted, so the key has to be given, and where none is given only
the looks of values can tell.
"""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from quivermq.disk import Disk, read_file
from quivermq.errors import InvalidRequest
from quivermq.importers.segments import Unreadable

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_KEY_FILE_BYTES_MAX = 4096
_NONCE_BYTES, _TAG_BYTES = 12, 16
OVERHEAD_BYTES = _NONCE_BYTES + _TAG_BYTES

LOOKED_AT = 32
"""How many values are enough to tell what they look like."""
_SAMPLE_MIN = 4


class _Opener(Protocol):
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Cipher:
    """Opens values with one key."""

    def __init__(self, key: bytes) -> None:
        # Needed by nobody else, so nobody else has to have it.
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise InvalidRequest(
                "to read encrypted values, install what decrypts them: pip install 'quivermq[encryption]'"
            ) from None
        self._opener: _Opener = AESGCM(key)
        self._wrong = InvalidTag

    def decrypted(self, value: bytes) -> bytes:
        """The contents. Raises Unreadable when the key is another, or when it was never encrypted."""
        if len(value) < OVERHEAD_BYTES:
            raise Unreadable("its value is too short to be encrypted")
        try:
            return self._opener.decrypt(value[:_NONCE_BYTES], value[_NONCE_BYTES:], None)
        except self._wrong:
            raise Unreadable("the key does not open its value") from None


def read_key(told: str, disk: Disk) -> bytes:
    """A key as 64 hex digits, or as @FILE that holds them. Raises InvalidRequest, which never shows it."""
    text = told
    if told.startswith("@"):
        try:
            text = read_file(disk, Path(told[1:]), bytes_max=_KEY_FILE_BYTES_MAX).decode(errors="replace")
        except FileNotFoundError:
            raise InvalidRequest(f"there is no file {told[1:]} with a key") from None
    if not _KEY.fullmatch(text.strip()):
        raise InvalidRequest("a key of GoQueue is 64 hex digits, or @FILE with them")
    return bytes.fromhex(text.strip())


def look_encrypted(values: Sequence[bytes]) -> bool:
    """Whether values could be encrypted: each has room for nonce and tag, and nothing in them repeats."""
    sample = b"".join(values)
    if len(values) < _SAMPLE_MIN or min(map(len, values)) < OVERHEAD_BYTES:
        return False
    return len(zlib.compress(sample, 9)) >= len(sample)
