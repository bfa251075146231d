"""Giving messages up: to the dead-letter topic, exactly once, whatever dies in between.

The intent is in the journal, durably, before the dead letter is written, and the dead letter is durable
before the message is finished. See topic/transfer.py for how a crash in between is told.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from quivermq.delivery import journal
from quivermq.delivery.dead_letters import DLQ_HEADER_BYTES_MAX, Origin, Verdict, dead_letter_headers
from quivermq.delivery.fresh import messages_at
from quivermq.errors import DiskRefused
from quivermq.frame import Flag, Record
from quivermq.log import Log
from quivermq.topic.incoming import message_bytes
from quivermq.topic.offsets import runs
from quivermq.topic.partition import LANE_NUMBERS, Partition
from quivermq.topic.splitting import FrameLimits, split
from quivermq.topic.state_log import StateLog
from quivermq.topic.transfer import new_transfer, transfer_producer


class DeadLetterTopic(NamedTuple):
    """Where dead letters go, and how to wake those who wait for them."""

    partitions: list[Partition]
    ring: Callable[[int], None]


def bury(
    partition: Partition,
    notes: StateLog,
    graves: DeadLetterTopic,
    origin: Origin,
    verdicts: dict[int, Verdict],
    now_us: int,
    open_burials: dict[int, bytes],
) -> Iterator[list[int]]:
    """Move messages to the dead letters, batch by batch; yields the offsets that are finished.

    The caller notes that they are, before it does anything else with them. `open_burials` has the
    intents of which nobody knows whether the dead letters are there.
    """
    grave_number = origin.partition % len(graves.partitions)
    grave = graves.partitions[grave_number].log(LANE_NUMBERS["normal"])
    lost = set(verdicts)
    # Read as they are buried: all of them together may be larger than memory.
    records = messages_at(partition, origin.lane, verdicts.keys())
    for batch in split(records, _size, FrameLimits.of(grave.settings)):
        offsets = [record.offset for record in batch]
        transfer = new_transfer()
        intent = journal.dead_lettering(origin.lane, transfer, (grave_number, grave.end), runs(offsets))
        # A grave that takes nothing any more is not promised anything.
        grave.flush()
        open_burials[transfer] = intent
        try:
            notes.sync(notes.append(intent))
            _append(grave, batch, origin, verdicts, now_us, transfer)
        except DiskRefused:
            del open_burials[transfer]
            raise
        graves.ring(len(batch))
        yield offsets
        del open_burials[transfer]
        lost.difference_update(offsets)
    if lost:
        # Retention or compaction has taken them meanwhile.
        yield sorted(lost)


def _append(
    grave: Log,
    batch: list[Record],
    origin: Origin,
    verdicts: dict[int, Verdict],
    now_us: int,
    transfer: int,
) -> None:
    grave.append_many(
        [record.value for record in batch],
        timestamp=now_us,
        keys=[record.key for record in batch],
        headers=[dead_letter_headers(r, origin, verdicts[r.offset], now_us) for r in batch],
        origin_ids=[record.origin_id for record in batch],
        producer=transfer_producer(transfer),
        flags=Flag.DEAD_LETTERS,
        durability="fsync",
        is_moved=True,
    )


def _size(record: Record) -> int:
    return message_bytes(record.value, record.key, record.headers) + DLQ_HEADER_BYTES_MAX


logger = logging.getLogger(__name__)

_PAUSE_US = 1_000_000
_EXAMPLES = 3
_OFFSETS_KEPT = 100


class DeadLetterReport:
    """What became dead letters and was not told yet. Whoever calls holds the lock of the partition."""

    def __init__(self) -> None:
        self._told_us: int | None = None
        self._count = 0
        self._offsets: list[int] = []
        self._origin: Origin | None = None

    def add(self, origin: Origin, offsets: Sequence[int], now_us: int) -> None:
        """Note dead letters, and tell of them unless others were told of a moment ago."""
        self._origin = origin
        self._count += len(offsets)
        self._offsets += offsets[: _OFFSETS_KEPT - len(self._offsets)]
        self.tell(now_us)

    def tell(self, now_us: int, *, is_last: bool = False) -> None:
        """Tell what was not told, if there is something and it is time."""
        is_time = self._told_us is None or not self._told_us <= now_us < self._told_us + _PAUSE_US
        if not self._count or not (is_time or is_last):
            return
        origin = self._origin
        assert origin is not None, "who adds says where they came from"
        examples = ", ".join(map(str, self._offsets[:_EXAMPLES]))
        logger.warning(
            "dead letters of %s: %d more%s",
            origin.topic,
            self._count,
            ""
            if self._count <= _EXAMPLES
            else f", such as offsets {examples} of partition {origin.partition}",
            extra={
                "topic": origin.topic,
                "partition": origin.partition,
                "group": origin.group,
                "offsets": self._offsets,
            },
        )
        self._told_us, self._count, self._offsets = now_us, 0, []
