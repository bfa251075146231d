"""Bringing one stream of items into a topic: in chunks, each of them once, whatever dies in between.

The frames of a stream carry an id that every run of the import has. A run first takes the next epoch: from
then on nobody adds what an earlier run, which may still go on, sends. Then it looks for what the ledger
does not know yet, and leaves out what is there.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.delivery.adoption import RUNS_MAX
from quivermq.errors import Conflict, InvalidRequest
from quivermq.frame import Column, Frame, Producer, codec_named, has_removed
from quivermq.importers.encoding import STREAM, delayed_message, frame_of, identity_of, number_of
from quivermq.importers.ledger import Identities, Ledger
from quivermq.importers.model import Item
from quivermq.importers.target import ImportTarget, LaneId, TargetTopic
from quivermq.model.adoption import Progress, Tried
from quivermq.model.messages import Message
from quivermq.settings import StorageSettings
from quivermq.topic.splitting import FrameLimits

_CHUNK_MESSAGES = 10_000
# What a message takes in a frame besides what `item_bytes` counts, at most.
_OVERHEAD_BYTES = 64


class ItemLocation(NamedTuple):
    """Where an item is now."""

    lane: LaneId
    offset: int


class ItemRun(NamedTuple):
    """Items that lie behind each other."""

    lane: LaneId
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
        view: TargetTopic,
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
        self._sequences: dict[LaneId, int] = {}
        self._chunk: list[Item] = []
        self._chunk_bytes = 0
        # Items that an earlier run put and did not note, and those of them that were met again.
        self._found: dict[int, ItemLocation | None] = {}
        self._met: list[tuple[Item, ItemLocation | None]] = []
        state = target.begin(key.topic, key.producer_id)
        self._epoch = state.epoch
        self._state = ledger.state(self._name, view.created_us)
        self._is_begun = False
        if self._state.is_open:
            if not state.epoch:
                raise self._unknown("so many others have written to it since that this one was forgotten")
            self._look_behind({LaneId(p, priority): first for p, priority, first in state.batches})

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
            self._ledger.note_begun(self._name, self._view.created_us)
            self._is_begun = True
        now_us = self._clock.now_us()
        delayed = [item for item in self._chunk if (item.deliver_at_us or 0) > now_us]
        if delayed:
            runs = self._put([item for item in self._chunk if (item.deliver_at_us or 0) <= now_us])
            delayed = self._delay(delayed)
        else:
            runs = self._put(self._chunk)
        runs += [
            ItemRun(place.lane, place.offset, [item]) for item, place in self._met if place is not None
        ]
        self._count(runs)
        if self._wanted:
            self._note_places(runs)
        self._note_done(runs, [*delayed, *(item for item, place in self._met if place is None)])
        self._chunk, self._met, self._chunk_bytes = [], [], 0

    def _note_places(self, runs: list[ItemRun]) -> None:
        for lane, first, items in runs:
            for offset, item in enumerate(items, first):
                if item.identity in self._wanted:
                    self.places[item.identity] = ItemLocation(lane, offset)

    def _note_done(self, runs: list[ItemRun], delayed: list[Item]) -> None:
        done = Identities()
        for item in delayed:
            done.add(item.identity)
        ends: dict[LaneId, int] = {}
        for lane, first, items in runs:
            ends[lane] = max(ends.get(lane, 0), first + len(items))
            for item in items:
                done.add(item.identity)
        self._ledger.note_done(self._name, self._view.created_us, done, ends)

    def finish(self) -> None:
        """Everything was added."""
        self.flush()
        if self._is_begun or self._state.is_open:
            self._ledger.note_ended(self._name, self._view.created_us)

    def lane_of(self, item: Item) -> LaneId:
        """Where an item goes. A topic with fewer partitions than the source takes several into one."""
        priority = "normal" if item.dead is not None else item.level
        return LaneId(item.partition % self._view.settings.partitions, priority)

    def _put(self, items: Iterable[Item]) -> list[ItemRun]:
        by_lane: dict[LaneId, list[Item]] = {}
        for item in items:
            by_lane.setdefault(self.lane_of(item), []).append(item)
        runs: list[ItemRun] = []
        for lane, members in by_lane.items():
            try:
                runs.append(self._put_frame(lane, members))
            except InvalidRequest:
                # Of one that cannot be stored, the others must not suffer.
                runs += self._put_each(lane, [item for item in members if self._is_storable(item)])
        return runs

    def _put_each(self, lane: LaneId, items: list[Item]) -> list[ItemRun]:
        """All at once if that works, and otherwise one by one, to find out whose fault it is."""
        if not items:
            return []
        try:
            return [self._put_frame(lane, items)]
        except InvalidRequest as error:
            if len(items) == 1:
                self._refuse(items[0], str(error))
                return []
        return [run for item in items for run in self._put_each(lane, [item])]

    def _put_frame(self, lane: LaneId, items: list[Item]) -> ItemRun:
        frame = self._encoded(items, self._sequences.get(lane, 0))
        # What a producer writes into its headers is not believed, unlike what the source tells.
        is_dead = items[0].dead is not None
        put = self._target.put_dead_letters if is_dead else self._target.put_frame
        first = put(self.key.topic, frame, lane)
        self._sequences[lane] = self._sequences.get(lane, 0) + len(items)
        return ItemRun(lane, first, items)

    def _encoded(self, items: list[Item], sequence: int) -> bytes:
        producer = Producer(self.key.producer_id, self._epoch, sequence)
        return bytes(frame_of(items, self._origin, self._codec, producer, is_unique=self._is_unique))

    def _is_storable(self, item: Item) -> bool:
        try:
            self._encoded([item], 0)
        except InvalidRequest as error:
            self._refuse(item, str(error))
            return False
        return True

    def _delay(self, items: list[Item]) -> list[Item]:
        """Let items wait until they are due, and return those that do."""
        self._ledger.note_delaying(self._name, self._view.created_us)
        try:
            self._target.put_delayed(self.key.topic, [self._delayed(item) for item in items])
        except InvalidRequest:
            return [item for item in items if self._is_delayable(item)]
        return items

    def _delayed(self, item: Item) -> Message:
        return delayed_message(item, self.lane_of(item).partition, self._name)

    def _is_delayable(self, item: Item) -> bool:
        try:
            self._target.put_delayed(self.key.topic, [self._delayed(item)])
        except InvalidRequest as error:
            self._refuse(item, str(error))
            return False
        return True

    def _count(self, runs: list[ItemRun]) -> None:
        """Let the attempts that the source made count."""
        tried: dict[LaneId, list[tuple[int, int]]] = {}
        for lane, first, items in runs:
            for offset, item in enumerate(items, first):
                if item.attempts:
                    tried.setdefault(lane, []).append((offset, item.attempts))
        for lane, each in tried.items():
            told: list[Tried] = []
            for offset, attempts in sorted(each):
                extend_runs(told, offset, attempts)
            for start in range(0, len(told), RUNS_MAX):
                for group in self._groups:
                    progress = Progress(None, told[start : start + RUNS_MAX])
                    self._target.adopt(self.key.topic, group, lane, progress, None)

    # What an earlier run left.

    def _look_behind(self, firsts: dict[LaneId, int]) -> None:
        """Find what is in the topic and not in the ledger. Raises Conflict where nobody can tell."""
        is_delaying = self._state.is_delaying
        for lane, offsets in self._view.lanes.items():
            if lane not in firsts and not is_delaying:
                continue
            start = max(firsts.get(lane, offsets.start), self._state.ends.get(lane, 0))
            if start < offsets.start:
                raise self._unknown(f"retention has removed some of it since, up to offset {offsets.start}")
            if is_delaying:
                # What was delayed may be due by now, and anywhere.
                start = offsets.start
            for frame in self._target.frames(self.key.topic, lane, start, offsets.stop):
                self._look_into(frame, lane)
        if is_delaying:
            for scheduled in self._target.scheduled(self.key.topic):
                self._take_in(scheduled.headers, None, is_own=False)

    def _look_into(self, frame: Frame, lane: LaneId) -> None:
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
