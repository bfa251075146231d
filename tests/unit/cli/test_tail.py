import json
from pathlib import Path

import pytest
from support.command_inside import Ran, quiver

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", partitions=2)
        mq.queue("orders").put(b"tea", partition=0)
        mq.queue("orders").put(b"coffee", partition=0)
    return tmp_path / "data"


def tail(data: Path, *arguments: str | Path) -> Ran:
    return quiver("tail", "orders", *arguments, "--data", data)


def test_the_last_messages_come_first(data: Path) -> None:
    assert tail(data, "--last", "1", "--count", "1").out == b"coffee\n"
    assert tail(data, "-n", "9", "--count", "2").out == b"tea\ncoffee\n"


def test_new_messages_of_every_lane_are_seen_as_they_come(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quivermq.open(data) as mq:
        orders = mq.queue("orders")
        arrivals = [
            lambda: orders.put(b"milk", partition=0),
            lambda: orders.put(b"first", partition=1),
            lambda: orders.put(b"now", priority="high", partition=1),
        ]
        # Whenever there is nothing to show, the next one comes.
        monkeypatch.setattr("time.sleep", lambda _: arrivals.pop(0)())
        ran = tail(data, "--count", "3", "--json")
        assert mq.groups("orders") == []
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [(line["value"], line["partition"], line["priority"]) for line in lines] == [
        ("milk", 0, "normal"),
        ("first", 1, "normal"),
        ("now", 1, "high"),
    ]


def test_partitions_that_are_added_are_followed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quivermq.open(data) as mq:

        def arrive(_: float) -> None:
            mq.alter_topic("orders", partitions=3)
            mq.queue("orders").put(b"new", partition=2)

        monkeypatch.setattr("time.sleep", arrive)
        assert tail(data, "--count", "1").out == b"new\n"


def test_a_topic_that_is_deleted_ends_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quivermq.open(data) as mq:
        monkeypatch.setattr("time.sleep", lambda _: mq.delete_topic("orders"))
        assert tail(data).code == 3


def test_messages_that_retention_took_are_passed_over(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quivermq.open(data) as mq:
        mq.create_topic("short", segment_messages=1)
        short = mq.queue("short")
        short.put(b"0")

        def arrive(_: float) -> None:
            for number in (b"1", b"2", b"3"):
                short.put(number)
            mq.alter_topic("short", segments_max=1)
            mq.compact()

        monkeypatch.setattr("time.sleep", arrive)
        ran = quiver("tail", "short", "--count", "1", "--data", data)
    assert ran.out == b"3\n"


def test_an_interrupt_ends_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    assert tail(data).code == 130


def test_a_topic_that_is_not_there_is_not_found(data: Path) -> None:
    assert quiver("tail", "none", "--data", data).code == 3
