import json
from pathlib import Path

import pytest
from support.command import table_rows
from support.command_inside import Ran, quiver

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        orders = mq.queue("orders")
        orders.put(b"later", key=b"k", delay=7200)
        orders.put(b"soon", delay=3600)
    return tmp_path / "data"


def scheduled(data: Path, *arguments: str | Path) -> Ran:
    return quiver("scheduled", *arguments, "--data", data)


def told(data: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(scheduled(data, "list", "orders", "--json").out)[
        "scheduled"
    ]
    return found


def test_what_waits_is_listed_with_the_next_one_first(data: Path) -> None:
    rows = table_rows(scheduled(data, "list", "orders").text)
    assert [row[-2:] for row in rows] == [["-", "soon"], ["k", "later"]]
    assert len(table_rows(scheduled(data, "list", "orders", "--limit", "1").text)) == 1


def test_what_waits_is_one_document_for_programs(data: Path) -> None:
    soon, later = told(data)
    assert (soon["value"], later["value"], later["key"]) == ("soon", "later", "k")
    assert isinstance(soon["deliver_at"], int)


def test_a_message_is_called_off_once(data: Path) -> None:
    identity = str(told(data)[0]["id"])
    assert scheduled(data, "cancel", "orders", identity).text == "cancelled 1 message\n"
    assert [message["value"] for message in told(data)] == ["later"]
    ran = scheduled(data, "cancel", "orders", identity)
    assert (ran.code, ran.out) == (3, b"")
    assert "does not wait" in ran.err


def test_a_cancel_is_told_to_a_program(data: Path) -> None:
    identity = told(data)[0]["id"]
    ran = scheduled(data, "cancel", "orders", str(identity), "--json")
    assert json.loads(ran.out) == {"cancelled": 1}


@pytest.mark.parametrize("command", [["list", "none"], ["cancel", "none", "x"]])
def test_a_topic_that_is_not_there_is_not_found(data: Path, command: list[str]) -> None:
    assert scheduled(data, *command).code == 3
