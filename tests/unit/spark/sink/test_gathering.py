"""Rows are sorted by where they go, keep their order, and come out in frames of a good size."""

from collections import defaultdict

import pyarrow as pa
import pytest

from quivermq.errors import InvalidRequest
from quivermq.model.lanes import Priority
from quivermq.spark.sink import frames as sink_frames
from quivermq.spark.sink.frames import FrameTarget, RowGathering, by_lane, by_topic
from quivermq.spark.sink.rows import ANY_PARTITION
from quivermq.topic.routing import Router

LANE = FrameTarget(0, "normal")


def values(*contents: bytes, **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(contents, pa.binary()), **columns})


def sizes(made: list[tuple[FrameTarget, pa.RecordBatch]]) -> list[int]:
    return [len(rows) for _, rows in made]


def test_rows_are_sorted_by_topic_and_keep_their_order() -> None:
    rows = values(b"1", b"2", b"3", topic=pa.array(["b", "a", "b"]))
    found = {topic: part.to_pydict() for topic, part in by_topic(rows, None)}
    assert found == {"b": {"value": [b"1", b"3"]}, "a": {"value": [b"2"]}}


def test_the_option_says_more_than_a_column() -> None:
    rows = values(b"1", b"2", topic=pa.array(["b", None]))
    assert [(topic, part.to_pydict()) for topic, part in by_topic(rows, "c")] == [
        ("c", {"value": [b"1", b"2"]})
    ]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a row has no topic"):
        list(by_topic(values(b"1", topic=pa.array([None], pa.string())), None))


def test_rows_are_sorted_by_lane_and_keep_their_order() -> None:
    keys = [b"%d" % (n % 7) if n % 3 else None for n in range(100)]
    priorities: list[Priority | None] = ["high" if n % 2 else None for n in range(100)]
    rows = values(
        *(b"%d" % n for n in range(100)),
        key=pa.array(keys, pa.binary()),
        priority=pa.array(priorities, pa.string()),
    )
    expected: defaultdict[FrameTarget, list[bytes]] = defaultdict(list)
    for n, (key, priority) in enumerate(zip(keys, priorities, strict=True)):
        partition = ANY_PARTITION if key is None else Router(5).partition_of(key)
        expected[FrameTarget(partition, priority or "normal")].append(b"%d" % n)
    found = {target: part.column("value").to_pylist() for target, part in by_lane(rows, 5)}
    assert found == expected
    assert all(part.schema.names == ["value", "key"] for _, part in by_lane(rows, 5))


def test_rows_of_one_lane_are_not_copied() -> None:
    rows = values(b"1", b"2")
    [(target, part)] = by_lane(rows, 2)
    assert target == FrameTarget(ANY_PARTITION, "normal")
    assert part.column("value").buffers()[2].address == rows.column("value").buffers()[2].address


def test_frames_are_filled_and_never_too_full() -> None:
    made = RowGathering(10)
    assert sizes(list(made.add(LANE, values(*[b"x"] * 7)))) == []
    assert sizes(list(made.add(LANE, values(*[b"x"] * 7)))) == [7]
    assert sizes(list(made.add(LANE, values(*[b"x"] * 3)))) == [10]
    assert sizes(list(made.add(LANE, values(*[b"x"] * 25)))) == [10, 10]
    assert sizes(list(made.finish())) == [5]
    assert sizes(list(made.finish())) == []


def test_frames_have_a_limit_of_bytes() -> None:
    made = RowGathering(1000, frame_bytes=2000)
    out = [*made.add(LANE, values(*[bytes(900)] * 5)), *made.finish()]
    assert sum(sizes(out)) == 5
    assert all(len(rows) == 1 or rows.nbytes <= 2000 for _, rows in out)
    assert sizes([*made.add(LANE, values(bytes(5000), b"x")), *made.finish()]) == [1, 1]


def test_many_lanes_take_no_more_memory_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_frames, "_GATHERED_BYTES_MAX", 10_000)
    made = RowGathering(1000)
    out = [
        ready for n in range(100) for ready in made.add(FrameTarget(n, "normal"), values(bytes(1000), b"x"))
    ]
    assert 85 <= len(out) < 100
    assert len(out) + len(list(made.finish())) == 100


def test_one_partition_keeps_the_order_of_rows_with_and_without_keys() -> None:
    keys = pa.array([b"k", None, b"k", None, b"j"], pa.binary())
    [(target, part)] = by_lane(values(b"1", b"2", b"3", b"4", b"5", key=keys), 1)
    assert target == LANE
    assert part.column("value").to_pylist() == [b"1", b"2", b"3", b"4", b"5"]
