"""Deduplication ids of which only the hash is known, because another queue kept no more of them.

Such an id is `sha256:` and 64 hex digits, and stands for every id that has this hash.
"""

from hashlib import sha256

_PREFIX = "sha256:"
_LENGTH = len(_PREFIX) + 64


def is_hashed(dedup_id: str) -> bool:
    """Whether an id stands for others."""
    return len(dedup_id) == _LENGTH and dedup_id.startswith(_PREFIX)


def hashed_id(dedup_id: str) -> str:
    """The id that stands for an id."""
    return _PREFIX + sha256(dedup_id.encode()).hexdigest()
