"""A data directory, read beside whoever writes to it: mapped memory, no lock, no change."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from quivermq.clock import Clock, SystemClock
from quivermq.delivery.journal import Burial, Replay
from quivermq.delivery.state import LaneState
from quivermq.delivery.unfinished import unfinished
from quivermq.disk import Disk, SystemDisk
from quivermq.errors import (
    InvalidFrame,
    InvalidRequest,
    InvalidSettings,
    OffsetOutOfRange,
    StorageFailed,
    TopicNotFound,
)
from quivermq.frame import Frame
from quivermq.log.contents import contents, count_frames
from quivermq.log.directory import check_exists
from quivermq.log.follower import LogFollower
from quivermq.settings import StorageSettings
from quivermq.spark.place import (
    NORMAL,
    NOTHING,
    DeliveryRow,
    GroupRow,
    Lane,
    LaneBounds,
    SegmentRow,
    TopicView,
    delivery_row,
)
from quivermq.topic.names import check_topic_name, usual_origin
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.partition import LANE_NUMBERS, LANES
from quivermq.topic.removals import Removed
from quivermq.topic.settings import TopicSettings
from quivermq.topic.state_log import replay
from quivermq.topic.stored import StoredTopic, load_topic
from quivermq.topic.transfer import find_transfer

# A snapshot takes away the records before it: then they are read again, from it on.
_REPLAYS_MAX = 10

State = TypeVar("State")


def replayed(
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


# Frames were checked against the limits of their time on the way in; a reader takes whatever got in.
_FRAME_BYTES_MAX = 1024 * 1024 * 1024
_SETTINGS = StorageSettings(frame_bytes_max=_FRAME_BYTES_MAX, frame_raw_bytes_max=_FRAME_BYTES_MAX)


class DirectoryPlace:
    """The topics of a data directory. Any thread may ask."""

    def __init__(self, path: str) -> None:
        self.path = local_path(path)
        self._disk = SystemDisk()
        # By lane and by the topic's identity: files of a topic that was made again are others.
        self._followers: dict[tuple[Lane, int], LogFollower] = {}

    def __repr__(self) -> str:
        return f"DirectoryPlace({str(self.path)!r})"

    def __str__(self) -> str:
        return str(self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DirectoryPlace) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectoryPlace, (str(self.path),)

    def topics(self) -> list[str]:
        return list(self.origins())

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

    def look(self, topic: str) -> TopicView:
        stored = self._stored(topic)
        return TopicView(stored.created_us, stored.settings, self._lanes(topic, stored))

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
            for priority in LANES:
                lane = Lane(topic, partition, priority)
                if priority in used:
                    found[lane] = _bounds(self._follower(lane, stored.created_us))
                elif priority == NORMAL:
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
        return replayed(self._disk, path, Removed, Removed.apply).lanes[LANE_NUMBERS[lane.priority]]

    def close(self) -> None:
        self._followers = {}

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
            follower = self._followers[identity] = LogFollower(directory, _SETTINGS, disk=self._disk)
        elif created_us is not None:
            follower.refresh()
        return follower

    def _partition_path(self, topic: str, partition: int) -> Path:
        return self.path / "topics" / topic / f"p{partition}"

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


def local_path(path: str) -> Path:
    """The directory that a path or a `file:` address means. Raises InvalidRequest for any other address."""
    parts = urlsplit(path)
    if not parts.scheme:
        return Path(path).absolute()
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise InvalidRequest(
            f"{path} is not a directory of this machine: mount it on every executor and give its path,"
            " or read through a broker with the option `server`"
        )
    return Path(unquote(parts.path))


def _bounds(follower: LogFollower) -> LaneBounds:
    segments = follower.segments
    if not segments:
        return NOTHING
    last = segments[-1]
    return LaneBounds(
        segments[0].base_offset, last.base_offset, last.end_offset, sum(s.end for s in segments)
    )


def groups_of(place: DirectoryPlace, topic: str) -> list[str]:
    """The groups that have been in a topic, sorted."""
    disk, root = SystemDisk(), place.path / "groups"
    return [name for name in disk.names(root) if disk.is_directory(root / name / topic)]


def journal_path(place: DirectoryPlace, topic: str, group: str, partition: int) -> Path:
    """Where the journal of a group in a partition lies, whether there is one or not."""
    return place.path / "groups" / group / topic / f"p{partition}"


def lane_states(
    place: DirectoryPlace,
    topic: str,
    group: str,
    partition: int,
    bounds: Callable[[], dict[Lane, LaneBounds]],
) -> list[LaneState]:
    """The lanes of a partition as a group sees them: what it would find if it were opened now.

    `bounds` is asked once the journal was read, so that it tells of no message that the lanes lack, unless
    a power loss took it. Raises StorageFailed and Corruption.
    """
    found = read_journal(journal_path(place, topic, group, partition))
    lanes = bounds()
    for priority, state in zip(LANES, found.lanes, strict=True):
        held = lanes.get(Lane(topic, partition, priority))
        end = 0 if held is None else held.end
        if state.reaches_behind(end):
            state.cut(end)
    for burial in found.burials:
        if _has_arrived(place, topic, burial):
            found.lanes[burial.lane].finish(burial.offsets)
    return found.lanes


def read_journal(path: Path) -> Replay:
    """What a journal brings about; nothing has happened where there is none. Raises StorageFailed."""
    return replayed(SystemDisk(), path, lambda: Replay([LaneState() for _ in LANES]), Replay.apply_record)


def _has_arrived(place: DirectoryPlace, topic: str, burial: Burial) -> bool:
    """Whether messages on their way to the dead letters are there: then they are finished here."""
    name = topic + place.settings(topic).dead_letter_suffix
    if place.origins().get(name) != topic:
        return False
    grave = Lane(name, burial.target_partition, "normal")
    if not place.lanes(grave.topic).get(grave, LaneBounds(0, 0, 0, 0)).end:
        return False
    return find_transfer(place.follower(grave), burial.target_end, burial.transfer) is not None


class DirectoryState:
    """Replays journals and looks at files. What a process only has in memory is not seen."""

    def __init__(self, place: DirectoryPlace, clock: Clock | None = None) -> None:
        self._place = place
        self._clock = clock or SystemClock()

    def groups(self, topic: str) -> list[str]:
        return groups_of(self._place, topic)

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        for lane, bounds, state in self._lanes(topic, group):
            found = unfinished(state, self._clock.now_us())
            position = max(state.next, bounds.start)
            states = Counter(each.state for each in found)
            yield GroupRow(
                *lane,
                group,
                state.floor if state.has_position else None,
                position,
                bounds.start,
                bounds.end,
                self._place.removed(lane).missing_between(position, bounds.end) + states["released"],
                states["in_flight"],
                states["retrying"],
                states["waiting_for_key"],
            )

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        for lane, _, state in self._lanes(topic, group):
            for each in unfinished(state, self._clock.now_us()):
                yield delivery_row(lane, group, *each)

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        for lane, bounds in self._place.lanes(topic).items():
            segments = self._place.follower(lane).segments if bounds.end else ()
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

    def _lanes(self, topic: str, group: str) -> Iterator[tuple[Lane, LaneBounds, LaneState]]:
        """Every lane that is in use, as it is and as the group sees it."""
        try:
            partitions = self._place.settings(topic).partitions
        except TopicNotFound:
            return  # Somebody has just deleted it.
        for partition in range(partitions):
            held: dict[Lane, LaneBounds] = {}

            def bounds(held: dict[Lane, LaneBounds] = held) -> dict[Lane, LaneBounds]:
                held.update(self._place.lanes(topic))
                return held

            states = lane_states(self._place, topic, group, partition, bounds)
            for priority, state in zip(LANES, states, strict=True):
                lane = Lane(topic, partition, priority)
                if lane in held and held[lane].end:
                    yield lane, held[lane], state
