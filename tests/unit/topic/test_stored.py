import json
from pathlib import Path
from typing import Any, Literal

import pytest
from support.faulty_disk import FaultyDisk, every_crash

from quivermq.disk import Disk, SystemDisk, replace_file
from quivermq.errors import DiskFull, FsyncFailed, InvalidSettings, StorageFailed
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic.stored import FILE_NAME, StoredTopic, load_topic, store_topic

PATH = Path("/topics/orders")
OLD = StoredTopic(settings=TopicSettings(), created_us=1_700_000_000_000_000)
NEW = StoredTopic(
    settings=TopicSettings(partitions=3, attempts_max=None, priority_weights=(3, 2, 1)),
    created_us=1_700_000_000_000_000,
    deleted=True,
    dead_letters_of="tea",
)
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "created_us": 1,
    "deleted": False,
    "dead_letters_of": None,
    "settings": {},
}


def write(disk: Disk, data: bytes) -> None:
    disk.make_directory(PATH)
    replace_file(disk, PATH / FILE_NAME, data)


@pytest.mark.parametrize("stored", [OLD, NEW])
def test_a_topic_is_read_as_it_was_stored(stored: StoredTopic, tmp_path: Path) -> None:
    for disk, path in ((FaultyDisk(), PATH), (SystemDisk(), tmp_path / "topics" / "orders")):
        store_topic(disk, path, stored)
        assert load_topic(disk, path) == stored
        assert disk.names(path) == ["topic.json"]


def test_only_what_is_not_a_default_is_written() -> None:
    disk = FaultyDisk()
    store_topic(disk, PATH, NEW)
    text = disk.files()[PATH / "topic.json"].decode()
    assert json.loads(text) == {
        "version": 1,
        "created_us": 1_700_000_000_000_000,
        "deleted": True,
        "dead_letters_of": "tea",
        "settings": {"partitions": 3, "attempts_max": None, "priority_weights": [3, 2, 1]},
        "checksum": "crc32c:006b6053",
    }
    assert text.endswith("}\n")
    store_topic(disk, PATH, OLD)
    assert json.loads(disk.files()[PATH / "topic.json"])["settings"] == {}


def test_without_a_file_there_is_no_topic(tmp_path: Path) -> None:
    for disk, path in ((FaultyDisk(), PATH), (SystemDisk(), tmp_path / "orders")):
        assert load_topic(disk, path) is None
        disk.make_directory(path)
        assert load_topic(disk, path) is None


@pytest.mark.parametrize("model", ["power", "kill"])
def test_after_a_crash_it_is_the_old_one_or_the_new_one(model: Literal["power", "kill"]) -> None:
    def run(disk: FaultyDisk, acknowledged: list[StoredTopic]) -> None:
        for stored in (OLD, NEW, OLD):
            store_topic(disk, PATH, stored)
            acknowledged.append(stored)

    seen = set()
    for disk, acknowledged in every_crash(run, model=model, seeds=range(9)):
        found = load_topic(disk, PATH)
        states = [None, OLD, NEW, OLD]
        count = len(acknowledged)
        assert found in states[count : count + 2], disk.description
        seen.add((count, states[count : count + 2].index(found)))
        # Whatever the crash left behind is not in the way of the next one.
        store_topic(disk, PATH, NEW)
        assert load_topic(disk, PATH) == NEW, disk.description
    assert seen == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)}


def test_a_full_disk_leaves_the_old_one() -> None:
    disk = FaultyDisk()
    store_topic(disk, PATH, OLD)
    disk.fill_after(3)
    with pytest.raises(DiskFull):
        store_topic(disk, PATH, NEW)
    assert load_topic(disk, PATH) == OLD


