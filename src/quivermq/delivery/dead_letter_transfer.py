"""Giving messages up: into the dead-letter topic, exactly once, whatever dies in between.

The intent is in the journal, durably, before the dead letter is written, and the dead letter is durable
before the message is finished. topic/transfer.py finds out what a crash in between has left.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from quivermq.delivery import journal
from quivermq.delivery.cursor_state import CursorState
from quivermq.delivery.dead_letters import DeadLetterTopic, Origin, Verdict, dead_letter_headers
from quivermq.delivery.fresh import messages_at
from quivermq.errors import DiskRefused, QuiverError
from quivermq.frame import Flag
from quivermq.log import Log
from quivermq.model.dead_letters import DLQ_HEADER_BYTES_MAX
from quivermq.model.lanes import NORMAL
from quivermq.model.messages import Record
from quivermq.topic.incoming import message_bytes
from quivermq.topic.offsets import runs
from quivermq.topic.partition import Partition
from quivermq.topic.splitting import FrameLimits, split
from quivermq.topic.state_log import StateLog
from quivermq.topic.transfer import new_transfer, transfer_producer

logger = logging.getLogger(__name__)

# How long to wait before a dead letter that could not be written is tried again.
DEAD_LETTER_RETRY_US = 1_000_000

_REPORT_PAUSE_US = 1_000_000
_EXAMPLES = 3
_OFFSETS_KEPT = 100


class DeadLetterWriter:
    """The part of a cursor that gives messages up. Whoever calls holds the lock of the shared state."""

    def __init__(self, shared: CursorState) -> None:
        self._shared = shared
        self._report = DeadLetterReport()

    def dead_letter(self, lane: int, verdicts: dict[int, Verdict], now_us: int) -> None:
        """Make messages dead letters and finish them; drop them where the topic wants no dead letters.

        Raises DiskRefused and StorageFailed; what was written until then is finished.
        """
        shared = self._shared
        if not shared.settings.dead_letters:
            self._drop(lane, list(verdicts))
            return
        origin = Origin(shared.partition.topic, shared.partition.number, lane, shared.group)
        shared.finish_transfers()
        target = shared.dead_letter_topic(True)
        assert target is not None, "it was to be made"
        moved = move_dead_letters(
            shared.partition,
            shared.journal,
            target,
            origin=origin,
            verdicts=verdicts,
            now_us=now_us,
            open_transfers=shared.open_transfers,
        )
        for offsets in moved:
            # They are dead letters now, also when there is no room for the note of it.
            shared.pending_transfers += journal.finished(lane, runs(offsets))
            shared.finish(lane, offsets)
            with suppress(DiskRefused):
                shared.finish_transfers()
            shared.meter.dead_lettered.add(len(offsets))
            self._report.add(origin, offsets, now_us)

    def try_dead_letter(self, lane: int, verdicts: dict[int, Verdict], now_us: int) -> None:
        """The same, but only log what keeps them from it: they wait, and come here again."""
        try:
            self.dead_letter(lane, verdicts, now_us)
        except QuiverError as error:
            logger.error("dead letters of %s wait: %s", self._shared.journal.name, error)

    def report(self, now_us: int, *, is_final: bool = False) -> None:
        """Log the dead letters that wait to be logged together, if it is time; with `is_final` at once."""
        self._report.log(now_us, is_final=is_final)

    def _drop(self, lane: int, offsets: list[int]) -> None:
        shared = self._shared
        shared.journal.sync(shared.append(journal.finished(lane, runs(offsets))))
        shared.finish(lane, offsets)
        shared.meter.dropped.add(len(offsets))
        topic, partition = shared.partition.topic, shared.partition.number
        logger.warning(
            "%d messages of %s were given up and dropped: dead_letters is off",
            *(len(offsets), topic),
            extra={"topic": topic, "partition": partition, "group": shared.group, "offsets": offsets[:100]},
        )


def move_dead_letters(
    partition: Partition,
    state_log: StateLog,
    target: DeadLetterTopic,
    *,
    origin: Origin,
    verdicts: dict[int, Verdict],
    now_us: int,
    open_transfers: dict[int, bytes],
) -> Iterator[list[int]]:
    """Move messages to the dead-letter topic, batch by batch; yields the offsets that are finished.

    The caller notes that they are, before it does anything else with them. `open_transfers` has the intents
    of which nobody knows whether the dead letters are there.
    """
    number = target.number_for(origin.partition)
    log = target.partitions[number].log(NORMAL)
    lost = set(verdicts)
    # Read as they are moved: all of them together may be larger than memory.
    records = messages_at(partition, origin.lane, verdicts.keys())
    for batch in split(records, _size, FrameLimits.of(log.settings)):
        offsets = [record.offset for record in batch]
        transfer = new_transfer()
        intent = journal.dead_lettering(origin.lane, transfer, (number, log.end), runs(offsets))
        # No intent for a log that takes nothing any more.
        log.flush()
        open_transfers[transfer] = intent
        try:
            state_log.sync(state_log.append(intent))
            _append(log, batch, transfer, origin=origin, verdicts=verdicts, now_us=now_us)
        except DiskRefused:
            del open_transfers[transfer]
            raise
        target.wake(len(batch))
        yield offsets
        del open_transfers[transfer]
        lost.difference_update(offsets)
    if lost:
        # Retention or compaction has taken them meanwhile.
        yield sorted(lost)


def _append(
    log: Log,
    batch: list[Record],
    transfer: int,
    *,
    origin: Origin,
    verdicts: dict[int, Verdict],
    now_us: int,
) -> None:
    log.append_many(
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


class DeadLetterReport:
    """Logs dead letters: the first at once, and many that follow in one line a second."""

    def __init__(self) -> None:
        self._logged_us: int | None = None
        self._count = 0
        self._offsets: list[int] = []
        self._origin: Origin | None = None

    def add(self, origin: Origin, offsets: Sequence[int], now_us: int) -> None:
        """Note dead letters, and log them unless others were logged a moment ago."""
        self._origin = origin
        self._count += len(offsets)
        self._offsets += offsets[: _OFFSETS_KEPT - len(self._offsets)]
        self.log(now_us)

    def log(self, now_us: int, *, is_final: bool = False) -> None:
        """Log what was noted, if there is something and it is time, or nothing will follow."""
        last_us = self._logged_us
        is_time = last_us is None or not last_us <= now_us < last_us + _REPORT_PAUSE_US
        if not self._count or not (is_time or is_final):
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
        self._logged_us, self._count, self._offsets = now_us, 0, []
