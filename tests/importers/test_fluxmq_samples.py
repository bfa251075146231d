"""Directories that FluxMQ itself wrote, beside what it says of them."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from support.flux_files import write_json
from support.sources import DISK, damage, problems, topic_named

from quivermq.importers.files import SourceFiles
from quivermq.importers.fluxmq import looks_like, open_source
from quivermq.importers.fluxmq_batches import LAYOUT, batch_of
from quivermq.importers.model import Findings, Position
from quivermq.importers.segments import whole_records

SAMPLES = Path(__file__).parents[1] / "fixtures" / "fluxmq"
MANIFEST = json.loads((SAMPLES / "manifest.json").read_text())["stores"]
# What the broker writes among the headers, and what is not a header here any more.
UNDERSTOOD = ("_id", "_state", "_expires_at")


def raw(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def told_messages(store: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        MANIFEST["adapter"]["messages_orders"]
        if store == "adapter"
        else MANIFEST[store]["data"]["messages"]
    )
    return found


def told_segments(store: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        MANIFEST["adapter"]["segments_orders"]
        if store == "adapter"
        else MANIFEST[store]["data"]["segments"]
    )
    return found


@pytest.mark.parametrize("store", ["adapter", "none", "zstd"])
def test_every_message_is_there_with_all_that_is_told_of_it(store: str) -> None:
    source = open_source(SAMPLES / store, DISK)
    topic = topic_named(source.topics, "orders")
    items = list(topic.items())
    told = told_messages(store)
    assert [item.identity for item in items] == [message["offset"] for message in told]
    for item, message in zip(items, told, strict=True):
        headers = {name: b64decode(content) for name, content in message["headers_b64"].items()}
        assert item.value == (raw(message["value_b64"]) or b"")
        assert item.key == raw(message["key_b64"])
        assert item.timestamp_us == message["ts_ms"] * 1000
        assert item.headers == {name: each for name, each in headers.items() if name not in UNDERSTOOD}
        assert item.id == headers.get("_id", b"%d" % message["offset"]).decode()
        expires_at = headers.get("_expires_at")
        assert item.expires_at_us == (None if expires_at is None else int(expires_at) * 1000)
        assert not item.is_consumed
    assert source.findings.damages == 0


@pytest.mark.parametrize("store", ["adapter", "none", "zstd"])
def test_every_batch_is_where_the_manifest_says(store: str) -> None:
    segments = SAMPLES / store / "queues" / "orders" / "segments"
    findings = Findings()
    files = SourceFiles(DISK, findings)
    found: dict[str, list[dict[str, Any]]] = {}
    for stored, _ in whole_records(files, segments, LAYOUT):
        batch = batch_of(stored)
        found.setdefault(stored.path.name, []).append(
            {
                "base_offset": batch.base_offset,
                "compression": batch.codec,
                "count": batch.record_count,
                "crc": f"{int.from_bytes(stored.data[4:8], 'little'):08x}",
                "flags": batch.flags,
                "pos": stored.position,
                "size": len(stored.data),
            }
        )
    assert found == {each["file"]: each["batches"] for each in told_segments(store)}
    assert [file.path.stat().st_size for file in files.segments(segments, ".seg")] == [
        each["bytes"] for each in told_segments(store)
    ]
    assert findings.count == 0


def test_the_codec_is_named_also_where_a_batch_is_stored_raw() -> None:
    flags = {
        (each["compression"], each["flags"] & 1) for seg in told_segments("zstd") for each in seg["batches"]
    }
    assert flags == {(2, 0), (2, 1)}


def test_groups_are_where_the_manifest_says() -> None:
    topic = topic_named(open_source(SAMPLES / "none", DISK).topics, "orders")
    told = MANIFEST["none"]["data"]["groups"]
    assert [group.name for group in topic.groups] == sorted(told)
    for group in topic.groups:
        pending = told[group.name].get("pending", {})
        unfinished = {int(offset): entry["delivery_count"] for offset, entry in pending.items()}
        assert group.positions == {0: Position(told[group.name]["cursor"], unfinished)}


def test_a_broker_s_directory_has_its_queues_and_their_groups() -> None:
    source = open_source(SAMPLES / "adapter", DISK)
    assert [topic.name for topic in source.topics] == sorted(MANIFEST["adapter"]["queues"])
    assert source.has_names
    [group] = topic_named(source.topics, "orders").groups
    assert (group.name, group.positions) == ("workers", {0: Position(5, {2: 1, 3: 1, 4: 1})})
    events = topic_named(source.topics, "events")
    assert (list(events.items()), list(events.groups), events.size_bytes) == ([], [], 0)
    left = (
        "has no counterpart and is not imported: BatchSize 100, HeartbeatTimeout 120000000000,"
        " MaxDepth 100000, RetryPolicy.TotalTimeout 86400000000000, Topics"
    )
    assert problems(source.findings, is_damage=False) == [
        f"of the queue 'orders' {left} ['$queue/orders/#']",
        f"of the queue 'events' {left} ['events/#']",
        "the group reads only 'eu/#' of its queue; here it will get everything",
    ]


def test_the_settings_of_a_queue_become_those_of_a_topic() -> None:
    source = open_source(SAMPLES / "adapter", DISK)
    orders = dict(topic_named(source.topics, "orders").settings)
    # Only where topics have such a setting.
    orders.pop("backoff_multiplier", None)
    expected = {
        "attempts_max": 11,
        "backoff_ms": 5_000,
        "backoff_ms_max": 300_000,
        "lease_ms": 30_000,
        "ttl_ms": 604_800_000,
        "message_bytes_max": 10_485_760,
    }
    assert orders == expected
    assert topic_named(source.topics, "events").settings["retention_ms"] == 86_400_000


def test_settings_that_make_no_sense_are_left_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("source")
    retry = {"MaxRetries": -1, "InitialBackoff": 9_000_000_000, "MaxBackoff": 1, "BackoffMultiplier": "x"}
    retention = {"RetentionBytes": 2**80, "CompactionEnabled": True}
    configs = [
        {
            "Name": "a",
            "RetryPolicy": retry,
            "Retention": retention,
            "MessageTTL": "1h",
            "AckDurability": "fsync",
        },
        {"Name": "b", "RetryPolicy": 7, "DeliveryTimeout": 1},
        {"Name": 7},
        "c",
    ]
    write_json(path / "config" / "queues.json", {"configs": configs})
    for name in ("a", "b"):
        (path / "queues" / name / "segments").mkdir(parents=True)
    source = open_source(path, DISK)
    assert topic_named(source.topics, "a").settings == {"durability": "fsync", "cleanup": "compact"}
    assert topic_named(source.topics, "b").settings == {"lease_ms": 1}
    told = problems(source.findings, is_damage=False)
    assert "Retention.RetentionBytes" in told[0]
    assert "MessageTTL '1h'" in told[0]


@pytest.mark.parametrize("kind", ["crc_flip", "torn_body"])
def test_a_damaged_directory_gives_all_that_is_whole_and_tells_the_rest(kind: str) -> None:
    told = MANIFEST["corrupt"][kind]
    source = open_source(SAMPLES / "corrupt" / kind, DISK)
    items = list(topic_named(source.topics, "orders").items())
    head, tail = told["after_recover"]["head"], told["after_recover"]["tail"]
    assert [item.identity for item in items] == list(range(head, tail))
    assert len(items) == told["recover"]["messages_recovered"]
    assert damage(source.findings) == [(told["damaged_file"], 7320, told["recover"]["bytes_truncated"])]


@pytest.mark.parametrize("part", ["", "queues/orders", "queues/orders/segments"])
def test_a_queue_can_be_given_by_itself(part: str) -> None:
    path = SAMPLES / "none" / part
    source = open_source(path, DISK)
    [topic] = source.topics
    assert len(list(topic.items())) == 180
    assert topic.name == ("orders" if part != "queues/orders/segments" else "segments")
    assert source.has_names == (part == "")
    assert looks_like(path, DISK)


def test_the_same_segments_have_the_same_witnesses_wherever_they_are() -> None:
    whole = topic_named(open_source(SAMPLES / "none", DISK).topics, "orders")
    [alone] = open_source(SAMPLES / "none" / "queues" / "orders" / "segments", DISK).topics
    [part] = open_source(SAMPLES / "corrupt" / "crc_flip", DISK).topics
    [other] = open_source(SAMPLES / "zstd", DISK).topics
    assert len(whole.witnesses) == 3
    assert list(alone.witnesses) == list(whole.witnesses)
    assert set(part.witnesses) < set(whole.witnesses)
    assert not set(other.witnesses) & set(whole.witnesses)


@pytest.mark.parametrize("other", ["goqueue/broker_data_dir", "goqueue/partition_multi", "format"])
def test_directories_of_others_are_not_taken_for_its_own(other: str) -> None:
    assert not looks_like(SAMPLES.parent / other, DISK)
