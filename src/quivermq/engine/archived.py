"""The archive of an open queue: what retention may rely on, and one range out of archived and live offsets.

Nothing is kept open. The pointer and the manifests are looked at whenever they matter, because the job that
writes them is another process.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from quivermq.archive import (
    Archive,
    ArchivedLane,
    ArchivedTopic,
    Manifest,
    load_pointer,
    store_pointer,
)
from quivermq.archive.joined import JoinedLane
from quivermq.archive.manifest import OWN, topic_path
from quivermq.archive.reading import find_difference
from quivermq.disk import Disk, real_path
from quivermq.errors import InvalidRequest, NotFound, OffsetOutOfRange, StorageFailed
from quivermq.frame import OFFSET_MAX, Frame, Wanted
from quivermq.log import Log
from quivermq.model.lanes import PRIORITIES, Lane
from quivermq.model.messages import Record
from quivermq.topic.partition import Partition

logger = logging.getLogger(__name__)

EVERYTHING = Wanted()

# As long as file systems let a path and a name in it be.
_PATH_MAX, _NAME_MAX = 1000, 255


class QueueArchive:
    """Which directory is the archive of a queue, if it has one. Any thread may ask."""

    def __init__(self, disk: Disk, data: Path) -> None:
        self._disk = disk
        self._data = data
        self._archive: Archive | None = None
        self._is_unknown = False
        self.forbidden: Path | None = None
        """A directory that is made anew each time: an archive in there would be lost."""
        # By topic: the manifests that are known to survive power loss.
        self._durable: dict[str, Manifest] = {}
        try:
            self.look()
        except StorageFailed as error:
            # The live messages can be had all the same. Whoever needs the archive is told.
            logger.error("%s", error)

    @property
    def directory(self) -> Path | None:
        """Where the archive was when somebody last looked."""
        archive = self._archive
        return None if archive is None else archive.directory

    @property
    def is_named(self) -> bool:
        """Whether some of the queue may lie elsewhere, as far as anybody knows."""
        return self._archive is not None or self._is_unknown

    def look(self) -> Path | None:
        """Where the archive is now. Raises StorageFailed for a pointer that cannot be understood."""
        self._is_unknown = True
        directory = load_pointer(self._disk, self._data)
        self._is_unknown = False
        if directory != self.directory:
            self._archive = None if directory is None else Archive(directory, self._disk)
            logger.info("the archive is %s", directory)
        return directory

    def use(self, directory: str | None) -> None:
        """Make a directory the archive, durably, or none. Raises NotFound when it is no archive."""
        chosen = None
        if directory is not None:
            chosen = self._data / _path(directory)
            if self.forbidden is not None and real_path(chosen).is_relative_to(real_path(self.forbidden)):
                raise InvalidRequest(
                    f"{chosen} is in the cache of a bucket, and would be lost: name an archive elsewhere,"
                    " where every machine reaches it by the same path"
                )
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

    def durable_topic(self, name: str, created_us: int) -> ArchivedTopic | None:
        """The same, as it will be after power loss at the latest: what the log may rely on.

        Raises StorageFailed as well when that cannot be told.
        """
        found = self.topic(name, created_us)
        if found is not None and self._durable.get(name) is not found.manifest:
            # Its job may have put it in place just now, and not have come to the sync yet.
            self._disk.sync_directory(found.archive.directory / OWN)
            self._durable[name] = found.manifest
        return found

    def last_lane(self, lane: Lane, created_us: int) -> ArchivedLane:
        """A lane as it was when somebody last looked; an empty one where nobody can."""
        archive = self._archive
        try:
            manifest = None if archive is None else archive.last_manifest(lane.topic)
        except StorageFailed:
            return ArchivedLane()
        known = manifest is not None and manifest.created_us == created_us
        return manifest.lane(lane) if manifest is not None and known else ArchivedLane()


def check_belongs(archived: ArchivedTopic, place: Lane, log: Log) -> None:
    """Raise StorageFailed where a lane was not archived from this log, or the log has lost its end."""
    difference = find_difference(archived.lane(place), log.start, log.end, log.frames)
    if difference is not None:
        path = archived.archive.directory
        raise StorageFailed(
            f"{path} is not the archive of this log of {archived.name}, partition {place.partition},"
            f" {place.priority}: {difference}; name another with use_archive, or move"
            f" {topic_path(path, archived.name)} and its manifest out of the way",
            path=path,
        )


def _path(text: str) -> Path:
    if not text or "\0" in text or len(text) > _PATH_MAX or max(map(len, text.split("/"))) > _NAME_MAX:
        raise InvalidRequest(f"an archive is the path of a directory, not {text!r:.80}")
    return Path(text)


class Seam:
    """One lane, the archived part and the live one, as if they were one log. Made for one look."""

    def __init__(self, archive: QueueArchive, created_us: int, partition: Partition, lane: int) -> None:
        self._archive = archive
        self._created_us = created_us
        self._partition = partition
        self._lane = lane
        self._place = Lane(partition.topic, partition.number, PRIORITIES[lane])
        # How far `frames` has come: what lies before is read, or was taken out for everybody.
        self.reached = 0

    @property
    def start(self) -> int:
        """The first offset that can be read. Raises StorageFailed where nobody can tell."""
        log = self._partition.logs[self._lane]
        archived = None if log is None else self._archived(log)
        if log is None or archived is None:
            return 0 if log is None else log.start
        return archived.lane(self._place).start

    @property
    def known_start(self) -> int:
        """The same by what was last seen of the archive, for whoever only shows it."""
        log = self._partition.logs[self._lane]
        start = 0 if log is None else log.start
        if not start:
            return start
        lane = self._archive.last_lane(self._place, self._created_us)
        return min(start, lane.start) if lane.files else start

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        log = self._partition.logs[self._lane]
        return 0 if log is None else log.end

    def first_from(self, offset: int) -> int:
        """The first offset from there on that can be read. Raises StorageFailed where nobody can tell."""
        log = self._partition.logs[self._lane]
        if log is None or offset >= log.start:
            return offset
        archived = self._archived(log)
        if archived is None:
            return log.first_from(offset)
        lane = archived.lane(self._place)
        while offset < log.start:
            end = min(lane.whole_end(offset), log.start)
            # Behind a hole nobody comes by reading on, and before it there may be no message left.
            if end == log.start or next(archived.frames(self._place, offset, end), None) is not None:
                return offset
            following = lane.next_start(end)
            offset = log.start if following is None else following
        return log.first_from(offset)

    def known_append_time(self, offset: int) -> int | None:
        """When a message that only the archive has came in, at the latest; None of any other."""
        lane = self._archive.last_lane(self._place, self._created_us)
        for file in lane.files_from(offset)[:1]:
            if file.start <= offset and file.last is not None:
                return file.last.append_time
        return None

    def find_time(self, timestamp_us: int) -> int:
        """The first offset whose message is not older; the end when all are."""
        log = self._partition.logs[self._lane]
        return 0 if log is None else self._joined(log).find_time(timestamp_us)

    def frames(self, offset: int) -> Iterator[Frame]:
        """Frames from the one that holds an offset on, up to the end of the live log, or up to a hole.

        Raises OffsetOutOfRange, which says where to go on, when it would begin with what is neither here
        nor there because retention was forced.
        """
        log = self._partition.logs[self._lane]
        self.reached = offset
        if log is None:
            if offset:
                raise OffsetOutOfRange(offset, start=0, end=0)
            return
        joined = self._joined(log)
        try:
            # Up to behind the last offset there can be: also who asks for that is told where the log ends.
            yield from joined.frames(offset, OFFSET_MAX + 1)
            self.reached = max(joined.reached, self._floor(log))
        except OffsetOutOfRange:
            if joined.reached == offset or joined.reached >= log.start:
                raise
            self.reached = joined.reached

    def records(self, offset: int, wanted: Wanted = EVERYTHING) -> Iterator[Record]:
        """The messages from an offset on, one by one, without those that were taken out for everybody."""
        removed = self._partition.removals.lanes[self._lane]
        for frame in self.frames(offset):
            for record in wanted.records(frame, offset):
                if record.offset >= offset and not (removed and record.offset in removed):
                    yield record

    def _joined(self, log: Log) -> JoinedLane:
        return JoinedLane(self._place, _LiveLog(log, self._floor), lambda: self._archived(log))

    def _floor(self, log: Log) -> int:
        """Everything before it was taken out for everybody, and need not be read."""
        return min(self._partition.removals.lanes[self._lane].floor, log.end)

    def _archived(self, log: Log) -> ArchivedTopic | None:
        """The archive, if it has something from before the log. Raises StorageFailed."""
        found = self._archive.topic(self._partition.topic, self._created_us)
        if found is None or not (lane := found.lane(self._place)).files or lane.start >= log.start:
            return None
        check_belongs(found, self._place, log)
        return found


class _LiveLog:
    def __init__(self, log: Log, floor: Callable[[Log], int]) -> None:
        self._log = log
        self._floor = floor
        self.find_time = log.find_time

    @property
    def start(self) -> int:
        return self._log.start

    @property
    def end(self) -> int:
        return self._log.end

    def frames(self, start: int, _: int) -> Iterator[Frame]:
        return self._log.frames(max(start, self._floor(self._log)))
