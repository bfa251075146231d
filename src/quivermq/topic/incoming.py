"""What a producer hands over, checked in full before anything is written."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import chain, repeat
from operator import add, attrgetter
from typing import Any, TypeVar, cast

from quivermq.clock import SteadyClock
from quivermq.errors import InvalidRequest
from quivermq.frame import Headers, Pairs, Rest
from quivermq.log.entries import (
    ENTRY_OVERHEAD_BYTES,
    HEADER_OVERHEAD_BYTES,
    check_size,
    check_text,
    frozen,
    frozen_headers,
    headers_bytes,
)
from quivermq.model.checks import (
    UNMISTAKABLE_US,
    Moment,
    Period,
    check_dedup_id,
    check_partition,
    moment_us,
    seconds_us,
)
from quivermq.model.lanes import NORMAL, lane_number
from quivermq.model.messages import Message
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.splitting import OVERHEAD_BYTES, FrameLimits, split

T = TypeVar("T")

_NO_HEADERS: Headers = {}


# 1973 in microseconds: a smaller number was meant as seconds or milliseconds.
_LATE_ENOUGH_US = 10**14
_NOTHING, _BYTES, _STR, _INTS, _DICTS = {type(None)}, {bytes}, {str}, {int}, {dict}


@dataclass(slots=True)
class Batch:
    """Messages that are certain to be storable, column by column: None for a column that nobody has."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers | None] | None = None
    timestamps: Sequence[int | None] | None = None
    expires_at: Sequence[int | None] | None = None
    dedup_ids: Sequence[str | None] | None = None
    lanes: Sequence[int] | None = None
    """None where all have the normal priority."""
    partitions: Sequence[int | None] | None = None
    due: Sequence[int | None] | None = None
    """When those are due that are delayed."""
    windows_us: Sequence[int | None] | None = None
    """How long deduplication ids are remembered; None for as long as the topic says."""
    pairs: Pairs | None = None
    """The headers, as they are stored."""
    bytes: int = 0
    """Of all messages together, as `message_bytes_max` counts them."""

    def __post_init__(self) -> None:
        if self.headers is not None and self.pairs is None:
            self.pairs = Pairs.of(self.headers)

    def __len__(self) -> int:
        return len(self.values)

    def lane(self, index: int) -> int:
        return NORMAL if self.lanes is None else self.lanes[index]

    def item(self, column: Sequence[T | None] | None, index: int) -> T | None:
        """What a message has of a column."""
        return None if column is None else column[index]

    def rest(self, index: int) -> Rest:
        """A message beside its value."""
        return (
            self.item(self.keys, index),
            self.item(self.headers, index),
            self.item(self.timestamps, index),
            self.item(self.expires_at, index),
            self.item(self.dedup_ids, index),
        )

    def chosen(self, indexes: Sequence[int]) -> "Batch":
        """Only some of the messages."""
        if len(indexes) == len(self.values):
            return self
        columns: dict[str, Any] = {name: _chosen(getattr(self, name), indexes) for name in _COLUMNS}
        part = Batch([self.values[index] for index in indexes], **columns)
        part.bytes = _all_bytes(part)
        return part

    def sizes(self) -> list[int]:
        """How many bytes each message has, as `message_bytes_max` counts them."""
        sizes: Iterable[int] = map(len, self.values)
        if self.keys is not None:
            sizes = map(add, sizes, [0 if key is None else len(key) for key in self.keys])
        if self.headers is not None:
            sizes = map(add, sizes, [headers_bytes(each) if each else 0 for each in self.headers])
        if self.dedup_ids is not None:
            sizes = map(add, sizes, [0 if each is None else len(each.encode()) for each in self.dedup_ids])
        return list(sizes)

    def fits(self, limits: FrameLimits) -> bool:
        """Whether one frame holds all of it."""
        count, room = len(self.values), self.bytes
        # Values alone take hardly more than their bytes, and the limit is half of what a log takes.
        if not (self.keys is self.headers is self.timestamps is self.expires_at is self.dedup_ids is None):
            room += OVERHEAD_BYTES * count
        if self.pairs is not None:
            room += HEADER_OVERHEAD_BYTES * len(self.pairs.names)
        return count <= limits.messages and room <= limits.bytes

    def parts(self, limits: FrameLimits) -> Iterable["Batch"]:
        """The same in parts that fit into a frame each."""
        if self.fits(limits):
            return [self]
        sizes = self.sizes()
        if self.headers is not None:
            sizes = list(
                map(add, sizes, [HEADER_OVERHEAD_BYTES * len(each or ()) for each in self.headers])
            )
        return map(self.chosen, split(range(len(self.values)), sizes.__getitem__, limits))

    def columns(self, now_us: int) -> dict[str, Any]:
        """As `encode` takes them."""
        timestamps = self.timestamps
        if timestamps is not None and None in timestamps:
            timestamps = [now_us if given is None else given for given in timestamps]
        return {
            "values": self.values,
            "keys": self.keys,
            "headers": self.pairs,
            "timestamp": now_us if timestamps is None else timestamps,
            "expires_at": self.expires_at,
            "dedup_ids": self.dedup_ids,
        }


