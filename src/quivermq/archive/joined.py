"""Archived and live as one log: whoever reads a lane that has an archive reads a `JoinedLane`."""

from collections.abc import Callable, Iterator
from typing import Protocol

from quivermq.archive.manifest import ArchivedLane
from quivermq.archive.reading import ArchivedTopic
from quivermq.errors import OffsetOutOfRange
from quivermq.frame import Frame
from quivermq.model.lanes import Lane


class LiveLog(Protocol):
    """The log of a lane, as it is at the moment."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    def frames(self, start: int, end: int, /) -> Iterator[Frame]: ...
    def find_time(self, timestamp_us: int, /) -> int: ...


class JoinedLane:
    """One lane: archived offsets, then those of the log. `archived` looks anew at what is archived."""

    def __init__(self, place: Lane, live: LiveLog, archived: Callable[[], ArchivedTopic | None]) -> None:
        self._place = place
        self._live = live
        self._archived = archived
        # How far `frames` has come: what lies before it was read, or is not there any more.
        self.reached = 0

    def find_time(self, timestamp_us: int) -> int:
        """The first offset whose message is not older; the end when all are."""
        archived = self._archived()
        found = None if archived is None else archived.find_time(self._place, timestamp_us)
        return self._live.find_time(timestamp_us) if found is None else found

    def archived_part(self, start: int, end: int) -> tuple[ArchivedTopic | None, int]:
        """The archive, and up to where [start, end) is to be read from it; `start` where none of it is."""
        begins = self._live.start
        # One look for both, because the archive may be another one at the next.
        archived = self._archived() if start < begins else None
        if archived is None:
            return None, start
        return archived, max(start, min(end, begins, archived.lane(self._place).whole_end(start)))

    def frames(self, start: int, end: int) -> Iterator[Frame]:
        """The frames of [start, end), as far as the log goes.

        Raises OffsetOutOfRange, which says where to go on, at offsets that are neither here nor there,
        because retention was forced.
        """
        self.reached = start
        while self.reached < end:
            if self.reached < self._live.start:
                archived, stop = self.archived_part(self.reached, end)
                if archived is None or stop <= self.reached:
                    raise self._gone(archived)
                yield from archived.frames(self._place, self.reached, stop)
                self.reached = stop
                continue
            try:
                for frame in self._live.frames(self.reached, end):
                    yield frame
                    self.reached = max(self.reached, frame.header.end_offset)
                return
            except OffsetOutOfRange:
                # Unless retention was faster: what it took is archived.
                if self.reached >= self._live.start:
                    raise

    def _gone(self, archived: ArchivedTopic | None) -> OffsetOutOfRange:
        """The error of offsets that are gone: its `start` is where to go on."""
        offset, start = self.reached, self._live.start
        lane = ArchivedLane() if archived is None else archived.lane(self._place)
        following = lane.next_start(offset)
        error = OffsetOutOfRange(
            offset, start=start if following is None else min(start, following), end=self._live.end
        )
        if lane.files and lane.start <= offset:
            text = (
                f"offset {offset} is gone: retention took it before it was archived;"
                f" go on with {error.start}"
            )
            error.args = (text,)
        return error
