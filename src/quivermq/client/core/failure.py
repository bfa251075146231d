"""From what went wrong to the error that the embedded queue would have raised."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quivermq.client.core.call import Answer, Broken
from quivermq.errors import QuiverError, Unavailable, Unreachable

_SHOWN_BYTES_MAX = 200


def _classes(root: type[QuiverError]) -> Iterator[type[QuiverError]]:
    yield root
    for child in root.__subclasses__():
        # Errors of other modules, like those of this client, have no codes of their own.
        if child.__module__ == root.__module__:
            yield from _classes(child)


_CLASSES = {cls.code: cls for cls in reversed(list(_classes(QuiverError)))}
# Of the fields that JSON has no type for.
_TYPES: dict[str, Any] = {"path": Path, "receipts": tuple, "offsets": tuple}


def failure_of(outcome: Answer | Broken) -> QuiverError:
    """The error that an outcome stands for."""
    if isinstance(outcome, Broken):
        return Unreachable(f"the broker does not answer: {outcome.reason}")
    document = _error_in(outcome.body)
    return _wordless(outcome) if document is None else error_of(document)


def error_of(document: dict[str, Any]) -> QuiverError:
    """The error that JSON tells of, with the fields it was raised with."""
    cls = _CLASSES.get(str(document.get("code")), QuiverError)
    # Not through the constructor, which would put the message into words again.
    error = cls.__new__(cls, str(document.get("message", "")))
    for name, value in document.items():
        if (
            name not in ("code", "message", "retryable")
            and name.isidentifier()
            and not name.startswith("_")
        ):
            setattr(error, name, _TYPES[name](value) if name in _TYPES and value is not None else value)
    return error


def _error_in(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, dict) else None


def _wordless(answer: Answer) -> QuiverError:
    """An answer that no broker gave, but something in between."""
    shown = answer.body[:_SHOWN_BYTES_MAX].decode(errors="replace")
    message = f"the answer was {answer.status}, and not from a broker: {shown!r}"
    return Unavailable(message) if answer.status in (502, 503, 504) else QuiverError(message)
