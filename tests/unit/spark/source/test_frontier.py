"""How far a stream may go, over a real queue and without Spark."""

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import quivermq
from quivermq.errors import Conflict, InvalidRequest, OffsetOutOfRange, TopicNotFound
from quivermq.model.lanes import Lane
from quivermq.queue.connection import Connection
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.frontier import Frontier, StreamOffsets, begin_of, from_json, to_json

LANE = Lane("orders", 0, "normal")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Connection]:
    with quivermq.open(tmp_path / "data") as engine:
        yield engine


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def frontier(path: str, **options: str) -> Frontier:
    given = {"subscribe": "orders", "startingoffsets": "earliest"} | options
    return Frontier(SourceOptions.parse(given), DirectoryReader(path))


def put(engine: Connection, count: int, topic: str = "orders", **options: str) -> None:
    for _ in range(count):
        engine.queue(topic).put(b"x", durability="os", **options)  # type: ignore[arg-type]


def at(offsets: StreamOffsets) -> dict[Lane, int]:
    return {lane: offset for topic in offsets.values() for lane, offset in topic.lanes.items()}


def test_a_stream_follows_its_topic(engine: Connection, path: str) -> None:
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


def test_now_is_where_a_run_ends(engine: Connection, path: str) -> None:
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


def test_a_run_that_ends_now_waits_for_no_larger_batch(engine: Connection, path: str) -> None:
    put(engine, 3)
    reading = frontier(path, minoffsetspertrigger="10", maxtriggerdelay="1d")
    begun = reading.next(reading.first(), None)
    put(engine, 2)
    assert reading.next(begun, None) == begun
    reading.stop_here()
    assert at(reading.next(begun, None)) == {LANE: 5}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"startingoffsets": '{"orders": {"1": 0}}'}, "`startingOffsets` names partition 1"),
        ({"subscribe": "", "assign": '{"orders": [0, 1]}'}, "`assign` names partition 1 of orders"),
        ({"endingoffsets": "earliest"}, "`endingOffsets` cannot be earliest"),
    ],
)
def test_what_no_stream_can_read_is_refused(
    engine: Connection, path: str, given: dict[str, str], reason: str
) -> None:
    put(engine, 1)
    with pytest.raises(InvalidRequest, match=reason):
        frontier(path, **given).first()


def test_options_say_where_it_ends(engine: Connection, path: str) -> None:
    put(engine, 3)
    reading = frontier(path, endingoffsets='{"orders": {"0": 5}}')
    first = reading.next(reading.first(), None)
    assert at(first) == {LANE: 3}
    put(engine, 3)
    assert at(reading.next(first, None)) == {LANE: 5}


def test_a_moment_that_is_yet_to_come_is_no_end(engine: Connection, path: str) -> None:
    put(engine, 1)
    reading = frontier(path, subscribe="orders,empty", endingtimestamp="2099-01-01T00:00:00Z")
    engine.create_topic("empty")
    reached = reading.next(reading.first(), None)
    assert at(reached) == {LANE: 1, Lane("empty", 0, "normal"): 0}
    put(engine, 2)
    put(engine, 1, "empty")
    reached = reading.next(reached, None)
    assert at(reached) == {LANE: 3, Lane("empty", 0, "normal"): 1}
    engine.queue("orders").put(b"x", timestamp=4_100_000_000.0)
    put(engine, 2)
    assert at(reading.next(reached, None))[LANE] == 3


def begin(start: StreamOffsets, end: StreamOffsets, lane: Lane = LANE) -> int:
    return begin_of(start, lane.topic, end[lane.topic], lane)


def test_a_first_batch_that_is_run_again_begins_where_it_began(engine: Connection, path: str) -> None:
    put(engine, 3)
    reading = frontier(path, subscribe="orders,late.*", startingoffsets="latest")
    first = reading.first()
    assert reading.next(first, None) == first
    put(engine, 2)
    put(engine, 2, "late.a")
    late = Lane("late.a", 0, "normal")
    end = from_json(json.loads(json.dumps(to_json(reading.next(first, None)))))
    put(engine, 4)
    # Spark has the end of the batch, and asks anew for its start.
    asked_again = frontier(path, subscribe="orders,late.*", startingoffsets="latest").first()
    assert at(asked_again) == {LANE: 9, late: 2}
    assert (begin(asked_again, end), begin(asked_again, end, late)) == (3, 0)
    following = reading.next(end, None)
    assert (begin(end, following), at(following)[LANE]) == (5, 9)
    assert reading.next(following, None) == following


