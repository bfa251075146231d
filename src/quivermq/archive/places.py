"""Where the parts of an archive lie, by name alone.

    <archive>/messages/topic=<topic>/day=YYYY-MM-DD/p<partition>-<priority>-<start>-<end>.parquet
    <archive>/_quiver/<topic>.json        the manifest of a topic: which files count
    <archive>/_quiver/staging/<job>/…     files that were written and do not count yet
    <archive>/_quiver/archive.lock        held by whoever changes the archive

Below `messages` there is nothing but whole Parquet files that a manifest names: some readers take every
file below a directory, whatever it is called. Both are in one directory, so that a file can be renamed from
the one to the other wherever the archive is mounted.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

MESSAGES = "messages"
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


def topic_path(archive: Path, topic: str) -> Path:
    """Where the messages of a topic are."""
    return archive / _topic_name(topic)


def day_of(append_time_us: int) -> str:
    """The day on which a frame came in, in UTC."""
    return (_EPOCH + timedelta(microseconds=append_time_us)).strftime("%Y-%m-%d")


def file_name(topic: str, lane: LanePlace, day: str, start: int, end: int) -> str:
    """The name of a file below the archive, by the offsets that it stands for."""
    return f"{_topic_name(topic)}/day={day}/p{lane.partition}-{lane.priority}-{start}-{end}.parquet"


def _topic_name(topic: str) -> str:
    return f"{MESSAGES}/topic={topic}"
