"""What a topic knows of ids and producers, as records of its state log, and as they bring it about."""

from collections.abc import Iterator, Mapping

from quivermq.errors import InvalidFrame
from quivermq.frame import Header
from quivermq.model.lanes import PartitionLane
from quivermq.topic.dedup_index import DedupEntry, DedupIndex
from quivermq.topic.producers import ProducedBatch, Producers
from quivermq.topic.records import pack, unpack

_ID, _SCHEDULED, _FORGOTTEN, _BATCH, _CHECKPOINT, _BEGUN, _FIRST, _KNOWN_SINCE = range(1, 9)


class DedupState:
    """The ids, the producers, and up to where the lanes were looked at. Its owner holds a lock."""

    def __init__(self, entries_max: int) -> None:
        self.ids = DedupIndex(entries_max)
        self.producers = Producers()
        self.checkpoint: dict[PartitionLane, int] = {}

    def apply(self, record: bytes) -> None:
        """Take a change in. Raises InvalidFrame for one that this release does not know."""
        for kind, lane, numbers, text in unpack(record):
            if kind == _ID:
                time, partition, offset, *until = numbers
                entry = DedupEntry(time, partition, lane, offset, until=until[0] if until else None)
                self.ids.add(text.decode(), entry)
            elif kind == _SCHEDULED:
                scheduled_id, _, dedup_id = text.partition(b"\0")
                time, partition, floor, *until = numbers
                end = until[0] if until else None
                entry = DedupEntry(time, partition, lane, None, scheduled_id.decode(), floor, end)
                self.ids.add(dedup_id.decode(), entry)
            elif kind == _FORGOTTEN:
                self.ids.remove(text.decode())
            elif kind == _BATCH:
                partition, producer_id, epoch, *batch, time_us = numbers
                place = producer_id % 2**64, (partition, lane), epoch
                self.producers.add_batch(*place, ProducedBatch(*batch), time_us)
            elif kind == _FIRST:
                partition, producer_id, epoch, first, time_us = numbers
                self.producers.add_lane(producer_id % 2**64, (partition, lane), epoch, first, time_us)
            elif kind == _BEGUN:
                producer_id, epoch, time_us = numbers
                self.producers.add_begun(producer_id % 2**64, epoch, time_us)
            elif kind == _KNOWN_SINCE:
                self.producers.forgot_before(*numbers)
            elif kind == _CHECKPOINT:
                places = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
                self.checkpoint.update(((p, lane), end) for p, lane, end in places)
            else:
                raise InvalidFrame(f"a record of deduplication of kind {kind} is not known", position=0)

    def cut(self, ends: Mapping[PartitionLane, int]) -> bool:
        """Forget what lies behind the ends of the lanes, and be in order again. Whether anything did."""
        is_cut = False
        for dedup_id, entry in list(self.ids):
            end = ends.get((entry.partition, entry.lane), 0)
            if entry.offset is not None and entry.offset >= end:
                is_cut = True
                self.ids.remove(dedup_id)
            elif entry.floor > end:
                is_cut = True
                self.ids.add(dedup_id, entry._replace(floor=end))
        self.ids.sort()
        return self.producers.cut(ends) or is_cut

    def snapshot(self) -> Iterator[bytes]:
        """The records that bring it about from nothing."""
        yield self.checkpoint_record()
        for dedup_id, entry in self.ids:
            yield id_record(dedup_id, entry)
        yield pack(_KNOWN_SINCE, 0, (self.producers.known_since_us,))
        for producer_id, producer in self.producers:
            signed, time_us = _signed(producer_id), producer.time_us
            if producer.begun >= 0:
                yield pack(_BEGUN, 0, (signed, producer.begun, time_us))
            for (partition, lane), there in producer.lanes.items():
                yield pack(_FIRST, lane, (partition, signed, there.epoch, there.first, time_us))
                for batch in there.batches:
                    yield pack(_BATCH, lane, (partition, signed, there.epoch, *batch, time_us))

    def checkpoint_record(self) -> bytes:
        flat = (number for (p, lane), end in self.checkpoint.items() for number in (p, lane, end))
        return pack(_CHECKPOINT, 0, flat)


def id_record(dedup_id: str, entry: DedupEntry) -> bytes:
    """Where the first message of an id is, or that it is delayed."""
    until = () if entry.until is None else (entry.until,)
    if entry.offset is not None:
        return pack(_ID, entry.lane, (entry.time, entry.partition, entry.offset, *until), dedup_id.encode())
    text = (entry.scheduled_id or "").encode() + b"\0" + dedup_id.encode()
    return pack(_SCHEDULED, entry.lane, (entry.time, entry.partition, entry.floor, *until), text)


def forgotten_record(dedup_id: str) -> bytes:
    """That the delayed message of an id was cancelled."""
    return pack(_FORGOTTEN, 0, (), dedup_id.encode())


def batch_record(partition: int, lane: int, header: Header, base_offset: int, time_us: int) -> bytes:
    """That a producer sent a batch."""
    numbers = (
        partition,
        _signed(header.producer_id),
        header.producer_epoch,
        header.base_sequence,
        header.message_count,
        base_offset,
        time_us,
    )
    return pack(_BATCH, lane, numbers)


def begun_record(producer_id: int, epoch: int, time_us: int) -> bytes:
    """That a producer has this epoch from now on."""
    return pack(_BEGUN, 0, (_signed(producer_id), epoch, time_us))


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
