"""A queue and its archive as one place: lanes begin where their archive does.

In bulk, archived rows are read as Parquet, by the parts of files that have the offsets. As frames they come
only where retention was faster than a reader.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.archive import Archive, ArchivedLane, ArchivedTopic, LanePlace
from quivermq.errors import OffsetOutOfRange
from quivermq.frame import Frame
from quivermq.model.topic_settings import TopicSettings
from quivermq.spark.directory_place import local_path
from quivermq.spark.place import Lane, LaneExtent, LivePlace, Place, TopicView
from quivermq.topic.offsets import OffsetSet

if TYPE_CHECKING:
    import pyarrow as pa

_NONE = ("false", "none")


def with_archive(place: LivePlace, option: str | None) -> Place:
    """The place with the archive that an option names, or else the one that it has itself.

    A broker reads its own for whoever asks; one that is named is read by the executors, as Parquet. Raises
    NotFound where no archive can be reached; the option `false` does without.
    """
    if option is None:
        return place.whole()
    return place if option.lower() in _NONE else ArchivedPlace.checked(place, local_path(option))


class ArchivedPlace:
    """Archived offsets, then live ones. Can be pickled; any thread may ask."""

    def __init__(self, live: Place, directory: Path) -> None:
        self.live = live
        self._archive = Archive(directory)

    @classmethod
    def checked(cls, live: Place, directory: Path) -> "ArchivedPlace":
        """Raises NotFound where there is no archive."""
        Archive(directory).check()
        return cls(live, directory)

    def __repr__(self) -> str:
        return f"ArchivedPlace({self.live!r}, {str(self._archive.directory)!r})"

    def __str__(self) -> str:
        return str(self.live)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArchivedPlace) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __reduce__(self) -> tuple[Any, ...]:
        return ArchivedPlace, (self.live, self._archive.directory)

    def topics(self) -> list[str]:
        return self.live.topics()

    def origins(self) -> dict[str, str | None]:
        return self.live.origins()

    def origin(self, topic: str) -> str | None:
        return self.live.origin(topic)

    def look(self, topic: str) -> TopicView:
        view = self.live.look(topic)
        archived = self._archive.topic(topic, view.created_us)
        if archived is None:
            return view
        lanes = {lane: _joined(archived.lane(_own(lane)), bounds) for lane, bounds in view.lanes.items()}
        return view._replace(lanes=lanes)

    def created_us(self, topic: str) -> int:
        return self.live.created_us(topic)

    def settings(self, topic: str) -> TopicSettings:
        return self.live.settings(topic)

    def lanes(self, topic: str) -> dict[Lane, LaneExtent]:
        return self.look(topic).lanes

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        archived = self.archived(lane.topic)
        found = None if archived is None else archived.find_time(_own(lane), timestamp_us)
        return self.live.find_time(lane, timestamp_us) if found is None else found

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        while start < end:
            begins = self.live.lanes(lane.topic)[lane].start
            if start < begins:
                archived = self.archived(lane.topic)
                stop = _archived_end(archived, lane, start, min(end, begins))
                if archived is None or stop <= start:
                    raise self._hole(lane, start, begins, archived)
                yield from archived.frames(_own(lane), start, stop)
                start = stop
                continue
            try:
                for frame in self.live.frames(lane, start, end):
                    yield frame
                    start = max(start, frame.header.end_offset)
                return
            except OffsetOutOfRange:
                # Unless retention was faster: what it took is archived.
                if _archived_end(self.archived(lane.topic), lane, start, end) <= start:
                    raise

    def archived_rows(
        self, lane: Lane, start: int, end: int, columns: Sequence[str], /
    ) -> "tuple[int, Iterable[pa.RecordBatch]]":
        from quivermq.spark.batches import archived_batches

        begins = self.live.lanes(lane.topic)[lane].start
        archived = self.archived(lane.topic)
        stop = _archived_end(archived, lane, start, min(end, max(start, begins)))
        if archived is None or stop <= start:
            return start, ()
        return stop, archived_batches(archived, lane, start, stop, columns, self.removed(lane))

    def removed(self, lane: Lane) -> OffsetSet:
        return self.live.removed(lane)

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> bool:
        return self.live.commit(group, offsets)

    def close(self) -> None:
        self.live.close()

    def archived(self, topic: str) -> ArchivedTopic | None:
        """What is archived of a topic by now."""
        return self._archive.topic(topic, self.live.created_us(topic))

    def _hole(
        self, lane: Lane, start: int, begins: int, archived: ArchivedTopic | None
    ) -> OffsetOutOfRange:
        """The error of offsets that are gone: its `start` is where to go on."""
        following = None if archived is None else archived.lane(_own(lane)).next_start(start)
        going_on = begins if following is None else min(begins, following)
        return OffsetOutOfRange(start, start=going_on, end=self.live.lanes(lane.topic)[lane].end)


def _archived_end(archived: ArchivedTopic | None, lane: Lane, start: int, end: int) -> int:
    """How far [start, end) is archived without a hole; `start` where nothing of it is."""
    return start if archived is None else min(end, archived.lane(_own(lane)).whole_end(start))


def _own(lane: Lane) -> LanePlace:
    return LanePlace(lane.partition, lane.priority)


def _joined(archived: ArchivedLane, live: LaneExtent) -> LaneExtent:
    """What the lane holds with its archive. What is in both counts once."""
    if not archived.files or archived.start >= live.start:
        return live
    size = sum(file.bytes for file in archived.files if file.start < live.start)
    return live._replace(start=archived.start, size_bytes=live.size_bytes + size)