def test_a_failed_sync_is_told_and_leaves_the_old_one() -> None:
    disk = FaultyDisk()
    store_topic(disk, PATH, OLD)
    disk.fail_sync()
    with pytest.raises(FsyncFailed):
        store_topic(disk, PATH, NEW)
    assert load_topic(disk, PATH) == OLD


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (b"\x00" * 100, "it is not JSON"),
        (b"[" * 60_000, "it is not JSON"),
        (b'{"version": ' + b"1" * 5000 + b"}", "it is not JSON"),
        (b'{"version": 1, "version": 1}', "it is not JSON: a name is there twice"),
        (b'{"settings": {"partitions": 1, "partitions": 2}}', "a name is there twice"),
        (b"[]", "it is not an object"),
        (b"null", "it is not an object"),
        (b"{}", "must have exactly version, created_us, deleted, dead_letters_of, settings"),
        (b" " * 65_537, "65537 bytes, at most 65536 belong there"),
    ],
)
def test_a_file_that_is_no_topic_is_named(data: bytes, reason: str) -> None:
    disk = FaultyDisk()
    write(disk, data)
    with pytest.raises(StorageFailed, match=reason) as caught:
        load_topic(disk, PATH)
    assert caught.value.path == PATH / FILE_NAME
    assert str(PATH / FILE_NAME) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "this release knows version 1, not 2"),
        ({"version": 2, "tier": "cold"}, "this release knows version 1, not 2"),
        ({"version": 0}, "this release knows version 1, not 0"),
        ({"version": "1"}, "must have exactly"),
        ({"version": True}, "must have exactly"),
        ({"version": 1.0}, "must have exactly"),
        ({"version": None}, "must have exactly"),
        ({"more": 1}, "must have exactly"),
        ({"created_us": None}, "created_us is not a time"),
        ({"created_us": True}, "created_us is not a time"),
        ({"created_us": 1.5}, "created_us is not a time"),
        ({"created_us": float("nan")}, "created_us is not a time"),
        ({"created_us": -1}, "created_us is not a time"),
        ({"created_us": 2**63}, "created_us is not a time"),
        ({"dead_letters_of": 5}, "dead_letters_of: the name of a topic is a str"),
        ({"dead_letters_of": "../x"}, "dead_letters_of: '../x' cannot be the name of a topic"),
        ({"deleted": 0}, "deleted is neither true nor false"),
        ({"deleted": "false"}, "deleted is neither true nor false"),
    ],
)
def test_a_document_that_is_no_topic_is_refused_with_a_reason(change: dict[str, Any], reason: str) -> None:
    disk = FaultyDisk()
    write(disk, json.dumps(DOCUMENT).encode())
    assert load_topic(disk, PATH) == StoredTopic(settings=TopicSettings(), created_us=1)
    write(disk, json.dumps({**DOCUMENT, **change}).encode())
    with pytest.raises(StorageFailed, match=reason) as caught:
        load_topic(disk, PATH)
    assert caught.value.path == PATH / FILE_NAME


@pytest.mark.parametrize("missing", DOCUMENT)
def test_a_document_is_whole(missing: str) -> None:
    disk = FaultyDisk()
    write(disk, json.dumps({key: value for key, value in DOCUMENT.items() if key != missing}).encode())
    with pytest.raises(StorageFailed, match="must have exactly"):
        load_topic(disk, PATH)


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({"tier": "cold"}, "tier", "topics have no such setting"),
        ({"partitions": 0}, "partitions", "0 is not between 1 and 1024"),
        ({"partitions": None}, "partitions", "None is not a whole number"),
        ({"ttl_ms": float("inf")}, "ttl_ms", "inf is not a whole number"),
        ({"segments_min": 3, "segments_max": 2}, "segments_max", "must be at least 3"),
        ([], "settings", "is a list and not a mapping"),
        (None, "settings", "is a NoneType and not a mapping"),
    ],
)
def test_wrong_settings_name_the_key_and_the_file(settings: Any, key: str, reason: str) -> None:
    disk = FaultyDisk()
    write(disk, json.dumps({**DOCUMENT, "settings": settings}).encode())
    with pytest.raises(InvalidSettings, match=reason) as caught:
        load_topic(disk, PATH)
    assert (caught.value.key, caught.value.origin) == (key, str(PATH / FILE_NAME))


def test_a_file_that_cannot_be_read_is_named() -> None:
    disk = FaultyDisk()
    store_topic(disk, PATH, NEW)
    disk.fail_read(PATH / FILE_NAME, 10)
    with pytest.raises(StorageFailed, match=r"topic\.json"):
        load_topic(disk, PATH)


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    disk = FaultyDisk()
    store_topic(disk, PATH, NEW)
    told = set()
    for position in range(len(disk.files()[PATH / FILE_NAME])):
        for mask in (0x01, 0x20, 0x80):
            disk.flip(PATH / FILE_NAME, position, mask)
            try:
                load_topic(disk, PATH)
            except (StorageFailed, InvalidSettings) as error:
                told.add(str(error))
            disk.flip(PATH / FILE_NAME, position, mask)
    assert load_topic(disk, PATH) == NEW
    assert told
    assert all(str(PATH / FILE_NAME) in text for text in told)
