"""What a producer hands over, checked in full before anything is written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from operator import add, itemgetter
from typing import Any, TypeVar, cast

from quivermq.clock import SteadyClock
from quivermq.errors import InvalidRequest
from quivermq.frame import (
    CheckedHeaders,
    EntryFields,
    Headers,
    JoinedBytes,
    JoinedHeaders,
    Times,
    joined_bytes,
)
from quivermq.log.entries import (
    ENTRY_OVERHEAD_BYTES,
    HEADER_OVERHEAD_BYTES,
    NOTHING,
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
from quivermq.model.lanes import NORMAL, PartitionLane, lane_number
from quivermq.model.messages import Message
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.routing import Router
from quivermq.topic.splitting import OVERHEAD_BYTES, FrameLimits, split

T = TypeVar("T")

_NO_HEADERS: Headers = {}


# 1973 in microseconds: a smaller number was meant as seconds or milliseconds.
_LATE_ENOUGH_US = 10**14
_NOTHING, _BYTES, _INTS = {type(None)}, {bytes}, {int}


# One message that is certain to be storable: its value; the rest of it, None where it is just a value; its
# lane; its partition, if it was given; when it is due, if it is delayed; how long its deduplication id is
# remembered, if it says so; and the settings of the topic by which it was checked. A plain tuple, because
# names would cost more than the check of a message that is just a value.
CheckedMessage = tuple[bytes, EntryFields | None, int, int | None, int | None, int | None, TopicSettings]


def is_delayed(message: CheckedMessage) -> bool:
    """Whether a message has to wait until it is due."""
    _, _, _, _, due, _, _ = message
    return due is not None


@dataclass(slots=True)
class Batch:
    """Messages that are certain to be storable, column by column: None for a column that nobody has."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers | None] | None = None
    """The caller's own, who may change them later: they are looked at while the call lasts."""
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
    joined_headers: JoinedHeaders | None = None
    """The headers, as they are stored, and as they were when they were checked."""
    times: Times | None = None
    """The timestamps likewise, where all have one."""
    settings: TopicSettings | None = field(default=None, compare=False)
    """Those of the topic by which it was checked."""
    joined_values: JoinedBytes = field(init=False)
    joined_keys: JoinedBytes | None = field(init=False, default=None)
    """The keys, where all have one."""
    bytes: int = field(init=False)
    """Of all messages together, as `message_bytes_max` counts them."""

    def __post_init__(self) -> None:
        data = b"".join(self.values)
        self.joined_values = joined_bytes((self.values, data))
        size = len(data)
        keys: Sequence[Any] | None = self.keys
        if keys is not None:
            try:
                data = b"".join(keys)
                self.joined_keys = joined_bytes((keys, data))
                size += len(data)
            except TypeError:
                # Not every message has one.
                size += sum(map(len, filter(None, keys)))
        if self.headers is not None:
            if self.joined_headers is None:
                self.joined_headers = JoinedHeaders.of(self.headers)
            size += self.joined_headers.size
        if self.dedup_ids is not None:
            size += sum(len(each.encode()) for each in self.dedup_ids if each is not None)
        self.bytes = size

    @classmethod
    def of(cls, messages: Sequence[CheckedMessage]) -> "Batch":
        """Messages that were checked one by one."""
        values, rests, lanes, partitions, due, windows_us, settings = zip(*messages, strict=True)
        checked_by = settings[0] if settings.count(settings[0]) == len(settings) else None
        nobody = (None,) * len(messages)
        if rests == nobody and lanes.count(NORMAL) == len(lanes) and partitions == due == nobody:
            return cls(values, settings=checked_by)
        rows = [NOTHING if rest is None else rest for rest in rests]
        keys, headers, timestamps, expires_at, dedup_ids = zip(*rows, strict=True)
        return cls(
            values,
            None if keys == nobody else keys,
            None if headers == nobody else headers,
            None if timestamps == nobody else timestamps,
            None if expires_at == nobody else expires_at,
            None if dedup_ids == nobody else dedup_ids,
            None if lanes.count(NORMAL) == len(lanes) else lanes,
            None if partitions == nobody else partitions,
            None if due == nobody else due,
            None if windows_us == nobody else windows_us,
            times=None if None in timestamps else Times.of(timestamps),
            settings=checked_by,
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_plain(self) -> bool:
        """Whether all messages are just values."""
        return self.keys is self.headers is self.timestamps is self.expires_at is self.dedup_ids is None

    def lane(self, index: int) -> int:
        return NORMAL if self.lanes is None else self.lanes[index]

    def item(self, column: Sequence[T | None] | None, index: int) -> T | None:
        """What a message has of a column."""
        return None if column is None else column[index]

    def rest(self, index: int) -> EntryFields:
        """A message beside its value, with headers that nobody else may change."""
        headers: Headers | None = None
        if self.headers is not None:
            headers = self.headers[index] or _NO_HEADERS
            if not isinstance(headers, CheckedHeaders):
                headers = frozen_headers(headers)
        return EntryFields(
            self.item(self.keys, index),
            headers,
            self.item(self.timestamps, index),
            self.item(self.expires_at, index),
            self.item(self.dedup_ids, index),
        )

    def chosen(self, indexes: Sequence[int]) -> "Batch":
        """Only some of the messages."""
        if len(indexes) == len(self.values):
            return self
        if not indexes:
            return Batch(())
        take = _taker(indexes)
        given = {name: getattr(self, name) for name in _COLUMNS}
        columns: dict[str, Any] = {
            name: take(column) for name, column in given.items() if column is not None
        }
        if self.times is not None:
            columns["times"] = Times.of(columns["timestamps"])
        return Batch(take(self.values), **columns, settings=self.settings)

    def route(self, router: Router) -> list[int]:
        """The partition of each message: the one it asks for, or the one that the router gives it."""
        if router.is_wide:
            return self._route_wide(router)
        if self.partitions is None and self.joined_keys is not None:
            return router.partitions_of(self.joined_keys.items)
        keys: Iterable[bytes | None] = repeat(None, len(self)) if self.keys is None else self.keys
        if self.partitions is None:
            return list(map(router.partition_of, keys))
        return [
            router.partition_of(key) if number is None else number
            for key, number in zip(keys, self.partitions, strict=True)
        ]

    def _route_wide(self, router: Router) -> list[int]:
        """The same of a wide topic. Raises InvalidRequest for what belongs on another shard."""
        numbers = []
        for index in range(len(self)):
            number = self.item(self.partitions, index)
            if number is None:
                number = router.wide_partition_of(
                    self.item(self.keys, index), self.item(self.dedup_ids, index)
                )
            router.check_own(number)
            numbers.append(number)
        return numbers

    def by_lane(self, partitions: Sequence[int], indexes: Sequence[int]) -> dict[PartitionLane, list[int]]:
        """Some of the messages, by their lanes; `partitions` has the partition of every message."""
        groups: dict[PartitionLane, list[int]] = {}
        lanes = repeat(NORMAL) if self.lanes is None else map(self.lanes.__getitem__, indexes)
        for number, lane, index in zip(map(partitions.__getitem__, indexes), lanes, indexes, strict=False):
            groups.setdefault((number, lane), []).append(index)
        return groups

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
        if not self.is_plain:
            room += OVERHEAD_BYTES * count
        if self.joined_headers is not None:
            room += HEADER_OVERHEAD_BYTES * self.joined_headers.pairs
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
        timestamp: int | Times | list[int] = now_us if self.times is None else self.times
        if self.times is None and self.timestamps is not None:
            timestamp = [now_us if given is None else given for given in self.timestamps]
        return {
            "values": self.joined_values,
            "keys": self.keys if self.joined_keys is None else self.joined_keys,
            "headers": self.joined_headers,
            "timestamp": timestamp,
            "expires_at": self.expires_at,
            "dedup_ids": self.dedup_ids,
        }


_COLUMNS = (
    *("keys", "headers", "timestamps", "expires_at", "dedup_ids"),
    *("lanes", "partitions", "due", "windows_us"),
)
_MESSAGES = {Message}


def _taker(indexes: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Takes what is at these indexes out of a column."""
    if isinstance(indexes, range):
        return itemgetter(slice(indexes.start, indexes.stop, indexes.step))
    # Of a single index it would take what is there, and not a column of it.
    return itemgetter(*indexes) if len(indexes) > 1 else itemgetter(slice(indexes[0], indexes[0] + 1))


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
    if kinds == _MESSAGES:
        batch = _checked_columns(cast("Sequence[Message]", messages), settings, clock)
    elif not messages or (kinds == _BYTES and settings.ttl_ms is None):
        batch = Batch(cast("Sequence[bytes]", messages), settings=settings)
    else:
        whole = [each if isinstance(each, Message) else Message(each) for each in messages]
        batch = _checked_columns(whole, settings, clock)
    check_sizes(batch, limits)
    return batch


def _checked_columns(messages: Sequence[Message], settings: TopicSettings, clock: SteadyClock) -> Batch:
    values, keys, headers, priorities, ttls, delays, moments, dedup_ids, timestamps, partitions, windows = (
        zip(*messages, strict=False)
    )
    nobody = (None,) * len(messages)
    now_us = clock.now_us()
    due = None
    if delays != nobody or moments != nobody:
        due = [due_us(*given, clock, now_us) for given in zip(delays, moments, strict=True)]
    checked_headers, joined_headers = (None, None) if headers == nobody else _checked_headers(headers)
    stamps, times = (None, None) if timestamps == nobody else _checked_timestamps(timestamps)
    return Batch(
        values if set(map(type, values)) == _BYTES else [frozen("value", value) for value in values],
        _checked_keys(keys),
        checked_headers,
        stamps,
        None if ttls == nobody and settings.ttl_ms is None else _expiries(ttls, due, settings, now_us),
        None if dedup_ids == nobody else list(map(checked_id, dedup_ids)),
        None if priorities.count("normal") == len(messages) else list(map(lane_number, priorities)),
        None if partitions == nobody else [_checked_partition(p, settings) for p in partitions],
        None if due is None or due.count(None) == len(messages) else due,
        None if windows == nobody else list(map(window_us_of, windows, dedup_ids)),
        joined_headers,
        times,
        settings,
    )


def _checked_keys(keys: Sequence[Any]) -> Sequence[bytes | None] | None:
    kinds = set(map(type, keys))
    if kinds == _NOTHING:
        return None
    if kinds <= _BYTES | _NOTHING:
        return keys
    return [None if key is None else frozen("key", key) for key in keys]


def _checked_headers(
    headers: Sequence[Any],
) -> tuple[Sequence[Headers | None] | None, JoinedHeaders | None]:
    """The headers, and the same as they are stored."""
    try:
        joined = JoinedHeaders.of(headers)
    except InvalidRequest:
        joined = None
    if joined is not None and joined.is_plain:
        return (joined.headers, joined) if joined.pairs else (None, None)
    # Which of them is wrong, or what has to be copied first, is seen one by one.
    checked = [frozen_headers(given) if given else _NO_HEADERS for given in headers]
    return (checked, JoinedHeaders.of(checked)) if any(checked) else (None, None)


def _checked_timestamps(timestamps: Sequence[Any]) -> tuple[Sequence[int | None] | None, Times | None]:
    """The timestamps, and the same as they are stored where all have one."""
    if set(map(type, timestamps)) == _INTS:
        with suppress(InvalidRequest):
            times = Times.of(timestamps)
            if UNMISTAKABLE_US[0] <= times.lowest and times.highest < UNMISTAKABLE_US[1]:
                return timestamps, times
    checked = [None if given is None else moment_us("timestamp", given) for given in timestamps]
    return checked, None if None in checked else Times.of(cast("list[int]", checked))


def _expiries(
    ttls: Sequence[Any], due: Sequence[int | None] | None, settings: TopicSettings, now_us: int
) -> Sequence[int | None]:
    starts = repeat(now_us) if due is None else (now_us if moment is None else moment for moment in due)
    return list(map(expiry_us, ttls, repeat(settings), starts))


def expiry_us(ttl: Period | None, settings: TopicSettings, start_us: int) -> int | None:
    """When a message expires that can be delivered from `start_us` on. Raises InvalidRequest."""
    if ttl is not None:
        return start_us + seconds_us("ttl", ttl, lowest=0.000_001)
    return None if settings.ttl_ms is None else start_us + settings.ttl_ms * 1000


def checked_id(dedup_id: Any) -> str | None:
    """A deduplication id that can be stored, or None. Raises InvalidRequest."""
    if dedup_id is not None:
        check_text("dedup_id", dedup_id)
        check_dedup_id(dedup_id)
    return cast("str | None", dedup_id)


def _checked_partition(partition: Any, settings: TopicSettings) -> int | None:
    check_partition(partition, settings)
    return cast("int | None", partition)


def check_sizes(batch: Batch, limits: StorageSettings) -> None:
    """Raise MessageTooLarge for a message that is over a limit."""
    size = batch.bytes
    # With very many headers, what the frame adds to them counts as well.
    overhead = ENTRY_OVERHEAD_BYTES
    if batch.joined_headers is not None:
        overhead += HEADER_OVERHEAD_BYTES * batch.joined_headers.pairs
    # Together no larger than one may be, none of them is too large.
    if size <= limits.message_bytes_max and size + overhead <= limits.frame_raw_bytes_max:
        return
    for index, own in enumerate(batch.sizes()):
        check_size(own, limits.message_bytes_max, "message_bytes_max")
        overhead = ENTRY_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * len(
            batch.item(batch.headers, index) or ()
        )
        check_size(own + overhead, limits.frame_raw_bytes_max, "frame_raw_bytes_max")


def message_bytes(value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> int:
    """About how much room a message takes in a frame, rather more than less.

    A character of a header's name takes up to four bytes.
    """
    size = len(value) + len(key or b"")
    return size + sum(4 * len(name) + len(content) + 8 for name, content in (headers or {}).items())


def due_us(delay: Period | None, deliver_at: Moment | None, clock: SteadyClock, now_us: int) -> int | None:
    """When a message is due that is delayed; None for one that is not. Raises InvalidRequest."""
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


def window_us_of(window: Period | None, dedup_id: str | None) -> int | None:
    """How long a deduplication id is remembered, if not for as long as the topic says."""
    if window is None:
        return None
    if dedup_id is None:
        raise InvalidRequest("a dedup_window is how long a dedup_id is remembered: give it one")
    return seconds_us("dedup_window", window, lowest=0.001)
