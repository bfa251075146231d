import json
from pathlib import Path

import pytest
from support.command import table_rows
from support.command_inside import Ran, quiver

import quivermq
from quivermq.cli.topic import parse_settings
from quivermq.errors import InvalidRequest, InvalidSettings


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", partitions=2)
        orders = mq.queue("orders", "billing")
        orders.put_many([b"tea", b"coffee", b"milk"])
        orders.put(b"now", priority="high", partition=1)
        orders.get()
    return tmp_path / "data"


def topic(data: Path, *arguments: str | Path) -> Ran:
    return quiver("topic", *arguments, "--data", data)


def test_topics_are_listed_with_what_is_in_them(data: Path) -> None:
    [row] = table_rows(topic(data, "list").text)
    assert (row[:3], row[4:]) == (["orders", "2", "4"], ["0", "0", "billing"])


def test_topics_are_one_document_for_programs(data: Path) -> None:
    [told] = json.loads(topic(data, "list", "--json").out)["topics"]
    assert told.pop("bytes") > 0
    assert told["groups"]["billing"]["in_flight"] == 1
    del told["groups"]
    assert (told.pop("dead_letters"), told.pop("dead_letters_of")) == (0, None)
    assert told == {"name": "orders", "partitions": 2, "messages": 4, "delayed": 0}


def test_no_topics_are_an_empty_list(tmp_path: Path) -> None:
    quivermq.open(tmp_path).close()
    assert json.loads(topic(tmp_path, "list", "--json").out) == {"topics": []}
    assert topic(tmp_path, "list").code == 0


def test_one_topic_is_shown_with_its_offsets_and_settings(data: Path) -> None:
    shown = topic(data, "show", "orders").text
    settings = {row[0]: row[1] for row in table_rows(shown)}
    assert (settings["partitions"], settings["segment_bytes"]) == ("2", "64 MiB")
    lines = [line.split() for line in shown.splitlines()]
    assert ["1", "high", "0", "1"] in lines
    assert ["billing", "3", "1", "0", "0"] in lines


def test_one_topic_is_a_document_with_its_settings(data: Path) -> None:
    told = json.loads(topic(data, "show", "orders", "--json").out)
    assert (told["name"], told["messages"], told["settings"]["partitions"]) == ("orders", 4, 2)
    assert told["settings"]["priority_weights"] == [8, 4, 1]


def test_a_topic_is_created_as_it_is_set(data: Path) -> None:
    ran = topic(data, "create", "t", "--set", "partitions=3", "--set", "retention_ms=7d", "--json")
    settings = json.loads(ran.out)["settings"]
    assert (settings["partitions"], settings["retention_ms"]) == (3, 604_800_000)
    assert topic(data, "create", "u").text == "created u with 1 partition\n"


def test_a_topic_that_exists_is_a_conflict(data: Path) -> None:
    ran = topic(data, "create", "orders")
    assert (ran.code, ran.out) == (4, b"")


def test_a_topic_is_altered_while_it_has_messages(data: Path) -> None:
    ran = topic(data, "alter", "orders", "--set", "lease_ms=1m")
    assert (ran.code, ran.text) == (0, "altered orders with 2 partitions\n")
    with quivermq.open(data) as mq:
        assert mq.topic("orders").settings.lease_ms == 60_000


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["alter", "orders"], 2, "say what to change"),
        (["alter", "orders", "--set", "partitions=1"], 2, "cannot lose partitions"),
        (["alter", "orders", "--set", "lease=1"], 2, "did you mean lease_ms?"),
        (["alter", "none", "--set", "lease_ms=1"], 3, "no topic none"),
        (["create", "a/b"], 2, "a/b"),
        (["create", "t", "--set", "partitions=many"], 2, "partitions: 'many' is not a whole number"),
        (["create", "t", "--set", "partitions"], 2, "NAME=VALUE"),
        (["show", "none"], 3, "no topic none"),
        (["delete", "none", "--yes"], 3, "no topic none"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(
    data: Path, arguments: list[str], code: int, reason: str
) -> None:
    ran = topic(data, *arguments)
    assert (ran.code, ran.out) == (code, b"")
    assert reason in ran.err


def test_deleting_needs_a_yes_where_nobody_can_be_asked(data: Path) -> None:
    ran = topic(data, "delete", "orders")
    assert (ran.code, "--yes" in ran.err) == (2, True)
    with quivermq.open(data) as mq:
        assert mq.topics() == ["orders"]


def test_a_deleted_topic_is_gone(data: Path) -> None:
    assert topic(data, "delete", "orders", "--yes").text == "deleted orders with 4 messages\n"
    assert topic(data, "show", "orders").code == 3
    topic(data, "create", "t")
    assert json.loads(topic(data, "delete", "t", "--yes", "--json").out) == {"deleted": "t"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("retention_ms=7d", 604_800_000),
        ("retention_ms=90", 90),
        ("retention_ms=none", None),
        ("backoff_ms_max=1.5s", 1500),
        ("segment_bytes=1MiB", 1024 * 1024),
        ("delete_finished=true", True),
        ("priority_weights=3:2:1", (3, 2, 1)),
        ("codec=zstd", "zstd"),
        ("unknown=x=y", "x=y"),
    ],
)
def test_settings_are_written_as_everywhere_and_times_with_a_unit(text: str, value: object) -> None:
    assert parse_settings([text]) == {text.partition("=")[0]: value}


def test_a_setting_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(InvalidSettings, match="--set") as raised:
        parse_settings(["lease_ms=long"])
    assert raised.value.key == "lease_ms"
    with pytest.raises(InvalidRequest, match="twice"):
        parse_settings(["lease_ms=1", "lease_ms=2"])


def test_a_topic_is_synced(data: Path) -> None:
    assert topic(data, "sync", "orders").text == "everything in orders is on stable storage\n"
    assert json.loads(topic(data, "sync", "orders", "--json").out) == {"synced": "orders"}
    ran = topic(data, "sync", "order")
    assert (ran.code, "did you mean orders?" in ran.err) == (3, True)
