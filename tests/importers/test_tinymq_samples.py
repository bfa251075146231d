"""Directories that TinyMQ itself wrote, beside what their manifest says of them."""

import json
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.sources import DISK, damage

from quivermq.importers.files import SourceFiles
from quivermq.importers.model import Item, text_identity
from quivermq.importers.tinymq import looks_like, open_source, topic_name

SAMPLES = Path(__file__).parents[1] / "fixtures" / "tinymq"
DATASETS: dict[str, dict[str, Any]] = {
    dataset["name"]: dataset for dataset in json.loads((SAMPLES / "manifest.json").read_text())["datasets"]
}
FILES = [(name, file) for name, dataset in DATASETS.items() for file in dataset["files"]]
IDS = [f"{name}/{file['file']}" for name, file in FILES]


def moment_us(text: str | None) -> int | None:
    if text is None:
        return None
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 1_000_000 + int(fraction.ljust(6, "0")[:6])


def items_of(name: str, file: str) -> list[Item]:
    """What is in one file: a topic's own messages, or its dead letters."""
    topic = topic_name(SourceFiles(DISK), SAMPLES / name / file)
    [found] = [t for t in open_source(SAMPLES / name, DISK).topics if t.name == topic.removesuffix(".dlq")]
    return list(found.dead_letters() if topic.endswith(".dlq") else found.items())


@pytest.mark.parametrize(("name", "told"), FILES, ids=IDS)
def test_every_message_is_as_the_manifest_says(name: str, told: dict[str, Any]) -> None:
    records = [r for r in told["records"] if r.get("type") == "PUT" and r["checksum_ok"] is not False]
    # Of several PUTs of an id, the first tells the place and the last the rest.
    last = {record["id"]: record for record in records}
    items = items_of(name, told["file"])
    assert [item.id for item in items] == list(last)
    for item in items:
        record = last[item.id]
        assert item.identity == text_identity(item.id)
        assert len(item.value) == record["payload_len"]
        assert sha256(item.value).hexdigest() == record["payload_sha256"]
        assert item.timestamp_us == moment_us(record["ts"])
        assert item.expires_at_us == moment_us(record["expires_at"])
        assert item.headers == ({n: v.encode() for n, v in record["headers"].items()} or None)
        if item.dead is None:
            assert item.attempts == record["retry_count"]
            assert item.deliver_at_us == moment_us(record["deliver_at"])
        else:
            assert (item.dead.attempts, item.dead.original_id) == (record["retry_count"], item.id)
            assert (item.dead.reason, item.dead.time_us) == ("attempts", moment_us(record["record_ts"]))
        assert (item.key, item.level, item.partition) == (None, "normal", 0)


@pytest.mark.parametrize(("name", "told"), FILES, ids=IDS)
def test_what_lives_is_as_the_manifest_says(name: str, told: dict[str, Any]) -> None:
    live = [item.id for item in items_of(name, told["file"]) if not item.is_consumed]
    assert live == DATASETS[name]["live_ids_by_file_deduplicated"][told["file"]]


@pytest.mark.parametrize("name", DATASETS)
def test_what_is_damaged_is_told_by_its_place(name: str) -> None:
    source = open_source(SAMPLES / name, DISK)
    for topic in source.topics:
        assert len(list(topic.items())) + len(list(topic.dead_letters())) > 0
    broken = [
        (file["file"], record["byte_offset"], record["len"])
        for file in DATASETS[name]["files"]
        for record in file["records"]
        if "error" in record or record["checksum_ok"] is False
    ]
    assert damage(source.findings) == broken


@pytest.mark.parametrize("name", DATASETS)
def test_a_directory_is_known_for_what_it_is(name: str) -> None:
    assert looks_like(SAMPLES / name, DISK)
    assert open_source(SAMPLES / name, DISK).has_names


def test_topics_have_the_names_that_their_messages_say() -> None:
    names = [topic.name for topic in open_source(SAMPLES / "slash_topic", DISK).topics]
    assert names == ["a/b", "n.o-r_m:al", "x_b_y"]
    assert [t.name for t in open_source(SAMPLES / "legacy_no_checksum", DISK).topics] == [
        "iot/temp",
        "orders",
    ]
