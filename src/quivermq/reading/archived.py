"""A queue and its archive, read as one: lanes begin where their archive does.

In bulk, archived rows are read as Parquet, by the parts of files that have the offsets. As frames they come
only where retention was faster than a reader.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quivermq.archive import Archive, ArchivedLane, ArchivedTopic
from quivermq.archive.joined import JoinedLane
from quivermq.frame import Frame
from quivermq.model.lanes import Lane
from quivermq.model.operations import LaneBounds, TopicExtent
from quivermq.model.topic_settings import TopicSettings
from quivermq.reading.reader import MessageReader
from quivermq.topic.offsets import OffsetSet

if TYPE_CHECKING:
    import pyarrow as pa


class ArchivedReader(MessageReader):
    """Archived offsets, then live ones."""

    def __init__(self, live: MessageReader, directory: Path) -> None:
        self.live = live
        self._archive = Archive(directory)

    @classmethod
    def checked(cls, live: MessageReader, directory: Path) -> "ArchivedReader":
        """Raises NotFound where there is no archive."""
        Archive(directory).check()
        return cls(live, directory)

    def _arguments(self) -> tuple[Any, ...]:
        return self.live, self._archive.directory

    def __str__(self) -> str:
        return str(self.live)

    def origins(self) -> dict[str, str | None]:
        return self.live.origins()

    def origin(self, topic: str) -> str | None:
        return self.live.origin(topic)

    def look(self, topic: str) -> TopicExtent:
        view = self.live.look(topic)
        archived = self._archive.topic(topic, view.created_us)
        if archived is None:
            return view
        lanes = {lane: _whole(archived.lane(lane), bounds) for lane, bounds in view.lanes.items()}
        return view._replace(lanes=lanes)

    def created_us(self, topic: str) -> int:
        return self.live.created_us(topic)

    def settings(self, topic: str) -> TopicSettings:
        return self.live.settings(topic)

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        return self._joined(lane).find_time(timestamp_us)

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        return self._joined(lane).frames(start, end)

    def archived_rows(
        self, lane: Lane, start: int, end: int, columns: Sequence[str]
    ) -> "tuple[int, Iterable[pa.RecordBatch]]":
        from quivermq.reading.batches import archived_batches

        archived, stop = self._joined(lane).archived_part(start, end)
        if archived is None or stop <= start:
            return start, ()
        return stop, archived_batches(archived, lane, start, stop, columns, self.removed(lane))

    def removed(self, lane: Lane) -> OffsetSet:
        return self.live.removed(lane)

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> bool:
        return self.live.commit(group, offsets)

    def close(self) -> None:
        self.live.close()

    def _joined(self, lane: Lane) -> JoinedLane:
        def archived() -> ArchivedTopic | None:
            return self._archive.topic(lane.topic, self.live.created_us(lane.topic))

        return JoinedLane(lane, _LiveLane(self.live, lane), archived)


class _LiveLane(NamedTuple):
    """The log of a lane, as a reader sees it."""

    reader: MessageReader
    lane: Lane

    @property
    def start(self) -> int:
        return self.reader.lanes(self.lane.topic)[self.lane].start

    @property
    def end(self) -> int:
        return self.reader.lanes(self.lane.topic)[self.lane].end

    def frames(self, start: int, end: int) -> Iterator[Frame]:
        return self.reader.frames(self.lane, start, end)

    def find_time(self, timestamp_us: int) -> int:
        return self.reader.find_time(self.lane, timestamp_us)


def _whole(archived: ArchivedLane, live: LaneBounds) -> LaneBounds:
    """What the lane holds with its archive. What is in both counts once."""
    if not archived.files or archived.start >= live.start:
        return live
    size = sum(file.bytes for file in archived.files if file.start < live.start)
    return live._replace(start=archived.start, bytes=live.bytes + size)
