"""The archive of an open queue: what retention may rely on, and one range out of archived and live offsets.

Nothing is kept open. The pointer and the manifests are looked at whenever they matter, because the job that
writes them is another process.
"""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from quivermq.archive import Archive, ArchivedLane, ArchivedTopic, LanePlace, load_pointer, store_pointer
from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, NotFound, OffsetOutOfRange, StorageFailed
from quivermq.frame import Frame, Record, left_of
from quivermq.topic.partition import LANES, Partition

logger = logging.getLogger(__name__)

# As long as file systems let a path and a name in it be.
_PATH_MAX, _NAME_MAX = 1000, 255


class QueueArchive:
    """Which directory is the archive of a queue, if it has one. Any thread may ask."""

    def __init__(self, disk: Disk, data: Path) -> None:
        self._disk = disk
        self._data = data
        self._archive: Archive | None = None
        self.look()

    @property
    def directory(self) -> Path | None:
        """Where the archive was when somebody last looked."""
        archive = self._archive
        return None if archive is None else archive.directory

    def look(self) -> Path | None:
        """Where the archive is now. Raises StorageFailed for a pointer that cannot be understood."""
        directory = load_pointer(self._disk, self._data)
        if directory != self.directory:
            self._archive = None if directory is None else Archive(directory, self._disk)
            logger.info("the archive is %s", directory)
        return directory

    def use(self, directory: str | os.PathLike[str] | None) -> None:
        """Make a directory the archive, durably, or none. Raises NotFound when it is no archive."""
        chosen = None
        if directory is not None:
            chosen = self._data / _path(directory)
            Archive(chosen, self._disk).check()
        store_pointer(self._disk, self._data, chosen)
        self.look()

    def topic(self, name: str, created_us: int) -> ArchivedTopic | None:
        """What is archived of a topic; None when nothing is.

        Raises StorageFailed where the archive cannot be reached, because then nobody knows.
        """
        self.look()
        archive = self._archive
        if archive is None:
            return None
        try:
            archive.check()
        except NotFound as error:
            raise StorageFailed(
                f"{error}; mount it, or name another with use_archive", path=archive.directory
            ) from None
        return archive.topic(name, created_us)


def _path(directory: object) -> Path:
    if not isinstance(directory, str | os.PathLike):
        raise InvalidRequest(f"an archive is the path of a directory, not {directory!r}")
    text = str(directory)
    if not text or "\0" in text or len(text) > _PATH_MAX or max(map(len, text.split("/"))) > _NAME_MAX:
        raise InvalidRequest(f"an archive is the path of a directory, not {text!r:.80}")
    return Path(text)


class Seam:
    """One lane, the archived part and the live one, as if they were one log. Made for one look."""

    def __init__(
        self, archive: QueueArchive, created_us: Callable[[], int], partition: Partition, lane: int
    ) -> None:
        self._archive = archive
        self._created_us = created_us
        self._partition = partition
        self._lane = lane
        self._place = LanePlace(partition.number, LANES[lane])

    @property
    def start(self) -> int:
        """The first offset that can be read."""
        log, lane = self._partition.logs[self._lane], self._archived_lane()
        start = 0 if log is None else log.start
        return min(start, lane.start) if lane.files else start

    def find_time(self, timestamp_us: int) -> int:
        """The first offset whose message is not older; the end when all are."""
        log, archived = self._partition.logs[self._lane], self._archived()
        found = None if archived is None else archived.find_time(self._place, timestamp_us)
        if found is not None:
            return found
        return 0 if log is None else log.find_time(timestamp_us)

    def frames(self, offset: int, *, stops_at_hole: bool = False) -> Iterator[Frame]:
        """Frames from the one that holds an offset on, up to the end of the live log.

        Raises OffsetOutOfRange at what is neither here nor there, because retention was forced. With
        `stops_at_hole`, what comes before that is all, for a caller that will ask for the rest.
        """
        first, log = offset, self._partition.logs[self._lane]
        if log is None:
            if offset:
                raise OffsetOutOfRange(offset, start=0, end=0)
            return
        while True:
            while offset < log.start:
                lane = self._archived_lane()
                if not lane.start <= offset < lane.end:
                    if stops_at_hole and offset > first:
                        return
                    raise OffsetOutOfRange(offset, start=self.start, end=log.end)
                end = min(log.start, lane.end)
                yield from self._archived_frames(offset, end)
                offset = end
            try:
                # What was taken out for everybody need not be read.
                floor = min(self._partition.removals.lanes[self._lane].floor, log.end)
                for frame in log.frames(max(offset, floor)):
                    yield frame
                    offset = frame.header.end_offset
                return
            except OffsetOutOfRange:
                # Unless retention was faster: what it took is archived.
                if offset >= log.start:
                    raise

    def records(self, offset: int) -> Iterator[Record]:
        """The messages from an offset on, one by one, without those that were taken out for everybody."""
        removed = self._partition.removals.lanes[self._lane]
        for frame in self.frames(offset):
            for record in left_of(frame, frame.records()):
                if record.offset >= offset and not (removed and record.offset in removed):
                    yield record

    def _archived_frames(self, start: int, end: int) -> Iterator[Frame]:
        archived = self._archived()
        return iter(()) if archived is None else archived.frames(self._place, start, end)

    def _archived_lane(self) -> ArchivedLane:
        archived = self._archived()
        return ArchivedLane() if archived is None else archived.lane(self._place)

    def _archived(self) -> ArchivedTopic | None:
        return self._archive.topic(self._partition.topic, self._created_us())
