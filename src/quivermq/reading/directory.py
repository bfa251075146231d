"""A data directory, read beside whoever writes to it: mapped memory, no lock, no change.

Messages come from the logs, the state of groups from their journals. What a process only has in memory is
not seen.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from quivermq.archive import load_pointer, store_pointer
from quivermq.archive.reading import DEFAULT_NAME
from quivermq.clock import SystemClock
from quivermq.delivery.journal import DeadLetterIntent, Replay
from quivermq.delivery.state import LaneState, unfinished
from quivermq.disk import Disk, SystemDisk
from quivermq.errors import (
    DirectoryLocked,
    InvalidFrame,
    InvalidSettings,
    OffsetOutOfRange,
    StorageFailed,
    TopicNotFound,
)
from quivermq.frame import Frame
from quivermq.log.directory import check_exists
from quivermq.log.reader import LogFollower
from quivermq.log.verify import contents, count_frames
from quivermq.model.lanes import LANE_COUNT, PRIORITIES, Lane, lane_number
from quivermq.model.names import check_topic_name, usual_origin
from quivermq.model.operations import NOTHING, LaneBounds, TopicExtent
from quivermq.model.topic_settings import TopicSettings
from quivermq.reading.archived import ArchivedReader
from quivermq.reading.reader import (
    DeliveryRow,
    GroupRow,
    MessageReader,
    QueueReader,
    SegmentPart,
    SegmentRow,
    T,
    local_path,
)
from quivermq.settings import StorageSettings
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.removals import Removed
from quivermq.topic.state_log import changes_of, replay
from quivermq.topic.stored import StoredTopic, load_topic
from quivermq.topic.transfer import find_transfer

# A snapshot takes away the records before it: then they are read again, from it on.
_REPLAYS_MAX = 10
# Frames were checked against the limits of their time on the way in; a reader takes whatever got in.
_FRAME_BYTES_MAX = 1024 * 1024 * 1024
ANY_FRAME = StorageSettings(frame_bytes_max=_FRAME_BYTES_MAX, frame_raw_bytes_max=_FRAME_BYTES_MAX)

State = TypeVar("State")


class DirectoryReader(QueueReader):
    """The topics of a data directory."""

    has_journals = True

    def __init__(self, path: str) -> None:
        self.path = local_path(path)
        self._disk = SystemDisk()
        # By lane and by the topic's identity: files of a topic that was made again are others.
        self._followers: dict[tuple[Lane, int], LogFollower] = {}

    def _arguments(self) -> tuple[Any, ...]:
        return (str(self.path),)

    def __str__(self) -> str:
        return str(self.path)

    def choose(
        self,
        *,
        directory: "Callable[[DirectoryReader], T]",
        broker: Callable[[Any], T],  # noqa: ARG002  (That of a broker is not called.)
    ) -> T:
        return directory(self)

    def options(self) -> dict[str, str]:
        return {"path": str(self.path)}

    def open_queue(self, *, if_locked: str = "") -> Any:
        import quivermq

        try:
            return quivermq.open(self.path)
        except DirectoryLocked as error:
            if not if_locked:
                raise
            # Without its fields: the command line adds its own advice to an error that names a process.
            raise DirectoryLocked.__new__(DirectoryLocked, f"{error}: {if_locked}") from None

    def state_root(self) -> Path:
        return self.path / "pipelines"

    def origins(self) -> dict[str, str | None]:
        check_exists(self._disk, self.path)
        names = self._disk.names(self.path / "topics")
        return {name: self.origin(name) for name in names if self._is_topic(name)}

    def origin(self, topic: str) -> str | None:
        try:
            stored = self._find(topic)
        except (StorageFailed, InvalidSettings):
            stored = None
        return usual_origin(topic) if stored is None else stored.dead_letters_of

    def look(self, topic: str) -> TopicExtent:
        stored = self._stored(topic)
        lanes = self._lanes(topic, stored)
        return TopicExtent(stored.created_us, stored.settings, lanes, stored.dead_letters_of)

    def created_us(self, topic: str) -> int:
        return self._stored(topic).created_us

    def settings(self, topic: str) -> TopicSettings:
        return self._stored(topic).settings

    def lanes(self, topic: str) -> dict[Lane, LaneBounds]:
        return self._lanes(topic, self._stored(topic))

    def _lanes(self, topic: str, stored: StoredTopic) -> dict[Lane, LaneBounds]:
        found: dict[Lane, LaneBounds] = {}
        for partition in range(stored.settings.partitions):
            used = set(self._disk.names(self._partition_path(topic, partition)))
            for priority in PRIORITIES:
                lane = Lane(topic, partition, priority)
                if priority in used:
                    found[lane] = _bounds(self._follower(lane, stored.created_us))
                elif priority == "normal":
                    # A partition is listed from its first moment on, for its normal lane.
                    found[lane] = NOTHING
        return found

    def synced_ends(self, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:
        stored = self._stored(topic)
        return {
            lane: self._follower(lane, stored.created_us).sync(starts.get(lane, 0)) if bounds.end else 0
            for lane, bounds in self._lanes(topic, stored).items()
        }

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        return self._follower(lane).find_time(timestamp_us)

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        if start >= end:
            return
        follower, reached = self._follower(lane), start
        for frame in follower.frames(start, mapped=True):
            reached = frame.header.end_offset
            yield frame
            if reached >= end:
                return
        # A log that ends early has lost something; fewer rows must never look like all of them.
        raise OffsetOutOfRange(reached, start=follower.start, end=follower.end)

    def removed(self, lane: Lane) -> OffsetSet:
        path = self._partition_path(lane.topic, lane.partition) / "removed"
        return _replayed(self._disk, path, Removed, Removed.apply).lanes[lane_number(lane.priority)]

    def close(self) -> None:
        self._followers = {}

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> bool:  # noqa: ARG002
        return False

    def _with_own_archive(self) -> MessageReader:
        directory = self.archive_directory()
        return self if directory is None else ArchivedReader.checked(self, directory)

    def archive_directory(self) -> Path | None:
        return load_pointer(self._disk, self.path)

    def new_archive_directory(self) -> Path:
        return self.path / DEFAULT_NAME

    def use_archive(self, directory: Path) -> None:
        store_pointer(self._disk, self.path, directory)

    def first_since(self, lane: Lane, append_us: int) -> int:
        start = 0
        for segment in self.follower(lane).segments:
            came_us = segment.first_append_time()
            segment.forget_index()
            if came_us is not None and came_us >= append_us:
                break
            start = segment.base_offset
        return start

    def segments(self, topic: str) -> list[SegmentPart]:
        return [
            SegmentPart(lane, each.base_offset, each.end_offset, each.end, each is not segments[-1])
            for lane, bounds in self.lanes(topic).items()
            if bounds.end > bounds.start
            for segments in [self.follower(lane).segments]
            for each in segments
            if each.end_offset > each.base_offset
        ]

    def groups(self, topic: str) -> list[str]:
        root = self.path / "groups"
        return [name for name in self._disk.names(root) if self._disk.is_directory(root / name / topic)]

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        for lane, bounds, state in self._group_lanes(topic, group):
            position = max(state.next, bounds.start)
            states = Counter(each.state for each in unfinished(state, SystemClock().now_us()))
            yield GroupRow(
                *lane,
                group,
                state.floor if state.has_begun else None,
                position,
                bounds.start,
                bounds.end,
                self.removed(lane).missing_between(position, bounds.end) + states["released"],
                states["in_flight"],
                states["retrying"],
                states["waiting_for_key"],
            )

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        for lane, _, state in self._group_lanes(topic, group):
            for each in unfinished(state, SystemClock().now_us()):
                yield DeliveryRow.of(lane, group, *each)

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        for lane, bounds in self.lanes(topic).items():
            segments = self.follower(lane).segments if bounds.end else ()
            for segment in segments:
                try:
                    found, frames = contents(segment), count_frames(segment)
                except FileNotFoundError:
                    continue  # Retention was faster.
                yield SegmentRow(
                    *lane,
                    found.base_offset,
                    found.end_offset,
                    found.size_bytes,
                    frames,
                    found.end_offset - found.base_offset,
                    found.first_timestamp,
                    found.last_timestamp,
                    segment is not segments[-1],
                    str(segment.path),
                )

    def journal_changes(self, topic: str, group: str, partition: int) -> Iterator[tuple[int, bytes]]:
        path = self._journal_path(topic, group, partition)
        if not self._disk.is_directory(path):
            return
        try:
            for frame in LogFollower(path, StorageSettings(), disk=self._disk).frames():
                for record in changes_of(frame):
                    yield frame.header.append_time, record
        except OffsetOutOfRange:
            return  # A snapshot took the rest away just now; what was read holds.

    def _group_lanes(self, topic: str, group: str) -> Iterator[tuple[Lane, LaneBounds, LaneState]]:
        """Every lane that is in use, as it is and as a group would find it if it were opened now."""
        try:
            partitions = self.settings(topic).partitions
        except TopicNotFound:
            return  # Somebody has just deleted it.
        for partition in range(partitions):
            found = read_journal(self._journal_path(topic, group, partition))
            # Looked at once the journal was read: it tells of no message that the lanes lack, unless a
            # power loss took it.
            held = self.lanes(topic)
            lanes = [Lane(topic, partition, priority) for priority in PRIORITIES]
            for lane, state in zip(lanes, found.lanes, strict=True):
                end = held.get(lane, NOTHING).end
                if state.reaches_behind(end):
                    state.cut(end)
            for intent in found.intents:
                if self._has_arrived(topic, intent):
                    found.lanes[intent.lane].finish(intent.offsets)
            for lane, state in zip(lanes, found.lanes, strict=True):
                if held.get(lane, NOTHING).end:
                    yield lane, held[lane], state

    def _has_arrived(self, topic: str, intent: DeadLetterIntent) -> bool:
        """Whether messages on their way to the dead letters are there: then they are finished here."""
        name = topic + self.settings(topic).dead_letter_suffix
        target = Lane(name, intent.target_partition, "normal")
        if self.origins().get(name) != topic or not self.lanes(name).get(target, NOTHING).end:
            return False
        return find_transfer(self.follower(target), intent.target_end, intent.transfer) is not None

    def follower(self, lane: Lane) -> LogFollower:
        """The log of a lane, up to date, for whoever needs to know its segments."""
        follower = self._follower(lane)
        follower.refresh()
        return follower

    def _follower(self, lane: Lane, created_us: int | None = None) -> LogFollower:
        """The log of a lane. `created_us` says that the topic was just looked at; then the log is, too."""
        identity = (lane, self.created_us(lane.topic) if created_us is None else created_us)
        follower = self._followers.get(identity)
        if follower is None:
            directory = self._partition_path(lane.topic, lane.partition) / lane.priority
            follower = self._followers[identity] = LogFollower(directory, ANY_FRAME, disk=self._disk)
        elif created_us is not None:
            follower.refresh()
        return follower

    def _partition_path(self, topic: str, partition: int) -> Path:
        return self.path / "topics" / topic / f"p{partition}"

    def _journal_path(self, topic: str, group: str, partition: int) -> Path:
        return self.path / "groups" / group / topic / f"p{partition}"

    def _stored(self, topic: str) -> StoredTopic:
        check_topic_name(topic)
        check_exists(self._disk, self.path)
        stored = self._find(topic)
        if stored is None:
            raise TopicNotFound(f"there is no topic {topic} in {self.path}")
        return stored

    def _is_topic(self, name: str) -> bool:
        try:
            return self._find(name) is not None
        except (StorageFailed, InvalidSettings):
            # It is one, and whoever asks for it is told what is wrong with it; the others can be read.
            return True

    def _find(self, topic: str) -> StoredTopic | None:
        stored = load_topic(self._disk, self.path / "topics" / topic)
        return None if stored is None or stored.deleted else stored


def _bounds(follower: LogFollower) -> LaneBounds:
    segments = follower.segments
    if not segments:
        return NOTHING
    last = segments[-1]
    return LaneBounds(
        segments[0].base_offset, last.base_offset, last.end_offset, sum(s.end for s in segments)
    )


def read_journal(path: Path) -> Replay:
    """What a journal brings about; nothing has happened where there is none. Raises StorageFailed."""
    return _replayed(
        SystemDisk(), path, lambda: Replay([LaneState() for _ in range(LANE_COUNT)]), Replay.apply_record
    )


def _replayed(
    disk: Disk, path: Path, make: Callable[[], State], apply: Callable[[State, bytes], object]
) -> State:
    """What the records of a state log make of a new state; it stays new where there is no log.

    Raises StorageFailed for records that cannot be understood.
    """
    for _ in range(_REPLAYS_MAX):
        state = make()
        if not disk.is_directory(path):
            return state
        try:
            for record in replay(LogFollower(path, StorageSettings(), disk=disk).frames()).records:
                apply(state, record)
        except OffsetOutOfRange:
            continue
        except (InvalidFrame, IndexError, ValueError) as error:
            raise StorageFailed(
                f"{path} has a record that this release does not understand: {error}", path=path
            ) from error
        return state
    raise StorageFailed(f"{path} is replaced faster than it can be read", path=path)
