"""The manifest of an archived topic: which files hold which offsets. Who reads an archive goes by it.

It is replaced as a whole, and that is the moment at which files begin and cease to count. Files that
were just written may still lie in the staging directory, and those they stand in for may not be gone
yet: the manifest names both (`staged`, `dropped`) until everything is in its place.

    <archive>/messages/topic=<topic>/day=YYYY-MM-DD/p<partition>-<priority>-<start>-<end>.parquet
    <archive>/_quiver/<topic>.json        the manifest of a topic: which files count
    <archive>/_quiver/staging/<job>/…     files that were written and do not count yet
    <archive>/_quiver/archive.lock        held by whoever changes the archive

Below `messages` there is nothing but whole Parquet files that a manifest names: some readers take every
file below a directory, whatever it is called. Both are in one directory, so that a file can be renamed from
the one to the other wherever the archive is mounted.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from quivermq.disk import Disk, read_file, replace_file
from quivermq.errors import StorageFailed
from quivermq.model.lanes import PRIORITIES, Lane
from quivermq.sealed import open_seal, sealed

MESSAGES = "messages"
OWN = "_quiver"
STAGING = "staging"
LOCK = "archive.lock"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def file_name(lane: Lane, day: str, start: int, end: int) -> str:
    """The name of a file below the archive, by the offsets that it stands for."""
    return f"{_topic_name(lane.topic)}/day={day}/p{lane.partition}-{lane.priority}-{start}-{end}.parquet"


def _topic_name(topic: str) -> str:
    return f"{MESSAGES}/topic={topic}"


_VERSION = 1
_NAMES = ("version", "topic", "created_us", "generation", "lanes", "dropped")
_BYTES_MAX = 1024 * 1024 * 1024

TIMESTAMP_NONE = -(2**63)


class LastMessage(NamedTuple):
    """By what an archive knows again the log that it was made of."""

    offset: int
    append_time: int
    """When it came in, in unix microseconds."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """The messages of offsets [start, end) that are left, one file, all of them of one day."""

    name: str
    """Below the archive."""
    day: str
    start: int
    end: int
    rows: int
    timestamp_max: int
    """The latest of its messages' own times, in unix microseconds; `TIMESTAMP_NONE` of no message."""
    bytes: int
    crc: int
    """Of the end of the file, which says where everything is. Parts of the data have sums of their own."""
    staged: str | None = None
    """Where it lies, below the archive, until it has got its name."""
    last: LastMessage | None = None
    """The last message that the log had in this range, also if it is none of the rows."""


