import json
from pathlib import Path

import pytest
from support.command import everything, table_rows
from support.command_inside import Ran, quiver

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", partitions=2)
        orders = mq.queue("orders")
        orders.put(b"tea", key=b"k", headers={"a": b"1"}, partition=0)
        orders.put(b"coffee", partition=0)
        orders.put(b"now", priority="high", partition=1)
    return tmp_path / "data"


def read(data: Path, *arguments: str | Path) -> Ran:
    return quiver("read", "orders", *arguments, "--data", data)


def test_messages_are_shown_as_a_table(data: Path) -> None:
    rows = table_rows(read(data).text)
    assert [(row[0], *row[2:]) for row in rows] == [("0", "k", "tea", "a=1"), ("1", "-", "coffee", "-")]


def test_messages_are_lines_of_json_for_programs(data: Path) -> None:
    lines = [json.loads(line) for line in read(data, "--json").out.splitlines()]
    assert [(line["offset"], line["value"]) for line in lines] == [(0, "tea"), (1, "coffee")]
    assert "receipt" not in lines[0]


def test_any_lane_can_be_read_from_any_offset(data: Path) -> None:
    assert read(data, "--format", "value", "--start", "1").out == b"coffee\n"
    assert read(data, "--format", "value", "--limit", "1").out == b"tea\n"
    assert read(data, "--format", "null", "--partition", "1", "--priority", "high").out == b"now\0"
    assert read(data, "--format", "value", "--partition", "1").out == b""


def test_more_than_a_page_is_read(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.queue("many").put_many([b"%d" % number for number in range(2500)])
    ran = quiver("read", "many", "--limit", "2200", "--format", "value", "--data", data)
    assert ran.out == b"".join(b"%d\n" % number for number in range(2200))


def test_reading_takes_nothing(data: Path) -> None:
    read(data)
    with quivermq.open(data) as mq:
        assert mq.queue("orders").stats().pending == 3
        assert mq.groups("orders") == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--start", "99"], 3),
        (["--partition", "7"], 2),
        (["--priority", "urgent"], 2),
        (["--limit", "0"], 2),
    ],
)
@pytest.mark.parametrize("is_locked", [False, True])
def test_what_is_not_there_cannot_be_read(
    data: Path, arguments: list[str], code: int, is_locked: bool
) -> None:
    if is_locked:
        with quivermq.open(data):
            ran = read(data, *arguments)
    else:
        ran = read(data, *arguments)
    assert (ran.code, ran.out) == (code, b"")
    assert ran.err


def test_a_directory_that_is_open_elsewhere_is_read_beside_it(data: Path) -> None:
    alone = read(data, "--json").out
    with quivermq.open(data) as mq:
        mq.queue("orders").put(b"milk", partition=0)
        before = everything(data)
        beside = read(data, "--json").out
        assert everything(data) == before
        assert quiver("read", "none", "--data", data).code == 3
        assert quiver("read", "a/b", "--data", data).code == 2
    assert beside.startswith(alone)
    assert json.loads(beside.splitlines()[-1])["value"] == "milk"
