"""Single messages on their way into a frame.

Messages that are appended one by one gather as entries, and become one frame when they are written.
Each is checked when it comes in: one bad message must not spoil the frame of its neighbours.
"""

from collections.abc import Sequence
from typing import Any

from quivermq.errors import InvalidRequest, MessageTooLarge
from quivermq.frame import Frame, Headers, codec_named, encode
from quivermq.settings import StorageSettings

# value, key, headers, timestamp, expires_at, dedup_id: the columns of a frame, in one row.
Entry = tuple[bytes, bytes | None, Headers | None, int | None, int | None, str | None]

_INT64_MAX = 2**63 - 1


def checked_entry(
    value: bytes,
    key: bytes | None,
    headers: Headers | None,
    timestamp: int | None,
    expires_at: int | None,
    dedup_id: str | None,
    message_bytes_max: int,
) -> Entry:
    """The message as an entry that is certain to be encodable. Raises InvalidRequest."""
    value = _frozen("value", value)
    size = len(value)
    if key is not None:
        key = _frozen("key", key)
        size += len(key)
    if headers is not None:
        headers = _frozen_headers(headers)
        size += sum(len(name.encode()) + len(content) for name, content in headers.items())
    if dedup_id is not None:
        size += len(_text("dedup_id", dedup_id))
    _check_time("timestamp", timestamp)
    _check_time("expires_at", expires_at)
    if size > message_bytes_max:
        raise MessageTooLarge(
            "the message",
            size_bytes=size,
            limit_bytes=message_bytes_max,
            setting="message_bytes_max",
        )
    return value, key, headers, timestamp, expires_at, dedup_id


def frames_of(entries: Sequence[Entry], now_us: int, settings: StorageSettings) -> list[Frame]:
    """The entries in as few frames as the size of a batch allows."""
    if sum(len(entry[0]) for entry in entries) <= settings.batch_bytes:
        return [_frame(entries, now_us, settings)]
    return [_frame(part, now_us, settings) for part in _parts(entries, settings.batch_bytes)]


def _frame(entries: Sequence[Entry], now_us: int, settings: StorageSettings) -> Frame:
    values, keys, headers, timestamps, expires_at, dedup_ids = zip(*entries, strict=True)
    timestamp: int | list[int] = now_us
    if timestamps.count(None) < len(timestamps):
        timestamp = [now_us if given is None else given for given in timestamps]
    return encode(
        values,
        timestamp=timestamp,
        keys=keys,
        headers=headers,
        expires_at=expires_at,
        dedup_ids=dedup_ids,
        codec=codec_named(settings.codec),
        raw_bytes_max=settings.frame_raw_bytes_max,
    )


def _parts(entries: Sequence[Entry], bytes_max: int) -> list[list[Entry]]:
    parts: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        size += len(entry[0])
        if parts[-1] and size > bytes_max:
            parts.append([])
            size = len(entry[0])
        parts[-1].append(entry)
    return parts


def _frozen(what: str, given: Any) -> bytes:
    """The bytes as they are now: the caller may go on to change what it handed over."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise InvalidRequest(f"{what} is a {type(given).__name__} where bytes belong: encode it first")


def _frozen_headers(headers: Any) -> dict[str, bytes]:
    try:
        items = headers.items()
    except AttributeError:
        kind = type(headers).__name__
        raise InvalidRequest(f"headers is a {kind} where a mapping of str to bytes belongs") from None
    for name, _ in items:
        _text("a header's name", name)
    return {name: _frozen(f"header {name!r}", content) for name, content in items}


def _text(what: str, given: Any) -> bytes:
    if not isinstance(given, str):
        raise InvalidRequest(f"{what} is a {type(given).__name__} where a str belongs")
    try:
        return given.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} cannot be written as UTF-8: {error.reason}") from None


def _check_time(what: str, given: Any) -> None:
    if given is None:
        return
    if not isinstance(given, int) or isinstance(given, bool) or not -_INT64_MAX <= given <= _INT64_MAX:
        raise InvalidRequest(f"{what} must be unix microseconds as a 64-bit int, not {given!r}")
