"""A queue and its archive as one place: lanes begin where their archive does.

In bulk, archived rows are read as Parquet, by the parts of files that have the offsets. As frames they come
only where retention was faster than a reader.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.archive import Archive, ArchivedLane, ArchivedTopic, LanePlace, load_pointer
from quivermq.disk import SystemDisk
from quivermq.errors import OffsetOutOfRange
from quivermq.frame import Frame
from quivermq.spark.broker_place import BrokerPlace, WholeBrokerPlace
from quivermq.spark.directory_place import DirectoryPlace, local_path
from quivermq.spark.place import Lane, LaneBounds, Place, TopicView
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.settings import TopicSettings

if TYPE_CHECKING:
    import pyarrow as pa


_NONE = ("false", "none")


def with_archive(place: Place, option: str | None) -> Place:
    """The place with the archive that an option names, or else the one that it has itself.

    A broker reads its own for whoever asks; one that is named is read by the executors, as Parquet. Raises
    NotFound where no archive can be reached; the option `false` does without.
    """
    if option is not None and option.lower() in _NONE:
        return place
    if option is not None:
        directory: Path | None = local_path(option)
    elif isinstance(place, DirectoryPlace):
        directory = load_pointer(SystemDisk(), place.path)
    elif isinstance(place, BrokerPlace):
        return WholeBrokerPlace(place.server, place.key)
    else:
        directory = None
    if directory is None:
        return place
    Archive(directory).check()
    return ArchivedPlace(place, directory)


class ArchivedPlace:
    """Archived offsets, then live ones. Can be pickled; any thread may ask."""

    def __init__(self, live: Place, directory: Path) -> None:
        self.live = live
        self._archive = Archive(directory)

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

    def lanes(self, topic: str) -> dict[Lane, LaneBounds]:
        return self.look(topic).lanes

    def synced_ends(self, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:
        return self.live.synced_ends(topic, starts)

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        archived = self.archived(lane.topic)
        found = None if archived is None else archived.find_time(_own(lane), timestamp_us)
        return self.live.find_time(lane, timestamp_us) if found is None else found

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        while start < end:
            begins = self.live.lanes(lane.topic)[lane].start
            if start < begins:
                stop = self.archived_end(lane, start, min(end, begins))
                archived = self.archived(lane.topic)
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
                if self.archived_end(lane, start, end) <= start:
                    raise

    def removed(self, lane: Lane) -> OffsetSet:
        return self.live.removed(lane)

    def close(self) -> None:
        self.live.close()

    def archived(self, topic: str) -> ArchivedTopic | None:
        """What is archived of a topic by now."""
        return self._archive.topic(topic, self.live.created_us(topic))

    def archived_end(self, lane: Lane, start: int, end: int) -> int:
        """How far [start, end) is archived without a hole; `start` where nothing of it is."""
        archived = self.archived(lane.topic)
        if archived is None:
            return start
        return min(end, archived.lane(_own(lane)).whole_end(start))

    def _hole(
        self, lane: Lane, start: int, begins: int, archived: ArchivedTopic | None
    ) -> OffsetOutOfRange:
        """The error of offsets that are gone: its `start` is where to go on."""
        following = None if archived is None else archived.lane(_own(lane)).next_start(start)
        going_on = begins if following is None else min(begins, following)
        return OffsetOutOfRange(start, start=going_on, end=self.live.lanes(lane.topic)[lane].end)

    def archived_rows(
        self, lane: Lane, start: int, end: int, columns: Sequence[str]
    ) -> "Iterator[pa.RecordBatch]":
        """Archived messages, as `record_batches` gives live ones. All of the range has to be archived."""
        from quivermq.spark.batches import archived_batches

        archived = self.archived(lane.topic)
        assert archived is not None, "the range is archived"
        return archived_batches(archived, lane, start, end, columns, self.removed(lane))


def live_of(place: Place) -> Place:
    """The place itself, without its archive."""
    return place.live if isinstance(place, ArchivedPlace) else place


def _own(lane: Lane) -> LanePlace:
    return LanePlace(lane.partition, lane.priority)


def _joined(archived: ArchivedLane, live: LaneBounds) -> LaneBounds:
    """What the lane holds with its archive. What is in both counts once."""
    if not archived.files or archived.start >= live.start:
        return live
    size = sum(file.bytes for file in archived.files if file.start < live.start)
    return live._replace(start=archived.start, size_bytes=live.size_bytes + size)
