"""How the files of a queue are read beside whoever writes to them, but for the messages themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quivermq.delivery.journal import Replay
from quivermq.delivery.state import LaneState
from quivermq.disk import Disk
from quivermq.errors import InvalidFrame, OffsetOutOfRange, StorageFailed
from quivermq.log.reader import LogFollower
from quivermq.model.lanes import LANE_COUNT
from quivermq.settings import StorageSettings
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.removals import Removed
from quivermq.topic.state_log import replay

# A snapshot takes away the records before it: then they are read again, from it on.
_REPLAYS_MAX = 10
# Frames were checked against the limits of their time on the way in; a reader takes whatever got in.
_FRAME_BYTES_MAX = 1024 * 1024 * 1024
ANY_FRAME = StorageSettings(frame_bytes_max=_FRAME_BYTES_MAX, frame_raw_bytes_max=_FRAME_BYTES_MAX)

State = TypeVar("State")


def read_journal(disk: Disk, path: Path) -> Replay:
    """What a journal brings about; nothing has happened where there is none. Raises StorageFailed."""
    return _replayed(
        disk, path, lambda: Replay([LaneState() for _ in range(LANE_COUNT)]), Replay.apply_record
    )


def read_removed(disk: Disk, path: Path) -> list[OffsetSet]:
    """What was taken out of a partition for everybody, by lane. Raises StorageFailed."""
    return _replayed(disk, path, Removed, Removed.apply).lanes


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
