"""Directories that LedgerQ itself wrote, beside what their manifest says of them."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.sources import DISK, damage

from quivermq.importers.files import SourceFiles
from quivermq.importers.ledgerq import looks_like, open_source
from quivermq.importers.ledgerq_segments import entries
from quivermq.importers.model import Findings, Item

SAMPLES = Path(__file__).parents[1] / "fixtures" / "ledgerq"
DATASETS: dict[str, dict[str, Any]] = {
    dataset["name"]: dataset for dataset in json.loads((SAMPLES / "manifest.json").read_text())["datasets"]
}
QUEUES = [(name, queue) for name, dataset in DATASETS.items() for queue in dataset["queues"]]
LEVELS = {0: "low", 1: "normal", 2: "high"}
OWN_TO_DEAD_LETTERS = "dlq."


def items_of(name: str) -> list[Item]:
    return list(open_source(SAMPLES / name / "queue", DISK).topics[0].items())


@pytest.mark.parametrize(("name", "told"), QUEUES, ids=[queue["dir"] for _, queue in QUEUES])
def test_every_entry_is_as_the_manifest_says(name: str, told: dict[str, Any]) -> None:
    findings = Findings()
    found = [
        (segment["file"], entry)
        for segment in told["segments"]
        for entry in entries(SourceFiles(DISK, findings), SAMPLES / told["dir"] / segment["file"])
    ]
    whole = [message for message in told["messages"] if message["state"] not in ("corrupt", "torn")]
    assert len(found) == len(whole)
    for (file, entry), message in zip(found, whole, strict=True):
        assert (file, entry.position) == (message["segment"], message["file_offset"])
        assert (entry.length, entry.type, entry.flags) == (
            message["length"],
            message["type"],
            message["flags"],
        )
        assert (entry.id, entry.timestamp_ns) == (message["id"], message["timestamp_ns"])
        assert (entry.priority, entry.expires_at_ns or 0) == (message["priority"], message["expires_at_ns"])
        assert len(entry.payload) == message["stored_payload_len"]
    broken = [message for message in told["messages"] if message["state"] in ("corrupt", "torn")]
    assert [(f, p) for f, p, _ in damage(findings)] == [(m["segment"], m["file_offset"]) for m in broken]


@pytest.mark.parametrize("name", DATASETS)
def test_every_message_is_as_the_manifest_says(name: str) -> None:
    told = DATASETS[name]["queues"][0]["messages"]
    whole = [message for message in told if message["state"] not in ("corrupt", "torn")]
    uses_levels = any(message["priority"] for message in whole)
    found = items_of(name)
    assert len(found) == len(whole)
    for item, message in zip(found, whole, strict=True):
        assert (item.identity, item.id) == (message["id"], str(message["id"]))
        assert item.timestamp_us == message["timestamp_ns"] // 1000
        assert item.level == (LEVELS[message["priority"]] if uses_levels else "normal")
        assert item.expires_at_us == (message["expires_at_ns"] // 1000 or None)
        assert item.headers == ({n: v.encode() for n, v in message["headers"].items()} or None)
        assert sha256(item.value).hexdigest() == message["payload_sha256"]
        assert item.is_consumed == (message["state"] == "consumed")
        assert (item.key, item.partition, item.deliver_at_us, item.dead) == (None, 0, None, None)


def test_what_failed_before_goes_on_counting() -> None:
    failed = {item.id: (item.attempts, item.reason) for item in items_of("dlq") if item.attempts}
    assert failed == {"3": (1, "timeout")}


def test_dead_letters_lie_beside_their_queue() -> None:
    [letter] = open_source(SAMPLES / "dlq" / "queue", DISK).topics[0].dead_letters()
    [told] = DATASETS["dlq"]["queues"][1]["messages"]
    [original] = [m for m in DATASETS["dlq"]["queues"][0]["messages"] if m["id"] == 2]
    assert sha256(letter.value).hexdigest() == told["payload_sha256"]
    assert letter.headers == {"trace": b"t-2"}
    assert letter.timestamp_us == original["timestamp_ns"] // 1000
    assert letter.dead is not None
    assert (letter.dead.original_id, letter.dead.offset, letter.dead.attempts) == ("2", 2, 3)
    assert (letter.dead.reason, letter.dead.time_us) == ("boom 3", 1794772108544000)


@pytest.mark.parametrize("path", ["dlq", "dlq/queue", "dlq/deadletter"])
def test_a_queue_is_found_by_its_own_directory_the_one_above_and_that_of_its_dead_letters(
    path: str,
) -> None:
    assert looks_like(SAMPLES / path, DISK)
    [topic] = open_source(SAMPLES / path, DISK).topics
    assert [letter.value for letter in topic.dead_letters()] == [b"poison-2"]
    assert len(list(topic.items())) == (0 if path == "dlq/deadletter" else 5)


def test_ids_that_were_given_out_and_are_gone_are_told() -> None:
    source = open_source(SAMPLES / "crash_torn_tail" / "queue", DISK)
    items = list(source.topics[0].items())
    missing = DATASETS["crash_torn_tail"]["queues"][0]["missing_ids_on_disk"]
    assert items[-1].identity + 1 == missing[0]
    [told] = [finding.problem for finding in source.findings.kept if not finding.is_damage]
    assert f"{missing[0]} to {missing[-1]}" in told


def test_an_index_or_a_queue_of_another_kind_is_not_taken_for_a_queue(tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "00000000000000000001.log").write_bytes(b"GQ\x01" + bytes(100))
    (other / "notes.txt").write_text("hello")
    assert not looks_like(other, DISK)
