import json
import os
from pathlib import Path

import pytest
from support.command import table_rows
from support.command_inside import Ran, quiver

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        orders = mq.queue("orders", "billing")
        orders.put_many([b"tea", b"coffee", b"milk"])
        message = orders.get()
        assert message is not None
        message.ack()
        orders.get()
        mq.queue("other", "audit").put(b"x")
        mq.queue("other", "audit").pop()
    return tmp_path / "data"


def group(data: Path, *arguments: str | Path) -> Ran:
    return quiver("group", *arguments, "--data", data)


def values(data: Path, name: str = "billing") -> list[bytes]:
    with quivermq.open(data) as mq:
        return [message.value for message in mq.queue("orders", name).get_many(10)]


def test_groups_of_all_topics_are_listed(data: Path) -> None:
    assert table_rows(group(data, "list").text) == [
        ["orders", "billing", "1", "1", "0", "0", "2", "consuming"],
        ["other", "audit", "0", "0", "0", "0", "0", "idle"],
    ]


def test_groups_of_one_topic_are_listed(data: Path) -> None:
    told = json.loads(group(data, "list", "orders", "--json").out)
    assert told == {
        "groups": [
            {
                "topic": "orders",
                "group": "billing",
                "pending": 1,
                "in_flight": 1,
                "retrying": 0,
                "waiting_for_key": 0,
                "delayed": 0,
                "dead_letters": 0,
                "state": "consuming",
                "backlog": 2,
            }
        ]
    }


def test_one_group_is_shown(data: Path) -> None:
    assert table_rows(group(data, "show", "orders", "billing").text) == [
        ["orders", "billing", "1", "1", "0", "0", "2", "consuming"]
    ]
    assert json.loads(group(data, "show", "orders", "billing", "--json").out)["in_flight"] == 1


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (["--to", "earliest"], [b"tea", b"coffee", b"milk"]),
        (["--to", "latest"], []),
        (["--offset", "2"], [b"milk"]),
        (["--offset", "2", "--partition", "0", "--priority", "normal"], [b"milk"]),
        (["--timestamp", "2000-01-01T00:00:00Z"], [b"tea", b"coffee", b"milk"]),
        (["--timestamp", "4000000000"], []),
    ],
)
def test_a_group_goes_on_from_elsewhere(data: Path, where: list[str], found: list[bytes]) -> None:
    ran = group(data, "seek", "orders", "billing", *where)
    assert ran.code == 0, ran.err
    assert table_rows(ran.text)[0][2] == str(len(found))
    assert values(data) == found


def test_a_group_that_is_new_can_be_told_where_to_begin(data: Path) -> None:
    group(data, "seek", "orders", "new", "--offset", "1")
    assert values(data, "new") == [b"coffee", b"milk"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list", "none"], 3),
        (["show", "orders", "nobody"], 3),
        (["show", "none", "billing"], 3),
        (["seek", "orders", "billing"], 2),
        (["seek", "orders", "billing", "--to", "latest", "--offset", "1"], 2),
        (["seek", "orders", "billing", "--to", "noon"], 2),
        (["seek", "orders", "billing", "--timestamp", "noon"], 2),
        (["seek", "orders", "billing", "--offset", "99"], 3),
        (["seek", "orders", "billing", "--to", "latest", "--partition", "7"], 2),
        (["seek", "none", "billing", "--to", "latest"], 3),
        (["reset", "orders", "nobody", "--yes"], 3),
        (["delete", "orders", "nobody", "--yes"], 3),
        (["reset", "orders", "billing"], 2),
        (["delete", "orders", "billing"], 2),
    ],
)
def test_a_wrong_call_moves_nothing(data: Path, arguments: list[str], code: int) -> None:
    ran = group(data, *arguments)
    assert (ran.code, ran.out) == (code, b"")
    assert ran.err
    assert values(data) == [b"milk"]


def test_a_reset_brings_everything_again_as_if_for_the_first_time(data: Path) -> None:
    assert json.loads(group(data, "reset", "orders", "billing", "--yes", "--json").out)["pending"] == 3
    with quivermq.open(data) as mq:
        assert [m.attempt for m in mq.queue("orders", "billing").get_many(10)] == [1, 1, 1]


def test_a_deleted_group_is_forgotten(data: Path) -> None:
    assert group(data, "delete", "orders", "billing", "--yes").text == "deleted billing from orders\n"
    with quivermq.open(data) as mq:
        assert mq.groups("orders") == []
    told = json.loads(group(data, "delete", "other", "audit", "--yes", "--json").out)
    assert told == {"deleted": "audit", "topic": "other"}


def test_what_is_in_flight_is_listed_with_who_has_it(data: Path) -> None:
    [row] = table_rows(group(data, "deliveries", "orders", "billing").text)
    assert row[:4] == ["0", "normal", "1", "1"]
    holder = f"process {os.getpid()} on {os.uname().nodename}"
    assert " ".join(row).endswith(holder)
    [held] = json.loads(group(data, "deliveries", "orders", "billing", "--json").out)["deliveries"]
    assert (held["topic"], held["offset"], held["attempt"], held["holder"]) == ("orders", 1, 1, holder)
    assert held["first_delivered_at"] == held["last_delivered_at"] < held["deadline"]
    assert json.loads(group(data, "deliveries", "other", "audit", "--json").out) == {"deliveries": []}


def test_what_nobody_has_of_a_group_that_is_not_there_is_an_error(data: Path) -> None:
    assert group(data, "deliveries", "orders", "nobody").code == 3
