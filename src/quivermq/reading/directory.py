"""A data directory, read beside whoever writes to it: mapped memory, no lock, no change.

Messages come from the logs, the state of groups from their journals. What a process only has in memory is
not seen.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.archive import load_pointer, store_pointer
from quivermq.archive.reading import DEFAULT_NAME
from quivermq.clock import SystemClock
from quivermq.delivery.journal import DeadLetterIntent
from quivermq.delivery.state import LaneState, unfinished
from quivermq.disk import Disk, SystemDisk
from quivermq.errors import (
    DirectoryLocked,
    InvalidSettings,
    OffsetOutOfRange,
    StorageFailed,
    TopicNotFound,
)
from quivermq.frame import Frame
from quivermq.log import Report
from quivermq.log.directory import check_exists
from quivermq.log.reader import LogFollower
from quivermq.log.verify import contents, count_frames, total_bytes, verify
from quivermq.model.lanes import PRIORITIES, Lane, lane_number
from quivermq.model.messages import StoredMessage
from quivermq.model.names import check_topic_name, usual_origin
from quivermq.model.operations import NOTHING, LaneBounds, TopicExtent
from quivermq.model.stats_json import relative_path
from quivermq.model.topic_settings import TopicSettings
from quivermq.reading.archived import ArchivedReader
from quivermq.reading.files import ANY_FRAME, read_journal, read_removed
from quivermq.reading.reader import (
    BytesCallback,
    DeliveryRow,
    GroupRow,
    MessageReader,
    QueueReader,
    SegmentPart,
    SegmentRow,
    local_path,
)
from quivermq.settings import StorageSettings
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.state_log import changes_of
from quivermq.topic.stored import StoredTopic, load_topic
from quivermq.topic.transfer import find_transfer

if TYPE_CHECKING:
    from quivermq.queue.connection import Connection


class DirectoryReader(QueueReader):
    """The topics of a data directory."""

    # Whether its files are mapped, so that of their pages only those are read that are looked at.
    _can_map = True

    def __init__(self, path: str) -> None:
        self.path = local_path(path)
        self.disk: Disk = SystemDisk()
        # By lane and by the topic's identity: files of a topic that was made again are others.
        self._followers: dict[tuple[Lane, int], LogFollower] = {}

    def _arguments(self) -> tuple[Any, ...]:
        return (str(self.path),)

    def __str__(self) -> str:
        return str(self.path)

    def options(self) -> dict[str, str]:
        return {"path": str(self.path)}

    def open_queue(
        self,
        *,
        if_locked: str = "",
        is_patient: bool = False,  # noqa: ARG002  (A directory is always there.)
    ) -> "Connection":
        # Here, because whoever only reads does without all of it.
        from quivermq.opening import open_directory

        try:
            return open_directory(self.path, disk=self.disk)
        except DirectoryLocked as error:
            if not if_locked:
                raise
            # Without its fields: the command line adds its own advice to an error that names a process.
            raise DirectoryLocked.__new__(DirectoryLocked, f"{error}: {if_locked}") from None

    def state_root(self) -> Path:
        return self.path / "pipelines"

    def staging_root(self) -> Path:
        return self.path

    def files_root(self) -> Path:
        return self.path

    def origins(self) -> dict[str, str | None]:
        self._look()
        check_exists(self.disk, self.path)
        names = self.disk.names(self.path / "topics")
        return {name: self._origin(name) for name in names if self._is_topic(name)}

    def origin(self, topic: str) -> str | None:
        self._look()
        return self._origin(topic)

    def _origin(self, topic: str) -> str | None:
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

    def _look(self) -> None:
        """Called before anything is asked. What a directory has is always what it has now."""

    def _lanes(self, topic: str, stored: StoredTopic) -> dict[Lane, LaneBounds]:
        found: dict[Lane, LaneBounds] = {}
        for partition in stored.settings.own_partitions:
            used = set(self.disk.names(self._partition_path(topic, partition)))
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
        for frame in follower.frames(start, mapped=self._can_map):
            reached = frame.header.end_offset
            yield frame
            if reached >= end:
                return
        # A log that ends early has lost something; fewer rows must never look like all of them.
        raise OffsetOutOfRange(reached, start=follower.start, end=follower.end)

    def read(self, lane: Lane, start: int, limit: int) -> list[StoredMessage]:
        follower, removed = self.follower(lane), self.removed(lane)
        if follower.start <= start:
            # After a purge, there may be very many before the first that is left.
            start = max(start, min(removed.floor, follower.end))
        left = (record for record in follower.records(start) if record.offset not in removed)
        return [
            StoredMessage(lane.topic, lane.partition, lane.priority, *record)
            for record in islice(left, limit)
        ]

    def removed(self, lane: Lane) -> OffsetSet:
        path = self._partition_path(lane.topic, lane.partition) / "removed"
        return read_removed(self.disk, path)[lane_number(lane.priority)]

    def close(self) -> None:
        self._followers = {}

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> bool:  # noqa: ARG002
        return False

    def _with_own_archive(self) -> MessageReader:
        directory = self.archive_directory()
        return self if directory is None else ArchivedReader.checked(self, directory)

    def archive_directory(self) -> Path | None:
        return load_pointer(self.disk, self.path)

    def new_archive_directory(self) -> Path:
        return self.path / DEFAULT_NAME

    def use_archive(self, directory: Path) -> None:
        store_pointer(self.disk, self.path, directory)

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

    def verify(self, progress: BytesCallback | None = None) -> Report:
        total, done = 0 if progress is None else total_bytes(self.path, self.disk), 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None:
                progress(done, total)

        report = verify(self.path, disk=self.disk, progress=advance)
        report.findings = [
            replace(each, path=relative_path(each.path, self.path)) for each in report.findings
        ]
        return report

    def groups(self, topic: str) -> list[str]:
        self._look()
        root = self.path / "groups"
        return [name for name in self.disk.names(root) if self.disk.is_directory(root / name / topic)]

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
                    found = contents(segment)
                    frames = count_frames(segment) if self._can_map else None
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
        if not self.disk.is_directory(path):
            return
        try:
            for frame in LogFollower(path, StorageSettings(), disk=self.disk).frames():
                for record in changes_of(frame):
                    yield frame.header.append_time, record
        except OffsetOutOfRange:
            return  # A snapshot took the rest away just now; what was read holds.

    def _group_lanes(self, topic: str, group: str) -> Iterator[tuple[Lane, LaneBounds, LaneState]]:
        """Every lane that is in use, as it is and as a group would find it if it were opened now."""
        try:
            partitions = self.settings(topic).own_partitions
        except TopicNotFound:
            return  # Somebody has just deleted it.
        for partition in partitions:
            found = read_journal(self.disk, self._journal_path(topic, group, partition))
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
        self._look()
        follower = self._follower(lane)
        follower.refresh()
        return follower

    def _follower(self, lane: Lane, created_us: int | None = None) -> LogFollower:
        """The log of a lane. `created_us` says that the topic was just looked at; then the log is, too."""
        identity = (lane, self.created_us(lane.topic) if created_us is None else created_us)
        follower = self._followers.get(identity)
        if follower is None:
            directory = self._partition_path(lane.topic, lane.partition) / lane.priority
            follower = self._followers[identity] = LogFollower(directory, ANY_FRAME, disk=self.disk)
        elif created_us is not None:
            follower.refresh()
        return follower

    def _partition_path(self, topic: str, partition: int) -> Path:
        return self.path / "topics" / topic / f"p{partition}"

    def _journal_path(self, topic: str, group: str, partition: int) -> Path:
        return self.path / "groups" / group / topic / f"p{partition}"

    def _stored(self, topic: str) -> StoredTopic:
        check_topic_name(topic)
        self._look()
        check_exists(self.disk, self.path)
        stored = self._find(topic)
        if stored is None:
            raise TopicNotFound(f"there is no topic {topic} in {self}")
        return stored

    def _is_topic(self, name: str) -> bool:
        try:
            return self._find(name) is not None
        except (StorageFailed, InvalidSettings):
            # It is one, and whoever asks for it is told what is wrong with it; the others can be read.
            return True

    def _find(self, topic: str) -> StoredTopic | None:
        stored = load_topic(self.disk, self.path / "topics" / topic)
        return None if stored is None or stored.deleted else stored


def _bounds(follower: LogFollower) -> LaneBounds:
    segments = follower.segments
    if not segments:
        return NOTHING
    last = segments[-1]
    return LaneBounds(
        segments[0].base_offset, last.base_offset, last.end_offset, sum(s.end for s in segments)
    )
