"""Where the parts of an archive lie, by name alone.

    <archive>/topic=<topic>/day=YYYY-MM-DD/p<partition>-<priority>-<start>-<end>.parquet
    <archive>/_quiver/<topic>.json        the manifest of a topic: which files count
    <archive>/_quiver/staging/<job>/…     files that were written and do not count yet
    <archive>/_quiver/archive.lock        held by whoever changes the archive

Readers of plain Parquet take names with an underscore for none of theirs.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

OWN = "_quiver"
STAGING = "staging"
LOCK = "archive.lock"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LanePlace(NamedTuple):
    """One lane of one partition of a topic."""

    partition: int
    priority: str


def manifest_path(archive: Path, topic: str) -> Path:
    return archive / OWN / f"{topic}.json"


def staging_path(archive: Path) -> Path:
    return archive / OWN / STAGING


def lock_path(archive: Path) -> Path:
    return archive / OWN / LOCK


def day_of(append_time_us: int) -> str:
    """The day on which a frame came in, in UTC."""
    return (_EPOCH + timedelta(microseconds=append_time_us)).strftime("%Y-%m-%d")


def file_name(topic: str, lane: LanePlace, day: str, start: int, end: int) -> str:
    """The name of a file below the archive, by the offsets that it stands for."""
    return f"topic={topic}/day={day}/p{lane.partition}-{lane.priority}-{start}-{end}.parquet"
