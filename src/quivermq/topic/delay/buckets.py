"""Logs that each hold the messages of one span of due times.

The farther away a message is due, the wider is the span: so there are few files, whatever the delays
are, and few messages in the ones that are looked at soon. A bucket is called by its epoch, its width and
its start, both in hours, and a serial number that no other bucket of the store ever has.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from quivermq.log import DataDirectory, Log
from quivermq.settings import StorageSettings
from quivermq.topic.offsets import OffsetSet

HOUR_US = 3600 * 1_000_000
_DAY = 24
# How wide a bucket is, and how far ahead messages may be due to go there, in hours.
_WIDTHS = (
    (1, 2 * _DAY),
    (_DAY, 64 * _DAY),
    (32 * _DAY, 2048 * _DAY),
    (1024 * _DAY, 65536 * _DAY),
    (32768 * _DAY, None),
)
# Each has two files open.
_OPEN_MAX = 128
_NAME = re.compile(r"(\d{1,10})-(\d{1,6})-(\d{1,10})-(\d{1,10})", re.ASCII)
# The limits are for what comes in from outside, and that was checked: here each message has a little more.
_BODY_BYTES_MAX = 2**31 - 1
_MESSAGE_BYTES_MAX = _BODY_BYTES_MAX - 64 * 1024


@dataclass(slots=True, eq=False)
class Bucket:
    """One of the logs, and what is known of it."""

    epoch: int
    hours: int
    start_hour: int
    serial: int
    cancelled: OffsetSet = field(default_factory=OffsetSet)
    pending: int = 0
    # How many of its offsets a repair has left empty, as far as somebody has looked.
    gaps: int = 0

    @property
    def name(self) -> str:
        return f"{self.epoch}-{self.hours}-{self.start_hour}-{self.serial}"

    @property
    def start_us(self) -> int:
        return self.start_hour * HOUR_US

    @property
    def end_us(self) -> int:
        return (self.start_hour + self.hours) * HOUR_US

    @property
    def span(self) -> tuple[int, int, int]:
        """What only one bucket at a time has."""
        return self.epoch, self.hours, self.start_hour


def parse_bucket(name: str) -> Bucket | None:
    """The bucket of that name; None when it is not the name of one."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    epoch, hours, start_hour, serial = map(int, match.groups())
    bucket = Bucket(epoch, hours, start_hour, serial)
    return bucket if bucket.name == name else None


# The first serial number of a store, and how far it is to the next: the shares of a wide topic number their
# buckets differently, so that no two of them give a message the same id.
Serials = tuple[int, int]


class Buckets:
    """The buckets of one store. Not thread-safe: the store's lock guards it."""

    def __init__(
        self, directory: DataDirectory, name: str, settings: StorageSettings, serials: Serials
    ) -> None:
        self._directory = directory
        self._name = name
        self._settings = bucket_settings(settings)
        self._by_serial: dict[int, Bucket] = {}
        self._by_span: dict[tuple[int, int, int], Bucket] = {}
        # The one that was used last comes last.
        self._open: dict[str, Log] = {}
        self.next_serial, self._step = serials

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._by_serial.values())

    def add(self, bucket: Bucket) -> None:
        self._by_serial[bucket.serial] = bucket
        self.next_serial = max(self.next_serial, bucket.serial + self._step)
        # There are two of a span when the first could not be made on a full disk.
        other = self._by_span.get(bucket.span)
        if other is None or other.serial < bucket.serial:
            self._by_span[bucket.span] = bucket

    def get(self, serial: int) -> Bucket | None:
        return self._by_serial.get(serial)

    def __getitem__(self, serial: int) -> Bucket:
        return self._by_serial[serial]

    def for_message(self, epoch: int, due: int, now_us: int) -> Bucket:
        """Where a message that is due then is put now.

        Never into a wider bucket than an earlier message of the same due time: so, of two such messages,
        the later one is in the same bucket behind it, or in one with a higher serial number.
        """
        hour, ahead = due // HOUR_US, (due - now_us) // HOUR_US
        for hours, horizon in _WIDTHS:
            start_hour = hour - hour % hours
            bucket = self._by_span.get((epoch, hours, start_hour))
            if bucket is None and (horizon is None or ahead < horizon):
                bucket = self._make(epoch, hours, start_hour)
            if bucket is not None:
                return bucket
        raise AssertionError("the last horizon has no end")

    def _make(self, epoch: int, hours: int, start_hour: int) -> Bucket:
        bucket = Bucket(epoch, hours, start_hour, self.next_serial)
        # On a full disk it may not come to be, and yet leave its directory.
        self.next_serial += self._step
        self.log(bucket)
        self.add(bucket)
        return bucket

    def log(self, bucket: Bucket) -> Log:
        """The log of a bucket, opened if it is not. Closes the one that was not used for longest."""
        name = bucket.name
        log = self._open.pop(name, None)
        if log is None or log.is_closed:
            log = self._directory.log(f"{self._name}/{name}", self._settings)
        self._open[name] = log
        if len(self._open) > _OPEN_MAX:
            self._release(next(iter(self._open)))
        return log

    def open_logs(self) -> list[Log]:
        """Those of which something may not be synced: closing a log syncs it."""
        return list(self._open.values())

    def take_out(self, buckets: Iterable[Bucket]) -> None:
        """Forget buckets whose files are about to go."""
        for bucket in buckets:
            del self._by_serial[bucket.serial]
            if self._by_span[bucket.span] is bucket:
                del self._by_span[bucket.span]
            self._open.pop(bucket.name, None)

    def configure(self, settings: StorageSettings) -> None:
        self._settings = bucket_settings(settings)
        for log in self._open.values():
            log.configure(self._settings)

    def close(self) -> None:
        for name in list(self._open):
            self._release(name)

    def _release(self, name: str) -> None:
        del self._open[name]
        self._directory.release(f"{self._name}/{name}")


def bucket_settings(settings: StorageSettings) -> StorageSettings:
    """A bucket is kept until all of it is released, and takes what its topic has let in."""
    return replace(
        settings,
        segment_ms=None,
        retention_ms=None,
        retention_bytes=None,
        retention_messages=None,
        segments_max=None,
        segments_min=1,
        message_bytes_max=_MESSAGE_BYTES_MAX,
        frame_messages_max=max(settings.frame_messages_max, 1_000_000),
        frame_bytes_max=_BODY_BYTES_MAX,
        frame_raw_bytes_max=_BODY_BYTES_MAX,
    )
