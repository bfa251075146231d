"""Bringing one stream of items into a topic: in chunks, each of them once, whatever dies in between.

The frames of a stream carry an id that every run of the import has. A run first takes the next epoch: from
then on nobody adds what an earlier run, which may still go on, sends. Then it looks for what the ledger
does not know yet, and leaves out what is there.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from quivermq.clock import Clock
from quivermq.delivery.adoption import RUNS_MAX
from quivermq.errors import Conflict, InvalidRequest
from quivermq.frame import Column, Frame, Producer, codec_named, has_removed
from quivermq.importers.encoding import STREAM, delayed_message, frame_of, identity_of, number_of
from quivermq.importers.ledger import Identities, Ledger
from quivermq.importers.model import Item
from quivermq.importers.target import ImportTarget
from quivermq.model.adoption import Progress, Tried
from quivermq.model.lanes import Lane
from quivermq.model.operations import TopicExtent
from quivermq.settings import StorageSettings
from quivermq.topic.splitting import FrameLimits

_CHUNK_MESSAGES = 10_000
# What a message takes in a frame besides what `item_bytes` counts, at most.
_OVERHEAD_BYTES = 64

T = TypeVar("T")


class ItemLocation(NamedTuple):
    """Where an item is now."""

    lane: Lane
    offset: int


class ItemRun(NamedTuple):
    """Items that lie behind each other."""

    lane: Lane
    first: int
    items: list[Item]


@dataclass(frozen=True, slots=True)
class StreamKey:
    """One partition of a source topic, or of its dead letters, in one topic here."""

    import_id: str
    is_dead: bool
    partition: int
    topic: str

    def __str__(self) -> str:
        return f"{self.import_id}/{'dead' if self.is_dead else 'live'}/{self.partition}"

    @property
    def producer_id(self) -> int:
        return number_of(str(self), self.topic)


class StreamImport:
    """Takes items in order, and knows those that are there already."""

    def __init__(
        self,
        key: StreamKey,
        view: TopicExtent,
        target: ImportTarget,
        ledger: Ledger,
        *,
        origin: str,
        groups: Sequence[str],
        clock: Clock,
        refuse: Callable[[Item, str], None],
        is_unique: bool,
        wanted: frozenset[int] = frozenset(),
    ) -> None:
        self.key = key
        self._name = str(key)
        self._view = view
        self._target = target
        self._ledger = ledger
        self._origin = origin
        self._groups = groups
        self._clock = clock
        self._refuse = refuse
        self._is_unique = is_unique
        self._wanted = wanted
        self.places: dict[int, ItemLocation] = {}
        """Where the wanted ones are."""
        self._codec = codec_named(view.settings.codec)
        # A chunk is never more than one frame of a lane may hold.
        self._chunk_bytes_max = FrameLimits.of(StorageSettings()).bytes
        self._sequences: dict[Lane, int] = {}
        self._chunk: list[Item] = []
        self._chunk_bytes = 0
        # Items that an earlier run put and did not note, and those of them that were met again.
        self._found: dict[int, ItemLocation | None] = {}
        self._met: list[tuple[Item, ItemLocation | None]] = []
        state = target.begin_producer(key.topic, key.producer_id)
        self._epoch = state.epoch
        self._state = ledger.state(self._name, view.created_us)
        self._note = partial(ledger.note, stream=self._name, created_us=view.created_us)
        self._is_begun = False
        if self._state.is_open:
            if not state.epoch:
                raise self._unknown("so many others have written to it since that this one was forgotten")
            self._look_behind({Lane(key.topic, p, priority): first for p, priority, first in state.batches})

    def has(self, item: Item) -> bool:
        """Whether an earlier run imported it."""
        if item.identity in self._state.done:
            return True
        if self._found and item.identity in self._found:
            self._met.append((item, self._found.pop(item.identity)))
            return True
        return False

    def add(self, item: Item, size_bytes: int) -> None:
        """Import it with the next chunk, of which it takes so much."""
        self._chunk_bytes += size_bytes + _OVERHEAD_BYTES
        if self._chunk_bytes > self._chunk_bytes_max and self._chunk:
            self.flush()
            self._chunk_bytes = size_bytes + _OVERHEAD_BYTES
        self._chunk.append(item)
        if len(self._chunk) >= _CHUNK_MESSAGES:
            self.flush()

    def flush(self) -> None:
        """Write what was added, and note it."""
        if not self._chunk and not self._met:
            return
        if not self._is_begun:
            self._note("begun")
            self._is_begun = True
        now_us = self._clock.now_us()
        delayed = [item for item in self._chunk if (item.deliver_at_us or 0) > now_us]
        if delayed:
            runs = self._put([item for item in self._chunk if (item.deliver_at_us or 0) <= now_us])
            self._note("delaying")
            delayed = [item for part in self._put_storable(self._delay, delayed) for item in part]
        else:
            runs = self._put(self._chunk)
        runs += [
            ItemRun(place.lane, place.offset, [item]) for item, place in self._met if place is not None
        ]
        self._count(runs)
        for lane, first, items in runs if self._wanted else ():
            for offset, item in enumerate(items, first):
                if item.identity in self._wanted:
                    self.places[item.identity] = ItemLocation(lane, offset)
        self._note_done(runs, [*delayed, *(item for item, place in self._met if place is None)])
        self._chunk, self._met, self._chunk_bytes = [], [], 0

    def _note_done(self, runs: list[ItemRun], delayed: list[Item]) -> None:
        done = Identities()
        for item in delayed:
            done.add(item.identity)
        ends: dict[Lane, int] = {}
        for lane, first, items in runs:
            ends[lane] = max(ends.get(lane, 0), first + len(items))
            for item in items:
                done.add(item.identity)
        self._ledger.note_done(self._name, self._view.created_us, done, ends)

    def finish(self) -> None:
        """Everything was added."""
        self.flush()
        if self._is_begun or self._state.is_open:
            self._note("ended")

    def lane_of(self, item: Item) -> Lane:
        """Where an item goes. A topic with fewer partitions than the source takes several into one."""
        priority = "normal" if item.dead is not None else item.level
        return Lane(self.key.topic, item.partition % self._view.settings.partitions, priority)

    def _put(self, items: Iterable[Item]) -> list[ItemRun]:
        by_lane: dict[Lane, list[Item]] = {}
        for item in items:
            by_lane.setdefault(self.lane_of(item), []).append(item)
        lanes = (self._put_storable(partial(self._put_frame, lane), each) for lane, each in by_lane.items())
        return [run for runs in lanes for run in runs]

    def _put_storable(self, put: Callable[[list[Item]], T], items: list[Item]) -> list[T]:
        """Put items, at once if that works. Of one that cannot be stored, which is refused, the others must
        not suffer: whose fault it is turns out by halves."""
        try:
            return [put(items)]
        except InvalidRequest as error:
            if len(items) == 1:
                self._refuse(items[0], str(error))
                return []
        half = len(items) // 2
        return self._put_storable(put, items[:half]) + self._put_storable(put, items[half:])

    def _put_frame(self, lane: Lane, items: list[Item]) -> ItemRun:
        sequence = self._sequences.get(lane, 0)
        producer = Producer(self.key.producer_id, self._epoch, sequence)
        frame = bytes(frame_of(items, self._origin, self._codec, producer, is_unique=self._is_unique))
        if items[0].dead is None:
            put = self._target.put_frame(lane, frame, "fsync")
        else:
            # What a producer writes into its headers is not believed, unlike what the source says.
            put = self._target.adopt_dead_letters(lane, frame)
        assert put.offset is not None, "a frame is never delayed"
        self._sequences[lane] = sequence + len(items)
        return ItemRun(lane, put.offset, items)

    def _delay(self, items: list[Item]) -> list[Item]:
        """Let items wait until they are due."""
        partitions = [self.lane_of(item).partition for item in items]
        messages = [delayed_message(*each, self._name) for each in zip(items, partitions, strict=True)]
        self._target.put_many(self.key.topic, messages, "fsync")
        return items

    def _count(self, runs: list[ItemRun]) -> None:
        """Let the attempts that the source made count."""
        tried: dict[Lane, list[tuple[int, int]]] = {}
        for lane, first, items in runs:
            for offset, item in enumerate(items, first):
                if item.attempts:
                    tried.setdefault(lane, []).append((offset, item.attempts))
        for lane, each in tried.items():
            counted: list[Tried] = []
            for offset, attempts in sorted(each):
                extend_runs(counted, offset, attempts)
            for start in range(0, len(counted), RUNS_MAX):
                progress = Progress(None, counted[start : start + RUNS_MAX])
                for group in self._groups:
                    self._target.adopt(lane, group, progress)

    # What an earlier run left.

    def _look_behind(self, firsts: dict[Lane, int]) -> None:
        """Find what is in the topic and not in the ledger. Raises Conflict where nobody can tell."""
        is_delaying = self._state.is_delaying
        for lane, bounds in self._view.lanes.items():
            if lane not in firsts and not is_delaying:
                continue
            start = max(firsts.get(lane, bounds.start), self._state.ends.get(lane[1:], 0))
            if start < bounds.start:
                raise self._unknown(f"retention has removed some of it since, up to offset {bounds.start}")
            if is_delaying:
                # What was delayed may be due by now, and anywhere.
                start = bounds.start
            for frame in self._target.frames(lane, start, bounds.end):
                self._look_into(frame, lane)
        if is_delaying:
            for scheduled in self._target.scheduled(self.key.topic):
                self._take_in(scheduled.headers, None, is_own=False)

    def _look_into(self, frame: Frame, lane: Lane) -> None:
        header = frame.header
        is_own = header.producer_id == self.key.producer_id
        if frame.is_control or not (is_own or self._may_hold_delayed(frame)):
            return
        if is_own and has_removed(frame):
            raise self._unknown("compaction has taken some of it out since")
        for offset, headers in enumerate(frame.headers(), header.base_offset):
            self._take_in(headers, ItemLocation(lane, offset), is_own=is_own)

    def _may_hold_delayed(self, frame: Frame) -> bool:
        return self._state.is_delaying and bool(frame.header.columns & Column.HEADERS)

    def _take_in(self, headers: dict[str, bytes], place: ItemLocation | None, *, is_own: bool) -> None:
        identity = identity_of(headers)
        is_mine = is_own or headers.get(STREAM) == self._name.encode()
        if identity is not None and is_mine and identity not in self._state.done:
            self._found[identity] = place

    def _unknown(self, why: str) -> Conflict:
        return Conflict(
            f"an earlier import into {self.key.topic} was interrupted, and {why}: nobody can tell what is"
            " missing. Import into another topic, or delete this one and import again"
        )


def extend_runs(runs: list[Tried], offset: int, attempts: int) -> None:
    """Add one message to runs of messages that were tried equally often; offsets come in order."""
    if runs and runs[-1].end == offset and runs[-1].attempts == attempts:
        runs[-1] = Tried(runs[-1].start, offset + 1, attempts)
    else:
        runs.append(Tried(offset, offset + 1, attempts))