_COLUMNS = tuple(field.name for field in fields(Batch))[1:-2]
_MESSAGES = {Message}
_row_of = attrgetter(*(field.name for field in fields(Message)))


def _chosen(column: Sequence[Any] | None, indexes: Sequence[int]) -> list[Any] | None:
    return None if column is None else [column[index] for index in indexes]


def check_messages(
    messages: Sequence[bytes | Message],
    settings: TopicSettings,
    limits: StorageSettings,
    clock: SteadyClock,
) -> Batch:
    """The messages as they will be stored. Raises InvalidRequest.

    Each column is looked at as a whole; only one that is unusual, message by message.
    """
    kinds = set(map(type, messages))
    if not messages or (kinds == _BYTES and settings.ttl_ms is None):
        batch = Batch(cast("Sequence[bytes]", messages))
        batch.bytes = size = sum(map(len, batch.values))
        # Together no larger than one may be, none of them is too large.
        if size + ENTRY_OVERHEAD_BYTES <= limits.message_bytes_max:
            return batch
    else:
        if kinds != _MESSAGES:
            messages = [each if isinstance(each, Message) else Message(each) for each in messages]
        batch = _checked_columns(cast("Sequence[Message]", messages), settings, clock)
    _check_sizes(batch, limits)
    return batch


def _checked_columns(messages: Sequence[Message], settings: TopicSettings, clock: SteadyClock) -> Batch:
    count = len(messages)
    values, keys, headers, priorities, ttls, delays, moments, dedup_ids, timestamps, partitions, windows = (
        zip(*map(_row_of, messages), strict=True)
    )
    has_delays = delays.count(None) < count or moments.count(None) < count
    now_us = clock.now_us()
    due = (
        [_due(*given, clock, now_us) for given in zip(delays, moments, strict=True)] if has_delays else None
    )
    checked_headers, pairs = _checked_headers(headers)
    return Batch(
        values if set(map(type, values)) == _BYTES else [frozen("value", value) for value in values],
        _checked_keys(keys),
        checked_headers,
        _checked_timestamps(timestamps),
        _expiries(ttls, due, settings, now_us),
        None if dedup_ids.count(None) == count else list(map(_checked_id, dedup_ids)),
        None if priorities.count("normal") == count else list(map(lane_number, priorities)),
        None if partitions.count(None) == count else [_checked_partition(p, settings) for p in partitions],
        None if due is None or due.count(None) == count else due,
        None if windows.count(None) == count else list(map(_window_us, windows, dedup_ids)),
        pairs,
    )


def _checked_keys(keys: Sequence[Any]) -> Sequence[bytes | None] | None:
    kinds = set(map(type, keys))
    if kinds == _NOTHING:
        return None
    if kinds <= _BYTES | _NOTHING:
        return keys
    return [None if key is None else frozen("key", key) for key in keys]


def _checked_headers(headers: Sequence[Any]) -> tuple[Sequence[Headers | None] | None, Pairs | None]:
    """The headers, and the same as they are stored."""
    there = list(filter(None, headers))
    if not there:
        return None, None
    if set(map(type, there)) == _DICTS:
        with suppress(TypeError):
            names = list(chain.from_iterable(there))
            contents = list(chain.from_iterable(map(dict.values, there)))
            if set(map(type, contents)) == _BYTES and "".join(names).isascii():
                if len(there) < len(headers):
                    headers = [given or _NO_HEADERS for given in headers]
                return headers, Pairs(list(map(len, headers)), names, contents)
    checked = [frozen_headers(given) if given else _NO_HEADERS for given in headers]
    return checked, None


