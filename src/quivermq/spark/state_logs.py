"""State logs of a data directory, read beside whoever writes them: no lock, no change."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quivermq.disk import Disk
from quivermq.errors import InvalidFrame, OffsetOutOfRange, StorageFailed
from quivermq.log.reader import LogFollower
from quivermq.settings import StorageSettings
from quivermq.topic.state_log import replay

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
