"""The headers by which an imported message tells where it came from, and numbers made of names."""

import json
from collections.abc import Mapping
from hashlib import blake2b

from quivermq.importers.model import Item, text_identity

ID = "quiver-import-id"
"""The id that the message had."""
OFFSET = "quiver-import-offset"
"""Its place in the source, where that is something else than its id."""
PRIORITY = "quiver-import-priority"
"""The source's own word for its priority, where ours says less."""
REASON = "quiver-import-reason"
"""Why it failed the last time."""
STREAM = "quiver-import-stream"
"""Which import a delayed message is of: it is in no frame of a producer by which that could be told."""

_NUMBER_BYTES_MAX = 39


def number_of(*parts: object) -> int:
    """A number that stands for these parts: never 0, which is nobody's."""
    digest = blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def import_headers(item: Item, *, is_unique: bool) -> dict[str, bytes]:
    """The headers of the message, and behind them those of the import.

    `is_unique` says that its identity is made of its id, as it is wherever ids are unique in the world.
    """
    own_id = item.id if item.dead is None else item.dead.original_id or item.id
    marks = {ID: own_id.encode(errors="backslashreplace")}
    if not is_unique and _identity(marks[ID]) != item.identity:
        marks[OFFSET] = str(item.identity).encode()
    if item.priority is not None:
        marks[PRIORITY] = item.priority.encode(errors="backslashreplace")
    if item.reason is not None and item.dead is None:
        marks[REASON] = item.reason.encode(errors="backslashreplace")
    return {**item.headers, **marks} if item.headers else marks


def identity_of(headers: Mapping[str, bytes]) -> int | None:
    """The identity of an imported message; None when it was not imported."""
    told = headers.get(OFFSET, headers.get(ID))
    return None if told is None else _identity(told)


def _identity(told: bytes) -> int:
    if told.isdigit() and len(told) <= _NUMBER_BYTES_MAX and (told[:1] != b"0" or told == b"0"):
        return int(told)
    return text_identity(told.decode(errors="replace"))
