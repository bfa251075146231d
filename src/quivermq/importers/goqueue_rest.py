"""What a GoQueue broker keeps that has no counterpart here: how much there is of it, and why."""

from pathlib import Path

from quivermq.disk import Disk
from quivermq.importers.files import is_directory, names_in

_DEPTH_MAX = 4
_SHOWN = 5

_REASONS = {
    "schemas": "topics have no schemas here, so producers and consumers go on with their own",
    "traces": "they tell what happened there, to no message that comes",
    "inflight": "what was with a consumer is delivered again, because no group has finished it",
    "tenants": "there are keys with scopes and limits instead",
    "internal": "positions are taken from offsets/",
    "snapshots": "positions are taken from offsets/",
}


def left_behind(disk: Disk, path: Path) -> str:
    """What to tell of a part of the directory that is not imported."""
    reason = _REASONS.get(path.name)
    if reason is None or not is_directory(disk, path):
        return "it is not imported"
    names = names_in(disk, path)
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    count = _files(disk, path, _DEPTH_MAX)
    of = f" of {shown}" if path.name == "schemas" and names else ""
    return f"it is not imported, files: {count}{of}; {reason}"


def _files(disk: Disk, path: Path, depth: int) -> int:
    below = [path / name for name in names_in(disk, path)]
    return sum(
        (_files(disk, each, depth - 1) if depth else 0) if is_directory(disk, each) else 1 for each in below
    )
