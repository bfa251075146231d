"""Messages as Arrow batches: all of them, in order, in batches of a good size."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.manual_clock import ManualClock

import quivermq
from quivermq import Message
from quivermq.errors import InvalidRequest
from quivermq.frame.batches import ROWS_MAX
from quivermq.model.lanes import Lane
from quivermq.queue.connection import Connection
from quivermq.reading.batches import SCHEMA, record_batches
from quivermq.reading.directory import DirectoryReader

LANE = Lane("orders", 0, "normal")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Connection]:
    with quivermq.open(tmp_path / "data") as engine:
        engine.create_topic("orders", durability="os")
        yield engine


@pytest.fixture
def place(engine: Connection, tmp_path: Path) -> DirectoryReader:
    return DirectoryReader(str(tmp_path / "data"))


def end(place: DirectoryReader) -> int:
    return place.lanes("orders")[LANE].end


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_column_is_there(engine: Connection, place: DirectoryReader) -> None:
    full = Message(b"v", key=b"k", headers={"a": b"1", "b": b"2"}, timestamp=5_000_000, ttl=2**31)
    engine.queue("orders").put_many([full, b"plain"])
    [batch] = record_batches(place, LANE, 0, 2)
    assert batch.schema.equals(SCHEMA)
    first, second = batch.to_pylist()
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}]
    assert (first["key"], first["value"], first["offset"]) == (b"k", b"v", 0)
    assert first["timestamp"].timestamp() == 5
    assert first["expires_at"] is not None
    assert (second["key"], second["headers"], second["expires_at"]) == (None, [], None)
    assert {(row["topic"], row["partition"], row["priority"]) for row in (first, second)} == {LANE}


@pytest.mark.parametrize(("count", "ttl"), [(3, None), (20, None), (20, 3600)])
def test_what_was_delayed_has_its_id(tmp_path: Path, count: int, ttl: int | None) -> None:
    clock = ManualClock()
    with quivermq.open(tmp_path / "data", clock=clock) as engine:
        queue = engine.queue("orders")
        late = queue.put_many([Message(b"late", delay=5, ttl=ttl) for _ in range(count)])
        queue.put_many([b"plain"] * count)
        clock.advance(5)
        queue.get()
        place = DirectoryReader(str(tmp_path / "data"))
        ids = [None] * count + [put.scheduled_id for put in late]
        for start in (0, 1):
            batches = record_batches(place, LANE, start, 2 * count, ["scheduled_id", "value"])
            found = [(row["scheduled_id"], row["value"]) for row in rows(batches)]
            expected = zip(ids, [b"plain"] * count + [b"late"] * count, strict=True)
            assert found == list(expected)[start:]


@pytest.mark.parametrize("sizes", [[1] * 20, [30] * 3, [1, 1, 50, 2, 3, 100, 1]], ids=str)
def test_small_and_large_frames_are_the_same_to_a_reader(
    engine: Connection, place: DirectoryReader, sizes: list[int]
) -> None:
    queue, count = engine.queue("orders"), sum(sizes)
    messages = iter(
        Message(b"v%d" % n, key=b"k%d" % n if n % 3 else None, headers={"n": b"%d" % n} if n % 2 else None)
        for n in range(count)
    )
    for size in sizes:
        queue.put_many([next(messages) for _ in range(size)])
    expected = [(r.offset, r.key, r.value, list(r.headers.items())) for r in queue.read(limit=count)]
    for start, stop in ((0, count), (1, count - 1), (count // 2, count // 2 + 1)):
        found = [
            (r["offset"], r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]])
            for r in rows(record_batches(place, LANE, start, stop))
        ]
        assert found == expected[start:stop]


def test_batches_have_a_good_size(engine: Connection, place: DirectoryReader) -> None:
    for _ in range(100):
        engine.queue("orders").put_many([b"x"] * 100)
    sizes = [batch.num_rows for batch in record_batches(place, LANE, 0, 10_000, rows_max=4000)]
    assert sizes == [4000, 4000, 2000]
    assert [b.num_rows for b in record_batches(place, LANE, 50, 10_000)] == [9950]


def test_a_frame_that_is_too_long_is_cut(engine: Connection, place: DirectoryReader) -> None:
    engine.queue("orders").put_many([b"x"] * 100_000)
    batches = list(record_batches(place, LANE, 0, 100_000, ["offset"]))
    assert max(batch.num_rows for batch in batches) <= ROWS_MAX
    assert pa.Table.from_batches(batches).column("offset").to_pylist() == list(range(100_000))


def test_large_messages_make_short_batches(engine: Connection, place: DirectoryReader) -> None:
    for _ in range(40):
        engine.queue("orders").put(bytes(1024 * 1024))
    batches = list(record_batches(place, LANE, 0, 40, ["value"]))
    assert len(batches) == 2
    assert sum(batch.num_rows for batch in batches) == 40


def test_only_what_is_asked_for_is_there(engine: Connection, place: DirectoryReader) -> None:
    engine.queue("orders").put_many([b"a", b"b"])
    [batch] = record_batches(place, LANE, 0, 2, ["priority", "value"])
    assert batch.to_pylist() == [
        {"priority": "normal", "value": b"a"},
        {"priority": "normal", "value": b"b"},
    ]
    [batch] = record_batches(place, LANE, 0, 2, ["partition"])
    assert batch.to_pylist() == [{"partition": 0}, {"partition": 0}]
    [batch] = record_batches(place, LANE, 0, 2, [])
    assert (batch.num_columns, batch.num_rows) == (0, 2)
    with pytest.raises(InvalidRequest, match="nonsense"):
        next(record_batches(place, LANE, 0, 2, ["nonsense"]))


@pytest.mark.parametrize("together", [True, False])
def test_what_was_removed_is_left_out(engine: Connection, place: DirectoryReader, together: bool) -> None:
    queue = engine.queue("orders")
    queue.put_many([b"%d" % n for n in range(40)])
    taken = queue.get_many(40)
    if together:
        queue.reject(taken, "no")
    else:
        for delivery in taken:
            delivery.reject("no")
    queue.redrive(lambda letter: int(letter.value) in {0, 1, 7, 8, 39})
    lane = Lane("orders.dlq", 0, "normal")
    shown = [int(row["value"]) for row in rows(record_batches(place, lane, 0, 40, ["value"]))]
    assert shown == [n for n in range(40) if n not in {0, 1, 7, 8, 39}]
    queue.redrive()
    assert rows(record_batches(place, lane, 0, 40)) == []


def test_frames_nobody_wants_are_left_out(engine: Connection, place: DirectoryReader) -> None:
    for moment in (100, 200, 300):
        engine.queue("orders").put_many([Message(b"%d" % moment, timestamp=moment)] * 10)
    found = record_batches(place, LANE, 0, 30, ["value"], wanted=lambda h: h.timestamp_max >= 200)
    assert {row["value"] for row in rows(found)} == {b"200", b"300"}


def test_compressed_frames_are_read(engine: Connection, place: DirectoryReader) -> None:
    engine.alter_topic("orders", codec="zstd")
    engine.queue("orders").put_many([bytes(1000)] * 100)
    assert rows(record_batches(place, LANE, 0, 100, ["value"])) == [{"value": bytes(1000)}] * 100
