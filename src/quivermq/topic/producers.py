"""The producers of a topic: which epoch each has, and its batches in every lane. Only in memory.

Whoever was quiet for longest is forgotten first, and always as a whole: of a producer that is known,
everything is known. A few are remembered for ever, and more for some days; only where there are too many
even for that, the oldest go sooner. `known_since_us` says how far back it reaches.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from quivermq.errors import Conflict
from quivermq.frame import Header
from quivermq.model.lanes import PartitionLane

logger = logging.getLogger(__name__)

BATCHES_MAX = 64
# A producer takes one place, and one more for each lane that it has written to.
PLACES_KEPT = 10_000
PLACES_MAX = 200_000
KEPT_US = 7 * 24 * 3600 * 1_000_000

_SEQUENCES = 2**32
_NEVER_BEGUN = -1


class ProducedBatch(NamedTuple):
    """One frame of a producer."""

    base_sequence: int
    messages: int
    base_offset: int


class InLane:
    """A producer in one lane: its batches of one epoch, and where its first one of all epochs lies."""

    __slots__ = ("batches", "epoch", "first")

    def __init__(self, epoch: int, first: int) -> None:
        self.epoch = epoch
        self.first = first
        self.batches: list[ProducedBatch] = []

    def add(self, batch: ProducedBatch) -> None:
        if batch not in self.batches:
            self.batches.append(batch)
            # One that was not written along is found in its lane, after later ones that were.
            if len(self.batches) > 1 and self.batches[-2].base_offset > batch.base_offset:
                self.batches.sort(key=attrgetter("base_offset"))
            # A list takes less than a deque, and nearly all producers have just a few.
            del self.batches[:-BATCHES_MAX]


class KnownProducer:
    """What is known of a producer, and when it was last heard of."""

    __slots__ = ("begun", "lanes", "time_us")

    def __init__(self, time_us: int) -> None:
        self.time_us = time_us
        # The epoch that it was given; -1 when it took one by itself.
        self.begun = _NEVER_BEGUN
        self.lanes: dict[PartitionLane, InLane] = {}

    @property
    def places(self) -> int:
        return 1 + len(self.lanes)

    @property
    def epoch(self) -> int:
        """The last one that it had anywhere; -1 for none."""
        return max(self.begun, *(lane.epoch for lane in self.lanes.values()), _NEVER_BEGUN)


class Producers:
    """All that a topic remembers. Its owner holds a lock."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, KnownProducer] = OrderedDict()
        self._places = 0
        self.known_since_us = 0
        """Every producer that was heard of at this time or later is known."""

    def __iter__(self) -> Iterator[tuple[int, KnownProducer]]:
        """Those that were heard of last come last."""
        return iter(self._known.items())

    @property
    def places(self) -> int:
        """How much is remembered."""
        return self._places

    def get(self, producer_id: int) -> KnownProducer | None:
        return self._known.get(producer_id)

    def find_batch(self, lane: PartitionLane, header: Header) -> int | None:
        """The offset of a batch that came in before; None when it is the next one.

        Raises Conflict for one of an older epoch, one that leaves out some, and one so old that nobody
        remembers where it is.
        """
        producer = self._known.get(header.producer_id)
        if producer is None:
            return None
        there = producer.lanes.get(lane)
        epoch = producer.begun if there is None else max(producer.begun, there.epoch)
        if header.producer_epoch < epoch:
            raise Conflict(
                f"producer {header.producer_id} has epoch {epoch} by now, and this is from"
                f" {header.producer_epoch}: start it anew"
            )
        if there is None or header.producer_epoch > there.epoch or not there.batches:
            return None
        for batch in there.batches:
            if (batch.base_sequence, batch.messages) == (header.base_sequence, header.message_count):
                return batch.base_offset
        last = there.batches[-1]
        expected = (last.base_sequence + last.messages) % _SEQUENCES
        if header.base_sequence != expected:
            raise Conflict(
                f"producer {header.producer_id} goes on with sequence {expected}, not"
                f" {header.base_sequence}: something is missing, or this is a very old repetition"
            )
        return None

    def add_batch(
        self, producer_id: int, lane: PartitionLane, epoch: int, batch: ProducedBatch, time_us: int
    ) -> None:
        """Take in a batch of a producer."""
        there = self.add_lane(producer_id, lane, epoch, batch.base_offset, time_us)
        if there.epoch == epoch:
            there.add(batch)

    def add_lane(
        self, producer_id: int, lane: PartitionLane, epoch: int, first: int, time_us: int
    ) -> InLane:
        """The producer in that lane, in that epoch or a later one; it has been there since `first`."""
        producer = self._heard_of(producer_id, time_us)
        there = producer.lanes.get(lane)
        if there is None:
            there = producer.lanes[lane] = InLane(epoch, first)
            self._places += 1
        if there.epoch < epoch:
            there.epoch = epoch
            there.batches.clear()
        there.first = min(there.first, first)
        return there

    def add_begun(self, producer_id: int, epoch: int, time_us: int) -> None:
        """A producer has this epoch from now on, in every lane."""
        producer = self._heard_of(producer_id, time_us)
        producer.begun = max(producer.begun, epoch)

    def forget(self, now_us: int) -> None:
        """Keep within bounds. Not while a log is replayed, which does not go by the time."""
        while self._places > PLACES_KEPT and self._oldest.time_us < now_us - KEPT_US:
            self._forget_oldest()
        if self._places > PLACES_MAX:
            # Some more than one, so that not every batch from now on says so.
            while self._places > PLACES_MAX * 9 // 10 and len(self._known) > 1:
                self._forget_oldest()
            logger.warning(
                "too many producers: those last heard of more than %d s ago are forgotten, and what they"
                " repeat is not recognised any more",
                max(now_us - self.known_since_us, 0) // 1_000_000,
            )

    def forgot_before(self, time_us: int) -> None:
        """Not everybody is known who was last heard of before that time."""
        self.known_since_us = max(self.known_since_us, time_us)

    def cut(self, ends: Mapping[PartitionLane, int]) -> bool:
        """Forget what lies behind the ends of the lanes, and be in order again. Whether anything did."""
        is_cut = False
        for producer_id, producer in list(self._known.items()):
            for lane, there in list(producer.lanes.items()):
                end = ends.get(lane, 0)
                is_cut |= any(batch.base_offset >= end for batch in there.batches) or there.first >= end
                there.batches = [batch for batch in there.batches if batch.base_offset < end]
                if there.first >= end:
                    del producer.lanes[lane]
                    self._places -= 1
            if not producer.lanes and producer.begun == _NEVER_BEGUN:
                del self._known[producer_id]
                self._places -= 1
        self._known = OrderedDict(sorted(self._known.items(), key=lambda item: item[1].time_us))
        return is_cut

    def _heard_of(self, producer_id: int, time_us: int) -> KnownProducer:
        producer = self._known.get(producer_id)
        if producer is None:
            producer = self._known[producer_id] = KnownProducer(time_us)
            self._places += 1
        else:
            producer.time_us = max(producer.time_us, time_us)
            self._known.move_to_end(producer_id)
        return producer

    @property
    def _oldest(self) -> KnownProducer:
        return next(iter(self._known.values()))

    def _forget_oldest(self) -> None:
        _, producer = self._known.popitem(last=False)
        self._places -= producer.places
        self.forgot_before(producer.time_us + 1)
