"""What a source knows besides its messages, taken over by the topic they are in: groups, and ids."""

from collections.abc import Mapping, Sequence

from quivermq.delivery.adoption import RUNS_MAX
from quivermq.importers.encoding import identity_of
from quivermq.importers.kinds import own_name
from quivermq.importers.ledger import Ledger
from quivermq.importers.model import ImportSource, SeenId, SourceGroup, TopicSummary
from quivermq.importers.stream import ItemLocation, StreamKey, extend_runs
from quivermq.importers.target import ImportTarget
from quivermq.model.adoption import AdoptedId, Progress, Tried
from quivermq.model.lanes import Lane
from quivermq.model.operations import TopicExtent
from quivermq.topic.dedup_index import ADOPTED_MAX


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
        self._stream = str(keys[0])
        # By the producer of a frame, the partition of the source it is of.
        self._partitions = {key.producer_id: key.partition for key in keys}
        view = target.look(topic)
        assert view is not None, "the topic is there before its groups and ids"
        self._view: TopicExtent = view

    def adopt_groups(self, groups: Sequence[SourceGroup], summary: TopicSummary) -> None:
        """Let groups go on where they were, and note in the summary which do."""
        for group in groups:
            name = own_name(group.name)
            # Every lane, also where the group is left alone in another one.
            adopted = [self._adopt_lane(group, name, lane) for lane in self._view.lanes]
            (summary.groups if all(adopted) else summary.groups_left).append(name)

    def _adopt_lane(self, group: SourceGroup, name: str, lane: Lane) -> bool:
        """Let a group go on there, unless it has been elsewhere since it was last put somewhere."""
        try:
            progress = self._progress(group, lane)
            known = self._ledger.state(self._stream, self._view.created_us).adopted.get((name, lane[1:]))
            if progress == known:
                return True
            self._ledger.begin()
            is_adopted = self._target.adopt(lane, name, progress, known)
        except ValueError as error:
            problem = f"the group {group.name} begins anew in {self._topic}: {error}"
            self._source.report(problem, is_damage=True)
            return False
        if is_adopted:
            self._ledger.note_adopted(self._stream, self._view.created_us, name, lane, progress)
        return is_adopted

    def _progress(self, group: SourceGroup, lane: Lane) -> Progress:
        """How far a group came in a lane. What was not imported, or is of another source, is not finished.

        Raises ValueError when it is too scattered to be kept.
        """
        bounds = self._view.lanes[lane]
        position = bounds.start
        runs: list[Tried] = []
        for frame in self._target.frames(lane, bounds.start, bounds.end):
            partition = self._partitions.get(frame.header.producer_id)
            held = None if partition is None else group.positions.get(partition)
            for offset, headers in enumerate(frame.headers(), frame.header.base_offset):
                if not bounds.start <= offset < bounds.end:
                    continue
                identity = None if held is None else identity_of(headers)
                if held is None or identity is None:
                    extend_runs(runs, offset, 0)
                elif held.is_finished(identity):
                    position = offset + 1
                else:
                    extend_runs(runs, offset, held.unfinished.get(identity, 0))
        # Behind the position, what was never tried is what it would be anyway.
        runs = [run for run in runs if run.start < position or run.attempts]
        if len(runs) > RUNS_MAX:
            raise ValueError(f"what it has finished lies in more than {RUNS_MAX} pieces")
        return Progress(position, tuple(runs))

    def adopt_ids(self, seen: Sequence[SeenId], places: Mapping[int, ItemLocation], now_us: int) -> int:
        """Remember deduplication ids, and return how many were not known here."""
        window_ms = self._view.settings.dedup_window_ms
        if max(each.expires_at_us for each in seen) > now_us + window_ms * 1000:
            self._source.report(
                f"deduplication ids are remembered for longer than {self._topic} does: {window_ms} ms"
            )
        adopted = [_adopted_id(each, places) for each in seen]
        parts = range(0, len(adopted), ADOPTED_MAX)
        return sum(
            self._target.adopt_ids(self._topic, adopted[start : start + ADOPTED_MAX]) for start in parts
        )


def _adopted_id(seen: SeenId, places: Mapping[int, ItemLocation]) -> AdoptedId:
    place = None if seen.identity is None else places.get(seen.identity)
    if place is None:
        return AdoptedId(seen.dedup_id, seen.expires_at_us)
    return AdoptedId(seen.dedup_id, seen.expires_at_us, *place.lane[1:], place.offset)
