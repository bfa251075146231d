"""Directories that GoQueue itself wrote, beside what it says of them."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from support.sources import DISK, damage, problems, topic_named

from quivermq.importers.files import SourceFiles
from quivermq.importers.goqueue import looks_like, open_source
from quivermq.importers.goqueue_records import LAYOUT, record_of
from quivermq.importers.model import Death, Findings, Item, Position
from quivermq.importers.segments import whole_records

SAMPLES = Path(__file__).parents[1] / "fixtures" / "goqueue"
MANIFEST = json.loads((SAMPLES / "manifest.json").read_text())["dirs"]
MESSAGES: list[dict[str, Any]] = MANIFEST["partition_multi"]["messages"]
BROKER = SAMPLES / "broker_data_dir"
STAMP = "1794773335"

PRIORITIES = {
    0: ("high", "critical"),
    1: ("high", None),
    2: ("normal", None),
    3: ("low", None),
    4: ("low", "background"),
}


def check(item: Item, told: dict[str, Any]) -> None:
    """All that the manifest says of a message."""
    assert item.identity == told["offset"]
    assert item.id == str(told["offset"])
    assert item.value == b64decode(told["value_b64"])
    assert item.key == (None if told["key_b64"] is None else b64decode(told["key_b64"]))
    assert item.headers == {name: text.encode() for name, text in (told["headers"] or {}).items()}
    assert item.timestamp_us == told["ts_ns"] // 1000
    assert (item.level, item.priority) == PRIORITIES[told["priority"]]
    assert not item.is_consumed
    assert item.deliver_at_us is None


def test_every_message_is_there_with_all_that_is_told_of_it() -> None:
    source = open_source(SAMPLES / "partition_multi", DISK)
    [topic] = source.topics
    told = [message for message in MESSAGES if not message.get("control")]
    for item, message in zip(topic.items(), told, strict=True):
        check(item, message)
    assert not source.has_names
    assert source.findings.damages == 0
    assert topic.size_bytes == sum(each["bytes"] for each in MANIFEST["partition_multi"]["files"])


def test_every_record_is_where_the_indexes_say_and_has_the_flags_of_the_manifest() -> None:
    findings = Findings()
    files = SourceFiles(DISK, findings)
    records = whole_records(files, SAMPLES / "partition_multi", LAYOUT)
    found = [(stored, record_of(stored)) for stored, _ in records]
    assert [(record.offset, record.flags, record.priority) for _, record in found] == [
        (message["offset"], message["flags"], message["priority"]) for message in MESSAGES
    ]
    assert [record.offset for _, record in found if record.is_control] == [
        message["offset"] for message in MESSAGES if message.get("control")
    ]
    places = {(stored.path.name, record.offset): stored.position for stored, record in found}
    for file in MANIFEST["partition_multi"]["files"]:
        for offset, position in file["index_offset_position"]:
            assert places[file["file"], offset] == position


def test_a_tombstone_is_a_key_without_a_value() -> None:
    [topic] = open_source(SAMPLES / "partition_multi", DISK).topics
    [tombstone] = [message for message in MESSAGES if message["flags"] == 4]
    [item] = [item for item in topic.items() if item.identity == tombstone["offset"]]
    assert (item.key, item.value) == (b"user-013", b"")


def test_an_abort_without_a_list_of_what_was_aborted_is_told() -> None:
    source = open_source(SAMPLES / "partition_multi", DISK)
    list(source.topics[0].items())
    [problem] = problems(source.findings, is_damage=False)
    assert problem.startswith(
        "the transaction 'txn-b' was aborted; which messages are its own is not known here"
    )


def test_a_flipped_bit_in_the_middle_costs_one_message() -> None:
    told = MANIFEST["corrupt"]["crc_flip_mid"]
    source = open_source(SAMPLES / "corrupt" / "crc_flip_mid", DISK)
    items = {item.identity: item for item in source.topics[0].items()}
    # GoQueue reads none of the records up to the next entry of its index.
    assert set(told["Read_each"]["unreadable"]) - items.keys() == {212}
    for message in MESSAGES:
        if message["offset"] >= 180 and message["offset"] != 212 and not message.get("control"):
            check(items.pop(message["offset"]), message)
    assert items == {}
    assert damage(source.findings) == [("00000000000000000180.log", 3774, 166)]


def test_a_torn_end_costs_the_last_record() -> None:
    told = MANIFEST["corrupt"]["torn_body"]
    assert told["Read_each"] == {"ok": 61, "unreadable": []}
    source = open_source(SAMPLES / "corrupt" / "torn_body", DISK)
    # One of the 61 is the end of a transaction.
    assert [item.identity for item in source.topics[0].items()] == list(range(180, 240))
    assert damage(source.findings) == [("00000000000000000180.log", 7601, 51)]


def test_a_broker_s_directory_has_its_topics() -> None:
    source = open_source(BROKER, DISK)
    found = {topic.name: topic for topic in source.topics}
    assert {name.removesuffix(STAMP): each.partitions for name, each in found.items()} == {
        "ack": 1,
        "cp": 1,
        "demo-orders": 3,
        "dly": 2,
        "prio": 1,
        "rst": 1,
        "sch": 1,
        "tx": 1,
    }
    counts = {name.removesuffix(STAMP): len(list(each.items())) for name, each in found.items()}
    assert counts == {
        "ack": 5,
        "cp": 2,
        "demo-orders": 12,
        "dly": 3,
        "prio": 3,
        "rst": 1,
        "sch": 1,
        "tx": 2,
    }
    assert source.has_names
    told = {each.path.name: each.problem for each in source.findings.kept}
    assert told == {
        "README.txt": "it is not imported",
        "schemas": "it is not imported, files: 1 of sch1794773335; topics have no schemas here, so"
        " producers and consumers go on with their own",
        "traces": "it is not imported, files: 1; they tell what happened there, to no message that comes",
    }
    assert source.findings.damages == 0


def test_messages_of_an_aborted_transaction_and_ends_of_transactions_are_left_out() -> None:
    topic = topic_named(open_source(BROKER, DISK).topics, f"tx{STAMP}")
    assert [(item.identity, item.value) for item in topic.items()] == [(0, b"v0"), (1, b"v1")]


def test_priorities_of_the_broker() -> None:
    topic = topic_named(open_source(BROKER, DISK).topics, f"prio{STAMP}")
    assert [(item.value, item.level) for item in topic.items()] == [
        (b"low0", "low"),
        (b"high1", "high"),
        (b"norm2", "normal"),
    ]


def test_a_message_that_waits_and_one_that_was_cancelled() -> None:
    source = open_source(BROKER, DISK)
    [waiting] = topic_named(source.topics, f"rst{STAMP}").items()
    assert (waiting.value, waiting.is_consumed) == (b"delayed-1h", False)
    assert waiting.deliver_at_us is not None
    # An hour later, and by the way from the producer to the index less.
    assert 0 <= waiting.timestamp_us + 3_600_000_000 - waiting.deliver_at_us < 1000
    items = list(topic_named(source.topics, f"dly{STAMP}").items())
    assert [(item.partition, item.value, item.is_consumed) for item in items] == [
        (0, b"delayed", True),
        (0, b"n0", False),
        (1, b"n1", False),
    ]


def test_a_group_is_where_it_committed() -> None:
    topic = topic_named(open_source(BROKER, DISK).topics, f"ack{STAMP}")
    [group] = topic.groups
    assert (group.name, group.positions) == (f"g{STAMP}", {0: Position(3)})


def test_a_dead_letter_is_the_message_that_it_was() -> None:
    topic = topic_named(open_source(BROKER, DISK).topics, f"ack{STAMP}")
    [letter] = topic.dead_letters()
    assert (letter.identity, letter.value, letter.key) == (0, b"m4", None)
    assert letter.timestamp_us == 1_794_773_335_778_322
    assert list(letter.headers or {}) == ["traceparent"]
    assert letter.dead == Death(
        original_id="4",
        partition=0,
        offset=4,
        attempts=1,
        reason="REJECTED",
        error="poison",
        group=f"g{STAMP}",
        time_us=1_794_773_341_814_405,
    )


@pytest.mark.parametrize(
    ("part", "partitions"), [("logs/demo-orders", 3), ("logs/demo-orders/0", 1), (f"logs/dly{STAMP}", 2)]
)
def test_a_topic_or_a_partition_can_be_given_by_itself(part: str, partitions: int) -> None:
    source = open_source(BROKER / part, DISK)
    [topic] = source.topics
    assert topic.name == Path(part).name
    assert topic.partitions == partitions
    assert len(list(topic.items())) == (3 if "dly" in part else 12)
    assert not source.has_names
    assert looks_like(BROKER / part, DISK)


def test_the_same_segments_have_the_same_witnesses_wherever_they_are() -> None:
    [whole] = open_source(SAMPLES / "partition_multi", DISK).topics
    [part] = open_source(SAMPLES / "corrupt" / "torn_body", DISK).topics
    assert len(whole.witnesses) == 3
    assert set(part.witnesses) < set(whole.witnesses)
    topic = topic_named(open_source(BROKER, DISK).topics, "demo-orders")
    [alone] = open_source(BROKER / "logs" / "demo-orders", DISK).topics
    assert list(topic.witnesses) == list(alone.witnesses)
    assert len(topic.witnesses) == 1


@pytest.mark.parametrize("other", ["fluxmq/none", "fluxmq/none/queues/orders/segments", "format"])
def test_directories_of_others_are_not_taken_for_its_own(other: str) -> None:
    assert not looks_like(SAMPLES.parent / other, DISK)