@dataclass(frozen=True, slots=True)
class ArchivedLane:
    """The offsets [start, end) of a lane: each is in one of the files, or was taken out, or is in a gap."""

    files: tuple[ArchivedFile, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    """What was lost before anybody archived it: retention was faster."""

    @property
    def start(self) -> int:
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        return self.files[-1].end if self.files else 0

    @property
    def last(self) -> LastMessage | None:
        """The last message that the log had when this was archived; None when it had none left."""
        return next((file.last for file in reversed(self.files) if file.last is not None), None)

    def whole_end(self, offset: int) -> int:
        """How far everything from an offset on is archived; the offset itself where it is not."""
        if not self.start <= offset < self.end or any(start <= offset < end for start, end in self.gaps):
            return offset
        return min((start for start, _ in self.gaps if start > offset), default=self.end)

    def next_start(self, offset: int) -> int | None:
        """The first archived offset that is not before this one; None when there is none."""
        following = self.files_from(offset)
        return max(offset, following[0].start) if following else None

    def files_from(self, offset: int) -> tuple[ArchivedFile, ...]:
        """The files that hold `offset` or what comes after it."""
        return tuple(file for file in self.files if file.end > offset)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is archived of one topic."""

    topic: str
    created_us: int
    """Which topic of that name: one that was deleted and made again has another time."""
    generation: int = 0
    """Counts the changes, so that a reader sees that there was one."""
    lanes: Mapping[Lane, ArchivedLane] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    """Names of files that others stand in for, and that have to go."""

    def lane(self, place: Lane) -> ArchivedLane:
        return self.lanes.get(place, ArchivedLane())

    @property
    def staged(self) -> list[ArchivedFile]:
        """The files that do not have their names yet."""
        return [file for lane in self.lanes.values() for file in lane.files if file.staged is not None]

    @property
    def is_settled(self) -> bool:
        """Whether every file is where its name says, and no other is left."""
        return not self.dropped and not self.staged

    def settled(self) -> "Manifest":
        """The same, once every file is where it belongs."""
        lanes = {
            place: replace(lane, files=tuple(replace(file, staged=None) for file in lane.files))
            for place, lane in self.lanes.items()
        }
        return replace(self, lanes=lanes, dropped=())

    def with_files(self, place: Lane, files: Iterable[ArchivedFile]) -> "Manifest":
        """With files behind those that are there. Offsets between them are a gap from now on."""
        lane = self.lane(place)
        gaps = list(lane.gaps)
        end = lane.end if lane.files else None
        for file in (added := tuple(files)):
            assert end is None or end <= file.start < file.end, "files of a lane come in order"
            if end is not None and end < file.start:
                gaps.append((end, file.start))
            end = file.end
        return self._with(place, ArchivedLane((*lane.files, *added), tuple(gaps)))

    def with_merged(self, place: Lane, file: ArchivedFile) -> "Manifest":
        """With one file in place of all that hold parts of its range."""
        lane = self.lane(place)
        inside = [old for old in lane.files if file.start <= old.start and old.end <= file.end]
        assert inside, "a merged file stands in for others"
        assert (inside[0].start, inside[-1].end) == (file.start, file.end), "for all of each"
        first = lane.files.index(inside[0])
        files = (*lane.files[:first], file, *lane.files[first + len(inside) :])
        gone = tuple(old.name for old in inside if old.name != file.name)
        return replace(self._with(place, replace(lane, files=files)), dropped=(*self.dropped, *gone))

    def _with(self, place: Lane, lane: ArchivedLane) -> "Manifest":
        return replace(self, lanes={**self.lanes, place: lane}, generation=self.generation + 1)


def manifest_bytes(disk: Disk, archive: Path, topic: str) -> bytes | None:
    """The file of a manifest, for whoever wants to know whether it is still the same."""
    try:
        return read_file(disk, manifest_path(archive, topic), bytes_max=_BYTES_MAX)
    except FileNotFoundError:
        return None


def parse_manifest(data: bytes, archive: Path, topic: str) -> Manifest:
    """What the file of a manifest says. Raises StorageFailed."""
    path = manifest_path(archive, topic)
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise StorageFailed(
                f"{path} has version {document['version']!r}, this release knows {_VERSION}:"
                " use the release that wrote it, or a newer one",
                path=path,
            )
        open_seal(document, _NAMES)
        return _from_json(document, topic)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageFailed(f"{path} cannot be understood: {error!r}", path=path) from error


def store_manifest(disk: Disk, archive: Path, manifest: Manifest) -> None:
    """Replace the manifest, durably: what it says counts from now on."""
    path = manifest_path(archive, manifest.topic)
    replace_file(disk, path, sealed(_to_json(manifest), indent=1))


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "topic": manifest.topic,
        "created_us": manifest.created_us,
        "generation": manifest.generation,
        "lanes": [
            {
                "partition": place.partition,
                "priority": place.priority,
                "start": lane.start,
                "end": lane.end,
                "gaps": [list(gap) for gap in lane.gaps],
                "files": [_file_to_json(file) for file in lane.files],
            }
            for place, lane in sorted(manifest.lanes.items())
        ],
        "dropped": list(manifest.dropped),
    }


def _file_to_json(file: ArchivedFile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": file.name,
        "day": file.day,
        "start": file.start,
        "end": file.end,
        "rows": file.rows,
        "timestamp_max": file.timestamp_max,
        "bytes": file.bytes,
        "crc": file.crc,
    }
    if file.last is not None:
        document["last"] = list(file.last)
    return document if file.staged is None else {**document, "staged": file.staged}


def _from_json(document: Mapping[str, Any], topic: str) -> Manifest:
    if document["topic"] != topic:
        raise ValueError(f"it is about the topic {document['topic']!r}")
    lanes = {}
    for lane in document["lanes"]:
        place = Lane(topic, _number(lane["partition"]), lane["priority"])
        if place.priority not in PRIORITIES or place in lanes:
            raise ValueError(f"{place} is no lane, or is there twice")
        lanes[place] = _lane(lane)
    return Manifest(
        topic=topic,
        created_us=_number(document["created_us"]),
        generation=_number(document["generation"]),
        lanes=lanes,
        dropped=tuple(map(_name, document["dropped"])),
    )


def _lane(document: Mapping[str, Any]) -> ArchivedLane:
    files = tuple(map(_file, document["files"]))
    gaps = tuple((_number(start), _number(end)) for start, end in document["gaps"])
    # Files and gaps together have to be one range: nobody may miss a part of it without a word.
    ranges = sorted([*((file.start, file.end) for file in files), *gaps])
    is_whole = all(a[1] == b[0] for a, b in pairwise(ranges))
    if not files or not is_whole or any(start >= end for start, end in ranges):
        raise ValueError("the files of a lane do not follow on each other")
    if (ranges[0][0], ranges[-1][1]) != (_number(document["start"]), _number(document["end"])):
        raise ValueError("the files of a lane are not its whole range")
    return ArchivedLane(files, gaps)


def _file(document: Mapping[str, Any]) -> ArchivedFile:
    staged, last = document.get("staged"), document.get("last")
    if type(document["timestamp_max"]) is not int:
        raise ValueError(f"{document['timestamp_max']!r} is not a time")
    return ArchivedFile(
        name=_name(document["name"]),
        day=str(document["day"]),
        start=_number(document["start"]),
        end=_number(document["end"]),
        rows=_number(document["rows"]),
        timestamp_max=document["timestamp_max"],
        bytes=_number(document["bytes"]),
        crc=_number(document["crc"]),
        staged=None if staged is None else _name(staged),
        last=None if last is None else LastMessage(*map(_number, last)),
    )


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of something")
    return value


def _name(value: object) -> str:
    """A path below the archive: a manifest must not lead anybody out of it."""
    if not isinstance(value, str) or not value or value.startswith("/") or ".." in value.split("/"):
        raise ValueError(f"{value!r} is no name of a file in an archive")
    return value


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """One run of an archiver: where it stages its files."""

    archive: Path
    name: str

    @property
    def staging(self) -> str:
        """Below the archive."""
        return f"{OWN}/{STAGING}/{self.name}"
