"""How far a stream may go, over a real queue and without Spark."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import quivermq
from quivermq.engine import Engine
from quivermq.errors import Conflict, OffsetOutOfRange, TopicNotFound
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.options import Options
from quivermq.spark.place import Lane
from quivermq.spark.source.frontier import Frontier
from quivermq.spark.source.stream_offsets import StreamOffsets

LANE = Lane("orders", 0, "normal")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with quivermq.open(tmp_path / "data") as engine:
        yield engine


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def frontier(path: str, **options: str) -> Frontier:
    given = {"subscribe": "orders", "startingoffsets": "earliest"} | options
    return Frontier(Options.parse(given), DirectoryPlace(path))


def put(engine: Engine, count: int, topic: str = "orders", **options: str) -> None:
    for _ in range(count):
        engine.queue(topic).put(b"x", durability="os", **options)  # type: ignore[arg-type]


def at(offsets: StreamOffsets) -> dict[Lane, int]:
    return {lane: offset for topic in offsets.values() for lane, offset in topic.lanes.items()}


def test_a_stream_follows_its_topic(engine: Engine, path: str) -> None:
    put(engine, 3)
    reading = frontier(path)
    first = reading.first()
    assert at(first) == {LANE: 0}
    second = reading.next(first, None)
    assert at(second) == {LANE: 3}
    assert reading.next(second, None) == second
    put(engine, 1, priority="low")
    assert at(reading.next(second, None)) == {LANE: 3, Lane("orders", 0, "low"): 1}
    assert reading.latest is not None
    assert at(frontier(path, startingoffsets="latest").first()) == {LANE: 3, Lane("orders", 0, "low"): 1}


def test_now_is_where_a_run_ends(engine: Engine, path: str) -> None:
    put(engine, 3)
    reading = frontier(path, subscribe="orders,late.*")
    first = reading.first()
    reading.stop_here()
    put(engine, 2)
    put(engine, 2, priority="high")
    put(engine, 2, "late.a")
    second = reading.next(first, 2)
    assert at(second) == {LANE: 2}
    third = reading.next(second, 2)
    assert at(third) == {LANE: 3}
    assert reading.next(third, 2) == third
    # The next run reads what came meanwhile.
    assert sum(at(frontier(path, subscribe="orders,late.*").next(third, None)).values()) == 9


def test_options_say_where_it_ends(engine: Engine, path: str) -> None:
    put(engine, 3)
    reading = frontier(path, endingoffsets='{"orders": {"0": 5}}')
    first = reading.next(reading.first(), None)
    assert at(first) == {LANE: 3}
    put(engine, 3)
    assert at(reading.next(first, None)) == {LANE: 5}


def test_a_beginning_that_is_not_zero_is_noted(engine: Engine, path: str) -> None:
    engine.create_topic("orders", segment_messages=1, segments_max=1)
    put(engine, 3)
    engine.compact()
    found = frontier(path, subscribe="orders").next({}, None)
    assert found["orders"].lanes == {LANE: 3}
    assert found["orders"].begins == {LANE: 2}


def test_loss_is_told(engine: Engine, path: str, caplog: pytest.LogCaptureFixture) -> None:
    engine.create_topic("orders", segment_messages=1, segments_max=1)
    put(engine, 1)
    first = frontier(path).first()
    put(engine, 2)
    engine.compact()
    with pytest.raises(OffsetOutOfRange, match=r"offsets \[0, 2\) of orders.*failOnDataLoss"):
        frontier(path).next(first, None)
    with caplog.at_level(logging.WARNING):
        assert at(frontier(path, failondataloss="false").next(first, None)) == {LANE: 3}
    assert "offsets [0, 2) of orders" in caplog.text
    explicit = frontier(path, startingoffsets='{"orders": {"0": 9}}')
    with pytest.raises(OffsetOutOfRange, match=r"\[3, 9\)"):
        explicit.first()


def test_a_log_that_lost_its_end_is_told(engine: Engine, path: str) -> None:
    put(engine, 3)
    reading = frontier(path)
    ahead = reading.next(reading.first(), None)
    ahead["orders"].lanes[LANE] = 5
    with pytest.raises(OffsetOutOfRange, match=r"offsets \[3, 5\).*were there once"):
        reading.next(ahead, None)
    assert at(frontier(path, failondataloss="false").next(ahead, None)) == {LANE: 3}


def test_a_topic_that_is_gone_or_another_is_told(engine: Engine, path: str) -> None:
    put(engine, 3)
    reading, lenient = frontier(path), frontier(path, failondataloss="false")
    before = reading.next(reading.first(), None)
    engine.delete_topic("orders")
    with pytest.raises(TopicNotFound, match="orders was deleted"):
        reading.next(before, None)
    assert lenient.next(before, None) == {}
    put(engine, 5)
    with pytest.raises(Conflict, match="made again"):
        reading.next(before, None)
    assert at(lenient.next(before, None)) == {LANE: 5}
    # What is no longer subscribed to is no loss.
    assert frontier(path, subscribe="other.*").next(before, None) == {}
