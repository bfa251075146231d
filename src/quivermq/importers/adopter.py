"""What a source knows besides its messages, taken over by the topic they are in: groups, and ids."""

from collections.abc import Mapping, Sequence

from quivermq.delivery.adoption import Progress
from quivermq.importers.group_progress import messages_of, progress_in
from quivermq.importers.ledger import Ledger
from quivermq.importers.model import ImportSource, SeenId, SourceGroup
from quivermq.importers.naming import own_name
from quivermq.importers.stream import ItemLocation, StreamKey
from quivermq.importers.summary import TopicSummary
from quivermq.importers.target import ImportTarget, LaneId, TargetTopic
from quivermq.topic.adopted_ids import ADOPTED_MAX, AdoptedId


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