@pytest.mark.parametrize("first", ["earliest", "latest"])
def test_a_log_that_lost_its_end_and_grew_again_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: str
) -> None:
    def put_all(*values: bytes) -> None:
        with quivermq.open(tmp_path / "data") as mq:
            mq.queue("orders").put_many(list(values))

    path = str(tmp_path / "data")
    put_all(b"a", b"b", b"c")
    shutil.copytree(path, tmp_path / "before")
    put_all(b"d", b"e")
    reading = frontier(path, startingoffsets=first)
    reached = reading.next(reading.first(), None)
    assert at(reached) == {LANE: 5}
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "before", path)
    put_all(b"D", b"E")
    assert frontier(path).next(reached, None) == reached
    put_all(b"F")
    with pytest.raises(Conflict, match=r"orders, partition 0.*before offset 5.*failOnDataLoss"):
        frontier(path).next(reached, None)
    with caplog.at_level(logging.WARNING):
        onward = frontier(path, failondataloss="false").next(reached, None)
    assert "before offset 5" in caplog.text
    assert at(onward) == {LANE: 6}
    put_all(b"G")
    assert at(frontier(path).next(onward, None)) == {LANE: 7}
    # A checkpoint that does not tell is believed.
    old = from_json({"orders": {k: v for k, v in to_json(reached)["orders"].items() if k != "appended_us"}})
    assert at(frontier(path).next(old, None)) == {LANE: 7}


def test_what_a_compaction_or_retention_took_is_no_other_log(engine: Connection, path: str) -> None:
    engine.create_topic("orders", segment_messages=1, segments_max=1)
    put(engine, 3)
    reading = frontier(path)
    reached = reading.next(reading.first(), None)
    put(engine, 1)
    engine.compact()
    assert at(reading.next(reached, None)) == {LANE: 4}


def test_a_beginning_that_is_not_zero_is_noted(engine: Connection, path: str) -> None:
    engine.create_topic("orders", segment_messages=1, segments_max=1)
    put(engine, 3)
    engine.compact()
    found = frontier(path, subscribe="orders").next({}, None)
    assert found["orders"].lanes == {LANE: 3}
    assert found["orders"].begins == {LANE: 2}


def test_loss_is_told(engine: Connection, path: str, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_log_that_lost_its_end_is_told(engine: Connection, path: str) -> None:
    put(engine, 3)
    reading = frontier(path)
    ahead = reading.next(reading.first(), None)
    ahead["orders"].lanes[LANE] = 5
    with pytest.raises(OffsetOutOfRange, match=r"offsets \[3, 5\).*were there once"):
        reading.next(ahead, None)
    ahead["orders"].appended_us[LANE] = 1
    behind = frontier(path, failondataloss="false").next(ahead, None)
    assert at(behind) == {LANE: 3}
    # Of the message that is the last one now, nobody has said when it came in.
    put(engine, 1)
    assert at(frontier(path).next(behind, None)) == {LANE: 4}


def test_a_lane_that_is_gone_is_told(engine: Connection, path: str) -> None:
    put(engine, 3)
    reading = frontier(path)
    before = reading.next(reading.first(), None)
    before["orders"].lanes[Lane("orders", 0, "high")] = 2
    with pytest.raises(OffsetOutOfRange, match=r"offsets \[0, 2\) of orders.*high were there once"):
        reading.next(before, None)
    assert at(frontier(path, failondataloss="false").next(before, None))[LANE] == 3


def test_a_topic_that_is_gone_or_another_is_told(engine: Connection, path: str) -> None:
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
    # From its beginning, and not from where the other one was read.
    anew = lenient.next(before, 4)
    assert (begin(before, anew), at(anew)) == (0, {LANE: 4})
    # What is no longer subscribed to is no loss, and is noticed when it is again.
    other = frontier(path, subscribe="other.*").next(before, None)
    assert other == before
    with pytest.raises(Conflict, match="made again"):
        reading.next(other, None)


def test_a_topic_that_is_subscribed_to_again_goes_on(engine: Connection, path: str) -> None:
    other = Lane("other", 0, "normal")
    put(engine, 3)
    put(engine, 1, "other")
    both = frontier(path, subscribe="orders,other")
    reached = both.next(both.first(), None)
    put(engine, 2)
    put(engine, 1, "other")
    alone = frontier(path, subscribe="other")
    without = from_json(json.loads(json.dumps(to_json(alone.next(reached, None)))))
    # Nothing of it is read meanwhile.
    assert at(without) == {LANE: 3, other: 2}
    assert begin(reached, without) == 3
    assert alone.next(without, None) == without
    assert alone.subscribed(without).keys() == {"other"}
    again = both.next(without, None)
    assert (begin(without, again), at(again)) == (3, {LANE: 5, other: 2})


def test_a_topic_of_which_nothing_was_read_is_left_as_well(engine: Connection, path: str) -> None:
    put(engine, 3)
    first = frontier(path, startingoffsets="latest").first()
    put(engine, 2)
    put(engine, 1, "other")
    without = frontier(path, subscribe="other").next(first, None)
    assert begin(first, without) == at(without)[LANE] == 3
    again = frontier(path).next(without, None)
    assert (begin(without, again), at(again)[LANE]) == (3, 5)
