"""What one task of the archiver does, in whichever process: it stages files and tells of them."""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from quivermq.archive import Archive, ArchivedFile, LanePlace
from quivermq.archive.archiving import ArchiveRange
from quivermq.archive.manifest import ArchiveRun
from quivermq.archive.writing import write_merged, write_piece
from quivermq.disk import SystemDisk
from quivermq.errors import Conflict
from quivermq.spark.place import Lane, Place


class Copying(NamedTuple):
    """A range of a lane that becomes files."""

    job: ArchiveRun
    place: Place
    created_us: int
    piece: ArchiveRange

    def run(self) -> list[ArchivedFile]:
        """Raises Conflict when the topic is another one by now, and what `Place.frames` raises."""
        piece = self.piece
        lane = Lane(piece.topic, *piece.lane)
        with closing(self.place) as place:
            if place.created_us(piece.topic) != self.created_us:
                raise Conflict(f"the topic {piece.topic} was deleted and made again while it was archived")
            frames = place.frames(lane, piece.start, piece.end)
            return write_piece(SystemDisk(), self.job, piece, frames, place.removed(lane))


class Merging(NamedTuple):
    """Small files that become one."""

    job: ArchiveRun
    topic: str
    created_us: int
    lane: LanePlace
    files: list[ArchivedFile]

    def run(self) -> list[ArchivedFile]:
        disk = SystemDisk()
        topic = Archive(self.job.archive, disk).topic(self.topic, self.created_us)
        assert topic is not None, "whoever holds the archive has seen its manifest"
        return [write_merged(disk, self.job, topic, self.lane, self.files)]


def run(work: Copying | Merging) -> Iterator[list[ArchivedFile]]:
    """In an executor: do it."""
    yield work.run()
