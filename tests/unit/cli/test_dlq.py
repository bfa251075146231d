import json
from pathlib import Path

import pytest
from support.command import table_rows
from support.command_inside import Ran, quiver

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic with three dead letters: two of billing, one of them sour, and one of audit."""
    with quivermq.open(tmp_path / "data") as mq:
        orders = mq.queue("orders", "billing")
        orders.put_many([b"tea", b"coffee"])
        for message, reason in zip(orders.get_many(2), ("cold", "sour"), strict=True):
            message.reject(reason, error=f"too {reason}")
        audit = mq.queue("orders", "audit").get()
        assert audit is not None
        audit.reject("cold")
    return tmp_path / "data"


def dlq(data: Path, *arguments: str | Path) -> Ran:
    return quiver("dlq", *arguments, "--data", data)


def left(data: Path) -> list[tuple[bytes, str, str]]:
    with quivermq.open(data) as mq:
        return [(d.value, d.reason, d.group) for d in mq.queue("orders").dead_letters()]


def test_dead_letters_are_listed_with_why_they_died(data: Path) -> None:
    rows = table_rows(dlq(data, "list", "orders").text)
    assert [(row[0], *row[2:]) for row in rows] == [
        ("0-1-0", "billing", "1", "cold", "too cold", "-", "tea"),
        ("0-1-1", "billing", "1", "sour", "too sour", "-", "coffee"),
        ("0-1-2", "audit", "1", "cold", "-", "-", "tea"),
    ]


def test_dead_letters_are_one_document_for_programs(data: Path) -> None:
    first, *others = json.loads(dlq(data, "list", "orders", "--json").out)["messages"]
    assert (first["id"], first["value"], first["reason"], first["group"]) == (
        "0-1-0",
        "tea",
        "cold",
        "billing",
    )
    assert first["died_at"] >= first["timestamp"] > 0
    assert len(others) == 2


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["--limit", "1"], ["0-1-0"]),
        (["--reason", "sour"], ["0-1-1"]),
        (["--group", "audit"], ["0-1-2"]),
        (["--reason", "cold", "--group", "billing"], ["0-1-0"]),
        (["--group", "audit", "--limit", "1"], ["0-1-2"]),
    ],
)
def test_only_those_that_are_wanted_are_listed(data: Path, wanted: list[str], found: list[str]) -> None:
    told = json.loads(dlq(data, "list", "orders", *wanted, "--json").out)
    assert [letter["id"] for letter in told["messages"]] == found


def test_all_go_back(data: Path) -> None:
    assert dlq(data, "redrive", "orders").text == "sent 3 dead letters back\n"
    assert left(data) == []


@pytest.mark.parametrize(
    ("wanted", "stays"),
    [
        (["--limit", "2"], [b"tea"]),
        (["--reason", "cold"], [b"coffee"]),
        (["--group", "billing"], [b"tea"]),
        (["--id", "0-1-1"], [b"tea", b"tea"]),
        (["--id", "0-1-1", "--id", "0-1-2"], [b"tea"]),
    ],
)
@pytest.mark.parametrize(
    ("command", "word"), [(["redrive", "orders"], "moved"), (["discard", "orders", "--yes"], "discarded")]
)
def test_only_those_that_are_wanted_go(
    data: Path, command: list[str], word: str, wanted: list[str], stays: list[bytes]
) -> None:
    assert json.loads(dlq(data, *command, *wanted, "--json").out) == {word: 3 - len(stays)}
    assert [value for value, _, _ in left(data)] == stays


def test_to_throw_away_needs_a_yes_where_nobody_can_be_asked(data: Path) -> None:
    ran = dlq(data, "discard", "orders")
    assert (ran.code, "--yes" in ran.err, len(left(data))) == (2, True, 3)
    assert dlq(data, "discard", "orders", "--yes").text == "threw 3 dead letters away\n"


@pytest.mark.parametrize("command", [["list"], ["redrive"], ["discard", "--yes"]])
def test_a_topic_that_is_not_there_is_not_found(data: Path, command: list[str]) -> None:
    assert dlq(data, *command, "none").code == 3


def test_a_topic_without_dead_letters_has_none(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.create_topic("fine")
    assert json.loads(dlq(data, "list", "fine", "--json").out) == {"messages": []}
    assert json.loads(dlq(data, "redrive", "fine", "--json").out) == {"moved": 0}