def _checked_timestamps(timestamps: Sequence[Any]) -> Sequence[int | None] | None:
    kinds = set(map(type, timestamps))
    if kinds == _INTS and UNMISTAKABLE_US[0] <= min(timestamps) and max(timestamps) < UNMISTAKABLE_US[1]:
        return timestamps
    if kinds == _NOTHING:
        return None
    return [None if given is None else moment_us("timestamp", given) for given in timestamps]


def _expiries(
    ttls: Sequence[Any], due: Sequence[int | None] | None, settings: TopicSettings, now_us: int
) -> Sequence[int | None] | None:
    own = None if settings.ttl_ms is None else settings.ttl_ms * 1000
    if own is None and ttls.count(None) == len(ttls):
        return None
    lives = [own if ttl is None else seconds_us("ttl", ttl, lowest=0.000_001) for ttl in ttls]
    starts = repeat(now_us) if due is None else (now_us if moment is None else moment for moment in due)
    return [None if life is None else start + life for start, life in zip(starts, lives, strict=False)]


def _checked_id(dedup_id: Any) -> str | None:
    if dedup_id is not None:
        check_text("dedup_id", dedup_id)
        check_dedup_id(dedup_id)
    return cast("str | None", dedup_id)


def _checked_partition(partition: Any, settings: TopicSettings) -> int | None:
    check_partition(partition, settings)
    return cast("int | None", partition)


def _check_sizes(batch: Batch, limits: StorageSettings) -> None:
    """Raise MessageTooLarge for a message that is over a limit."""
    batch.bytes = size = _all_bytes(batch)
    # With very many headers, what the frame adds to them counts as well.
    headers_count = 0 if batch.pairs is None else len(batch.pairs.names)
    overhead = ENTRY_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * headers_count
    # Together no larger than one may be, none of them is too large.
    if size <= limits.message_bytes_max and size + overhead <= limits.frame_raw_bytes_max:
        return
    for index, own in enumerate(batch.sizes()):
        check_size(own, limits.message_bytes_max, "message_bytes_max")
        overhead = ENTRY_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * len(
            batch.item(batch.headers, index) or ()
        )
        check_size(own + overhead, limits.frame_raw_bytes_max, "frame_raw_bytes_max")


def _all_bytes(batch: Batch) -> int:
    size = sum(map(len, batch.values))
    if batch.keys is not None:
        size += sum(map(len, filter(None, batch.keys)))
    if batch.pairs is not None:
        names = "".join(batch.pairs.names)
        size += len(names) if names.isascii() else len(names.encode())
        size += sum(map(len, batch.pairs.contents))
    if batch.dedup_ids is not None:
        size += sum(len(each.encode()) for each in batch.dedup_ids if each is not None)
    return size


def message_bytes(value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> int:
    """About how much room a message takes."""
    size = len(value) + len(key or b"")
    return size + sum(4 * len(name) + len(content) + 8 for name, content in (headers or {}).items())


def _due(delay: Period | None, deliver_at: Moment | None, clock: SteadyClock, now_us: int) -> int | None:
    if delay is not None:
        if deliver_at is not None:
            raise InvalidRequest("a message has a delay or a deliver_at, not both")
        delay_us = seconds_us("delay", delay, lowest=0)
        return now_us + delay_us if delay_us else None
    if deliver_at is None:
        return None
    moment = moment_us("deliver_at", deliver_at)
    if isinstance(deliver_at, int) and moment < _LATE_ENOUGH_US:
        raise InvalidRequest(
            f"deliver_at {moment} looks like seconds: give unix seconds as a float, or unix microseconds"
        )
    due = clock.from_wall(moment)
    return due if due > now_us else None


def _window_us(window: Period | None, dedup_id: str | None) -> int | None:
    if window is None:
        return None
    if dedup_id is None:
        raise InvalidRequest("a dedup_window is how long a dedup_id is remembered: give it one")
    return seconds_us("dedup_window", window, lowest=0.001)
