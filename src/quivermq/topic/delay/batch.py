"""Messages in runs that are small enough for a frame, and as the columns of one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from quivermq.settings import StorageSettings
from quivermq.topic.delay.message import Delayed, Stored

_MESSAGES_MAX = 1000
_BYTES_MAX = 1024 * 1024
# What a frame takes for a message, with the id that it gets in its lane, and for a header of it, besides
# their bytes.
_MESSAGE_OVERHEAD_BYTES = 84
_HEADER_OVERHEAD_BYTES = 8

M = TypeVar("M", Delayed, Stored)


def batches(
    messages: Sequence[M], settings: StorageSettings, group_of: Callable[[M], int] | None = None
) -> Iterator[list[M]]:
    """Runs of messages, each of one group and no larger than a batch may be."""
    count_max = min(_MESSAGES_MAX, settings.batch_messages)
    bytes_max = min(_BYTES_MAX, settings.batch_bytes)
    batch: list[M] = []
    size = group = 0
    for message in messages:
        its_size = _size(message)
        its_group = 0 if group_of is None else group_of(message)
        is_full = len(batch) == count_max or size + its_size > bytes_max
        if batch and (is_full or its_group != group):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size, group = size + its_size, its_group
    if batch:
        yield batch


def columns_of(messages: Sequence[M], keys: Sequence[bytes | None], times: Sequence[int]) -> dict[str, Any]:
    """The columns of `Log.append_many`, by name."""
    return {
        "values": [message.value for message in messages],
        # One time for all of them takes no column.
        "timestamp": times if min(times) < max(times) else times[0],
        "keys": keys,
        "headers": [message.headers for message in messages],
        "expires_at": [message.expires_at for message in messages],
        "dedup_ids": [message.dedup_id for message in messages],
    }


def _size(message: Delayed | Stored) -> int:
    size = _MESSAGE_OVERHEAD_BYTES + len(message.value) + len(message.key or b"")
    if message.dedup_id:
        size += len(message.dedup_id.encode())
    if message.headers:
        for name, content in message.headers.items():
            size += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content)
    return size
