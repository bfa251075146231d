"""The delivery journals of a data directory, read beside whoever writes them: no lock, no change."""

from collections.abc import Callable
from pathlib import Path

from quivermq.delivery.journal import Burial, Replay
from quivermq.delivery.state import LaneState
from quivermq.disk import SystemDisk
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.place import Lane, LaneBounds
from quivermq.spark.state_logs import replayed
from quivermq.topic.partition import LANES
from quivermq.topic.transfer import find_transfer


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
