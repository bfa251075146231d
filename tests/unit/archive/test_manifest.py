"""The manifest says exactly which files count, and is refused when it does not hold together."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.faulty_disk import FaultyDisk

from quivermq.archive import (
    Archive,
    ArchivedFile,
    ArchivedLane,
    Manifest,
    load_pointer,
    store_pointer,
)
from quivermq.archive.manifest import LastMessage, manifest_path, store_manifest
from quivermq.disk import replace_file
from quivermq.errors import StorageFailed
from quivermq.model.lanes import Lane

ARCHIVE, DATA = Path("/archive"), Path("/data")
LANE = Lane("t", 1, "low")


def file(start: int, end: int, **more: Any) -> ArchivedFile:
    return ArchivedFile(
        f"messages/topic=t/day=d/p-{start}-{end}.parquet", "d", start, end, end - start, 9, 100, 7, **more
    )


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory(ARCHIVE / "_quiver")
    disk.make_directory(DATA)
    return disk


def test_a_manifest_comes_back_as_it_was(disk: FaultyDisk) -> None:
    manifest = Manifest("t", 5).with_files(LANE, [file(3, 5), file(7, 9, staged="_quiver/staging/j/x")])
    manifest = manifest.with_merged(LANE, file(3, 5))
    store_manifest(disk, ARCHIVE, manifest)
    assert Archive(ARCHIVE, disk).manifest("t") == manifest
    assert manifest.lane(LANE).gaps == ((5, 7),)
    assert Archive(ARCHIVE, disk).manifest("other") is None


def test_a_merged_file_stands_in_for_what_it_holds() -> None:
    manifest = Manifest("t", 5).with_files(LANE, [file(0, 2), file(2, 4), file(4, 6), file(6, 8)])
    merged = manifest.with_merged(LANE, file(2, 6))
    assert [(f.start, f.end) for f in merged.lane(LANE).files] == [(0, 2), (2, 6), (6, 8)]
    assert merged.dropped == (file(2, 4).name, file(4, 6).name)
    assert not merged.is_settled
    assert merged.settled().is_settled


def test_the_last_message_comes_back(disk: FaultyDisk) -> None:
    known = file(0, 2, last=LastMessage(1, 77))
    manifest = Manifest("t", 5).with_files(LANE, [known, file(2, 4)])
    store_manifest(disk, ARCHIVE, manifest)
    loaded = Archive(ARCHIVE, disk).manifest("t")
    assert loaded == manifest
    assert loaded is not None
    assert loaded.lane(LANE).last == LastMessage(1, 77)


def test_a_gap_ends_what_can_be_read_in_one_go() -> None:
    lane = Manifest("t", 5).with_files(LANE, [file(3, 5), file(5, 7), file(9, 12)]).lane(LANE)
    assert [lane.whole_end(offset) for offset in (2, 3, 6, 7, 8, 9, 11, 12)] == [2, 7, 7, 7, 8, 12, 12, 12]
    assert [lane.next_start(offset) for offset in (0, 3, 7, 8, 10, 12)] == [3, 3, 9, 9, 10, None]
    assert (ArchivedLane().whole_end(0), ArchivedLane().next_start(0)) == (0, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "has version 2, this release knows 1"),
        ({"topic": "u"}, "about the topic 'u'"),
        ({"created_us": -1}, "not a number"),
        ({"dropped": ["../x"]}, "no name of a file"),
        ({"dropped": ["/etc/passwd"]}, "no name of a file"),
        ({"lanes": [{"partition": 0}]}, "KeyError"),
    ],
)
def test_a_mangled_manifest_is_refused(disk: FaultyDisk, change: dict[str, Any], reason: str) -> None:
    store_manifest(disk, ARCHIVE, Manifest("t", 5))
    path = manifest_path(ARCHIVE, "t")
    document = json.loads(disk.files()[path]) | change
    del document["checksum"]
    replace_file(disk, path, json.dumps(document).encode())
    with pytest.raises(StorageFailed, match=reason):
        Archive(ARCHIVE, disk).manifest("t")


@pytest.mark.parametrize(("start", "end", "fault"), [(0, 1, "whole range"), (2, 4, "follow on")])
def test_a_lane_with_a_hole_is_refused(disk: FaultyDisk, start: int, end: int, fault: str) -> None:
    store_manifest(disk, ARCHIVE, Manifest("t", 5).with_files(LANE, [file(0, 2), file(2, 4)]))
    path = manifest_path(ARCHIVE, "t")
    document = json.loads(disk.files()[path])
    del document["checksum"]
    document["lanes"][0]["files"] = [
        told for told in document["lanes"][0]["files"] if (told["start"], told["end"]) != (start, end)
    ]
    if (start, end) == (2, 4):
        document["lanes"][0]["files"] *= 2
    else:
        document["lanes"][0]["files"].pop()
    replace_file(disk, path, json.dumps(document).encode())
    with pytest.raises(StorageFailed, match=fault):
        Archive(ARCHIVE, disk).manifest("t")


def test_no_json_is_refused(disk: FaultyDisk) -> None:
    replace_file(disk, manifest_path(ARCHIVE, "t"), b"{")
    with pytest.raises(StorageFailed, match="cannot be understood"):
        Archive(ARCHIVE, disk).manifest("t")


def test_the_pointer_is_relative_where_it_can_be(disk: FaultyDisk) -> None:
    assert load_pointer(disk, DATA) is None
    store_pointer(disk, DATA, DATA / "archive")
    stored = json.loads(disk.files()[DATA / "archive.json"])
    assert stored.pop("checksum").startswith("crc32c:")
    assert stored == {"version": 1, "directory": "archive"}
    assert load_pointer(disk, DATA) == DATA / "archive"
    store_pointer(disk, DATA, ARCHIVE)
    assert load_pointer(disk, DATA) == ARCHIVE
    store_pointer(disk, DATA, None)
    assert load_pointer(disk, DATA) is None


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"version": 1, "directory": 7}', b'{"version": 9}'])
def test_a_mangled_pointer_is_refused(disk: FaultyDisk, text: bytes) -> None:
    replace_file(disk, DATA / "archive.json", text)
    with pytest.raises(StorageFailed, match=r"archive\.json"):
        load_pointer(disk, DATA)
