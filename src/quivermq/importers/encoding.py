"""Items as the frames they become."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from quivermq.frame import Codec, Frame, Producer, encode
from quivermq.importers.model import Death, Item, text_identity
from quivermq.model.dead_letters import DLQ_HEADER_BYTES_MAX, cut_error, cut_reason, dlq_headers
from quivermq.model.messages import Message
from quivermq.topic.incoming import message_bytes

ID = "quiver-import-id"
"""The id that the message had."""
OFFSET = "quiver-import-offset"
"""Its place in the source, where that is something else than its id."""
PRIORITY = "quiver-import-priority"
"""The source's own word for its priority, where ours says less."""
REASON = "quiver-import-reason"
"""Why it failed the last time."""
STREAM = "quiver-import-stream"
"""Which import a delayed message is of: it is in no frame of a producer that would say so."""

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
    text = headers.get(OFFSET, headers.get(ID))
    return None if text is None else _identity(text)


def _identity(text: bytes) -> int:
    if text.isdigit() and len(text) <= _NUMBER_BYTES_MAX and (text[:1] != b"0" or text == b"0"):
        return int(text)
    return text_identity(text.decode(errors="replace"))


# What the headers of an import take, but for reasons and other long texts.
_MARKS_BYTES = 128
# Less than every other time to live, and more than none.
_NO_TIME_S = 0.000_001


def item_bytes(item: Item) -> int:
    """About how much room an item takes in a frame."""
    size = len(item.value) + len(item.id) + _MARKS_BYTES
    if item.headers or item.key or item.dead:
        size += message_bytes(b"", item.key, item.headers) + (DLQ_HEADER_BYTES_MAX if item.dead else 0)
    return size


def stored_bytes(item: Item) -> int:
    """How large an item is as a message, which is what a topic limits, without the headers of a death."""
    headers = import_headers(item, is_unique=False)
    size = sum(len(name.encode()) + len(content) for name, content in headers.items())
    return size + len(item.value) + len(item.key or b"")


def frame_of(
    items: Sequence[Item], topic: str, codec: Codec, producer: Producer, *, is_unique: bool
) -> Frame:
    """One frame of the messages of one lane; `topic` is what dead letters are those of."""
    headers = [import_headers(item, is_unique=is_unique) for item in items]
    timestamps = [item.timestamp_us for item in items]
    expires_at = [item.expires_at_us for item in items]
    if items[0].dead is not None:
        # As when we give up a message ourselves: the time is that of its end, and it expires no more.
        for place, item in enumerate(items):
            assert item.dead is not None, "dead letters and others go to different topics"
            headers[place].update(_dead_letter_headers(item, item.dead, topic))
            timestamps[place] = item.timestamp_us if item.dead.time_us is None else item.dead.time_us
        expires_at = []
    return encode(
        [item.value for item in items],
        timestamp=timestamps,
        keys=[item.key for item in items],
        headers=headers,
        expires_at=expires_at or None,
        codec=codec,
        producer=producer,
    )


def delayed_message(item: Item, partition: int, stream: str) -> Message:
    """An item that waits until it is due."""
    assert item.deliver_at_us is not None, "only what is delayed comes here"
    ttl = None
    if item.expires_at_us is not None:
        ttl = max((item.expires_at_us - item.deliver_at_us) / 1_000_000, _NO_TIME_S)
    return Message(
        item.value,
        key=item.key,
        headers={**import_headers(item, is_unique=False), STREAM: stream.encode()},
        priority=item.level,
        ttl=ttl,
        deliver_at=item.deliver_at_us,
        # A call that got no answer is made again, and must not put it twice.
        dedup_id=f"{stream}/{item.identity}",
        timestamp=item.timestamp_us,
        partition=partition,
    )


def _dead_letter_headers(item: Item, death: Death, topic: str) -> dict[str, bytes]:
    """What our own dead letters say, as far as the source knows it."""
    values = (
        topic,
        death.partition or 0,
        item.level,
        death.offset,
        item.timestamp_us,
        death.attempts or 0,
        cut_reason(death.reason or "imported"),
        cut_error(death.error or ""),
        death.group or "",
        item.timestamp_us if death.time_us is None else death.time_us,
    )
    return dlq_headers(values)
