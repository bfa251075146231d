"""What a source knows besides its messages, taken over by the topic they are in: groups, and ids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from quivermq.delivery.adoption import RUNS_MAX
from quivermq.importers.encoding import identity_of
from quivermq.importers.kinds import own_name
from quivermq.importers.ledger import Ledger
from quivermq.importers.model import ImportSource, Item, Position, SeenId, SourceGroup, TopicSummary
from quivermq.importers.stream import ItemLocation, StreamKey, extend_runs
from quivermq.importers.target import ImportTarget, LaneId, TargetTopic
from quivermq.model.adoption import AdoptedId, Progress, Tried
from quivermq.topic.adopted_ids import ADOPTED_MAX


class LaneMessage(NamedTuple):
    """A message of a lane. One that was not imported, or of another source, has no partition there."""

    offset: int
    partition: int | None
    identity: int


class Finished:
    """Whether every group of a source topic is done with an item; without groups nobody is."""

    def __init__(self, groups: Sequence[SourceGroup], partitions: int) -> None:
        self._positions = {
            number: [group.positions.get(number) for group in groups] for number in range(partitions)
        }

    def __call__(self, item: Item) -> bool:
        positions = self._positions.get(item.partition, [])
        return bool(positions) and all(is_finished(item.identity, each) for each in positions)


def is_finished(identity: int, position: Position | None) -> bool:
    """Whether a group that is there is done with an item."""
    return position is not None and identity < position.next and identity not in position.unfinished


def messages_of(
    target: ImportTarget, topic: str, lane: LaneId, offsets: range, producers: Mapping[int, int]
) -> Iterator[LaneMessage]:
    """The messages of a lane; `producers` says of which partition of the source the frames of each are."""
    for frame in target.frames(topic, lane, offsets.start, offsets.stop):
        partition = producers.get(frame.header.producer_id)
        for offset, headers in enumerate(frame.headers(), frame.header.base_offset):
            identity = None if partition is None else identity_of(headers)
            if offset in offsets:
                yield LaneMessage(offset, None if identity is None else partition, identity or 0)


def progress_in(messages: Iterator[LaneMessage], group: SourceGroup, start: int) -> Progress:
    """How far a group came in a lane that begins at `start`.

    Messages that were there before are not finished. Raises ValueError when it is too scattered to be kept.
    """
    position = start
    runs: list[Tried] = []
    for message in messages:
        held = None if message.partition is None else group.positions.get(message.partition)
        if is_finished(message.identity, held):
            position = message.offset + 1
        else:
            attempts = 0 if held is None else held.unfinished.get(message.identity, 0)
            extend_runs(runs, message.offset, attempts)
    # Behind the position, what was never tried is what it would be anyway.
    runs = [run for run in runs if run.start < position or run.attempts]
    if len(runs) > RUNS_MAX:
        raise ValueError(f"what it has finished lies in more than {RUNS_MAX} pieces")
    return Progress(position, tuple(runs))


class Adopter:
    """For one topic; `keys` are the streams of the partitions that its messages came from, in order."""

    def __init__(
        self,
        target: ImportTarget,
        ledger: Ledger,
        source: ImportSource,
        topic: str,
        keys: Sequence[StreamKey],
    ) -> None:
        self._target = target
        self._ledger = ledger
        self._source = source
        self._topic = topic
        self._keys = keys

    def adopt_groups(self, groups: Sequence[SourceGroup], summary: TopicSummary) -> None:
        """Let groups go on where they were, and note in the summary which do."""
        view = self._target.look(self._topic)
        assert view is not None, "the topic is there before its groups"
        for group in groups:
            name = own_name(group.name)
            is_adopted = self._adopt_group(group, name, view)
            (summary.groups if is_adopted else summary.groups_left).append(name)

    def _adopt_group(self, group: SourceGroup, name: str, view: TargetTopic) -> bool:
        producers = {key.producer_id: key.partition for key in self._keys}
        is_adopted = True
        for lane, offsets in view.lanes.items():
            messages = messages_of(self._target, self._topic, lane, offsets, producers)
            try:
                progress = progress_in(messages, group, offsets.start)
                is_adopted &= self._put_group(name, lane, view, progress)
            except ValueError as error:
                problem = f"the group {group.name} begins anew in {self._topic}: {error}"
                self._source.findings.add(self._source.path, None, problem)
                is_adopted = False
        return is_adopted

    def _put_group(self, group: str, lane: LaneId, view: TargetTopic, progress: Progress) -> bool:
        """Let a group go on there, unless it has been elsewhere since it was last put somewhere."""
        stream = str(self._keys[0])
        known = self._ledger.state(stream, view.created_us).adopted.get((group, lane))
        if progress == known:
            return True
        self._ledger.begin()
        if not self._target.adopt(self._topic, group, lane, progress, known):
            return False
        self._ledger.note_adopted(stream, view.created_us, group, lane, progress)
        return True

    def adopt_ids(self, seen: Sequence[SeenId], places: Mapping[int, ItemLocation], now_us: int) -> int:
        """Remember deduplication ids, and return how many were not known here."""
        view = self._target.look(self._topic)
        assert view is not None, "the topic is there before its ids"
        if max(each.expires_at_us for each in seen) > now_us + view.settings.dedup_window_ms * 1000:
            problem = (
                f"deduplication ids are remembered for longer than {self._topic} does:"
                f" {view.settings.dedup_window_ms} ms"
            )
            self._source.findings.add(self._source.path, None, problem, is_damage=False)
        adopted = [_adopted_id(each, places) for each in seen]
        parts = range(0, len(adopted), ADOPTED_MAX)
        return sum(
            self._target.adopt_ids(self._topic, adopted[start : start + ADOPTED_MAX]) for start in parts
        )


def _adopted_id(seen: SeenId, places: Mapping[int, ItemLocation]) -> AdoptedId:
    place = None if seen.identity is None else places.get(seen.identity)
    if place is None:
        return AdoptedId(seen.dedup_id, seen.expires_at_us)
    return AdoptedId(seen.dedup_id, seen.expires_at_us, *place.lane, place.offset)
