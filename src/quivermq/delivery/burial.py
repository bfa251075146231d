"""Giving messages up: to the dead-letter topic, exactly once, whatever dies in between.

The intent is in the journal, durably, before the dead letter is written, and the dead letter is durable
before the message is finished. See topic/transfer.py for how a crash in between is told.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from quivermq.delivery import journal
from quivermq.delivery.dead_letters import STORY_BYTES, Origin, Verdict, dead_letter_headers
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


class Graves(NamedTuple):
    """Where dead letters go, and how to wake those who wait for them."""

    partitions: list[Partition]
    ring: Callable[[int], None]


def bury(
    partition: Partition,
    notes: StateLog,
    graves: Graves,
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
        intent = journal.burying(origin.lane, transfer, (grave_number, grave.end), runs(offsets))
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
    return message_bytes(record.value, record.key, record.headers) + STORY_BYTES
