"""What files a queue has, and what classes of bytes there are in each: where damage can be done."""

import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from quivermq.chaos.expectation import expect
from quivermq.errors import InvalidFrame
from quivermq.frame import parse_header

_KINDS = {
    "lane": r"topics/[^/]+/p\d+/(high|normal|low)/\d+\.log",
    "lane index": r"topics/[^/]+/p\d+/(high|normal|low)/\d+\.idx",
    "removals": r"topics/[^/]+/p\d+/removed/\d+\.log",
    "delayed messages": r"topics/[^/]+/delayed/\d+-[^/]+/\d+\.log",
    "delay journal": r"topics/[^/]+/delayed/journal/\d+\.log",
    "seen before": r"topics/[^/]+/seen/\d+\.log",
    "index of state": r"(topics|groups)/.*/\d+\.idx",
    "delivery journal": r"groups/[^/]+/[^/]+/p\d+/\d+\.log",
    "topic.json": r"topics/[^/]+/topic\.json",
    "keys.json": r"keys\.json",
    "archive.json": r"archive\.json",
    "archive manifest": r".*/_quiver/[^/]+\.json",
    "archived messages": r".*\.parquet",
    "lock": r"LOCK|.*\.lock",
}
_HEADER_FIELDS = (
    *(
        ("magic", 4),
        ("header CRC", 4),
        ("body CRC", 4),
        ("stored bytes", 4),
        ("raw bytes", 4),
        ("count", 4),
    ),
    *(("base offset", 8), ("append time", 8), ("timestamp min", 8), ("timestamp max", 8)),
    *(("producer id", 8), ("base sequence", 4), ("leader epoch", 4), ("producer epoch", 2)),
    *(("columns", 2), ("flags", 2), ("codec", 1), ("version", 1)),
)
_INDEX_BYTES = 32
_INDEX_HEADER = (("magic", 4), ("version", 4), ("base offset", 8), ("zeros", 12), ("CRC", 4))
_INDEX_ENTRY = (("offset", 8), ("timestamp", 8), ("position", 8), ("zeros", 4), ("CRC", 4))


class Place(NamedTuple):
    """A run of bytes of one class."""

    name: str
    position: int
    length: int


def kind_of(path: PurePath) -> str:
    """What kind of file that is, by its path below the data directory. Raises Unkept for an unknown one."""
    found = next((kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, str(path))), "")
    expect(found, f"a file that nobody knows: {path}")
    return found


def places(path: PurePath, data: bytes) -> list[Place]:
    """Every class of byte in a file, each with one place or a few."""
    match path.suffix:
        case ".log":
            return list(_places_of_frames(data))
        case ".idx":
            return list(_places_of_index(data))
        case ".json":
            return [Place(_name_in_json(data, position), position, 1) for position in range(len(data))]
    third = max(1, len(data) // 3)
    return [Place(f"byte {position}", position, 1) for position in range(0, len(data), third)]


def _places_of_frames(data: bytes) -> Iterator[Place]:
    """The fields and the body of the first, the middle and the last frame."""
    starts = list(_frame_starts(data))
    for where, place in (("first", 0), ("middle", len(starts) // 2), ("last", len(starts) - 1)):
        if not starts or (where != "first" and place == 0):
            continue
        start, end = starts[place]
        position = start
        for field, length in _HEADER_FIELDS:
            yield Place(f"{field} of the {where} frame", position, length)
            position += length
        for part, at in (("begin", position), ("middle", (position + end) // 2), ("end", end - 1)):
            yield Place(f"{part} of the body of the {where} frame", at, 1)


def _frame_starts(data: bytes) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(data):
        try:
            end = position + parse_header(data, position).frame_bytes
        except InvalidFrame:
            return
        yield position, end
        position = end


def _places_of_index(data: bytes) -> Iterator[Place]:
    for start in {0, _INDEX_BYTES, len(data) - _INDEX_BYTES}:
        position = start
        for field, length in _INDEX_HEADER if start == 0 else _INDEX_ENTRY:
            if 0 <= position < len(data):
                yield Place(f"{field} of the {'header' if start == 0 else 'entry'}", position, length)
            position += length


def _name_in_json(data: bytes, position: int) -> str:
    """The last name that was opened before a byte: good enough to say where it was."""
    names = re.findall(rb'"(\w+)":', data[: position + 1])
    return names[-1].decode() if names else "the beginning"


def is_json(data: bytes) -> bool:
    """Whether the bytes can still be read as JSON: then only their sum tells that they were changed."""
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
