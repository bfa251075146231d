from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from reference import ROOT, settings_page

from quivermq.errors import InvalidSettings
from quivermq.settings import Settings, StorageSettings
from quivermq.settings.setting import GIB, KIB, MIB, settings_of


def test_the_defaults_are_those_of_the_design() -> None:
    storage = Settings().storage
    assert storage.durability == "fsync"
    assert storage.codec == "none"
    assert storage.fsync_interval_ms == 1000
    assert storage.linger_ms == 5
    assert storage.segment_bytes == 64 * MIB
    assert storage.index_interval_bytes == 4 * KIB
    assert storage.message_bytes_max == 2 * MIB
    assert storage.retention_ms is storage.retention_bytes is storage.retention_messages is None
    assert (storage.segments_min, storage.segments_max) == (1, None)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().storage.linger_ms = 0  # type: ignore[misc]


@pytest.mark.parametrize("name", [each.name for each in fields(StorageSettings)])
def test_every_setting_has_one_line_of_doc(name: str) -> None:
    doc = settings_of(StorageSettings)[name].doc
    assert doc.endswith(".")
    assert "\n" not in doc
    assert "|" not in doc, "the page is a Markdown table"


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        ({"segment_bytes": 0}, "segment_bytes", "0 is not between 1 and"),
        ({"segment_bytes": True}, "segment_bytes", "True is not a size"),
        ({"segment_bytes": "64MiB"}, "segment_bytes", "'64MiB' is not a size"),
        ({"linger_ms": -1}, "linger_ms", "-1 is not between 0 and"),
        ({"fsync_interval_ms": 0}, "fsync_interval_ms", "0 is not between 1 and"),
        ({"durability": "sync"}, "durability", "'sync' is not one of fsync, os, buffered"),
        ({"codec": None}, "codec", "None is not one of none, zstd, lz4, gzip"),
        ({"retention_ms": 2**63 // 1000 + 1}, "retention_ms", "is not between"),
        ({"frame_raw_bytes_max": 2 * GIB}, "frame_raw_bytes_max", "is not between"),
    ],
)
def test_a_wrong_value_is_refused(given: dict[str, Any], key: str, reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason) as caught:
        StorageSettings(**given)
    assert caught.value.key == f"storage.{key}"
    assert caught.value.origin == "arguments"


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        ({"segments_min": 3, "segments_max": 2}, "segments_max", "is 2 and must be at least 3"),
        ({"frame_bytes_max": 2 * MIB}, "frame_bytes_max", r"message_bytes_max \+ 4096"),
        ({"message_bytes_max": 16 * MIB}, "message_bytes_max", r"message_bytes_max \+ 4096"),
        ({"batch_bytes": 16 * MIB}, "batch_bytes", r"batch_bytes \+ 4096"),
        ({"frame_messages_max": 1}, "frame_messages_max", "that is batch_messages"),
        ({"frame_bytes_max": 65 * MIB}, "frame_bytes_max", "frame_raw_bytes_max is 67108864"),
        ({"frame_raw_bytes_max": 1 * MIB}, "frame_raw_bytes_max", "at least 16777216"),
    ],
)
def test_values_that_do_not_go_together_are_refused(given: dict[str, Any], key: str, reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason) as caught:
        StorageSettings(**given)
    assert caught.value.key == f"storage.{key}", "the one that was changed is the one to name"


@pytest.mark.parametrize(
    "given",
    [
        {"segments_min": 3, "segments_max": 3},
        {"message_bytes_max": 16 * MIB - 4 * KIB},
        {"frame_bytes_max": 64 * MIB},
        {"frame_raw_bytes_max": 2 * GIB - 1},
        {"segment_bytes": 1, "segment_messages": 1, "linger_ms": 0},
    ],
)
def test_values_at_the_edge_are_allowed(given: dict[str, Any]) -> None:
    storage = StorageSettings(**given)
    assert {name: getattr(storage, name) for name in given} == given


def test_the_page_is_what_make_reference_writes() -> None:
    assert (ROOT / "docs/reference/settings.md").read_text() == settings_page()
