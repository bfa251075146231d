"""Opening a directory as a queue, with the engine that its disk needs."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from quivermq.clock import Clock
from quivermq.disk import Disk, SystemDisk
from quivermq.engine.engine import Engine
from quivermq.engine.shared import SharedEngine
from quivermq.errors import InvalidRequest
from quivermq.log.flusher import Scheduler
from quivermq.settings import Settings, as_settings


def open_engine(
    path: str | os.PathLike[str],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
) -> Engine:
    """Open a directory as a queue; it is created when it is new.

    `settings` may also be a mapping that is like `quiver.toml`. Raises DirectoryLocked while another
    process has it open, InvalidRequest inside of another queue's directory, and InvalidSettings. `clock`
    and `scheduler` are for tests.
    """
    settings = as_settings(settings)
    _check_path(path, disk or SystemDisk())
    if disk is None or disk.commits is None:
        return Engine(path, settings, disk=disk, clock=clock, scheduler=scheduler)
    # Nobody is told of what opening changes.
    return disk.commits.ordered(
        partial(SharedEngine, path, settings, disk=disk, clock=clock, scheduler=scheduler)
    )


def _check_path(path: object, disk: Disk) -> None:
    if not isinstance(path, str | os.PathLike) or "\0" in str(os.fspath(path)):
        raise InvalidRequest(f"a queue is opened by the path of its directory, not by {path!r}")
    if disk.exists(Path(path)) and not disk.is_directory(Path(path)):
        raise InvalidRequest(f"{path} is not a directory: a queue needs one of its own")
