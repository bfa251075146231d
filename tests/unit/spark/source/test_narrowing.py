"""What filters leave to be read. They may leave too much, never too little."""

import pickle
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from quivermq.frame import encode
from quivermq.spark.place import Lane
from quivermq.spark.source.narrowing import Narrowing, Span


def narrowed(*filters: Filter) -> Narrowing:
    narrowing = Narrowing()
    narrowing.take(filters)
    return narrowing


def moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


def test_lanes() -> None:
    lane = Lane("orders", 3, "high")
    assert narrowed(IsNotNull(("topic",))).keeps(lane)
    assert narrowed(EqualTo(("topic",), "orders"), In(("priority",), ("high", "low"))).keeps(lane)
    assert not narrowed(EqualTo(("topic",), "other")).keeps(lane)
    assert not narrowed(In(("topic",), ("orders", "a")), EqualTo(("topic",), "a")).keeps(lane)
    assert not narrowed(StringStartsWith(("topic",), "ev")).keeps(lane)
    assert not narrowed(EqualTo(("priority",), "normal")).keeps(lane)
    assert narrowed(GreaterThan(("partition",), 2), LessThanOrEqual(("partition",), 3)).keeps(lane)
    assert not narrowed(LessThan(("partition",), 3)).keeps(lane)


def test_offsets() -> None:
    found = narrowed(GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9), In(("offset",), (6, 20)))
    assert found.offset == Span(6, 8)
    assert narrowed(In(("offset",), (4, None))).offset == Span(4, 4)


def test_times_are_compared_with_the_header_of_a_frame() -> None:
    header = encode([b"a", b"b"], timestamp=[200, 100]).header
    assert narrowed().wanted() is None
    wanted = {
        (100, 100): True,
        (150, 160): True,
        (201, 300): False,
        (0, 99): False,
    }
    for (lowest, highest), expected in wanted.items():
        narrowing = narrowed(
            GreaterThanOrEqual(("timestamp",), moment(lowest)),
            LessThanOrEqual(("timestamp",), moment(highest)),
        )
        judge = pickle.loads(pickle.dumps(narrowing)).wanted()
        assert judge is not None
        assert judge(header) is expected


def test_what_is_not_understood_is_not_used() -> None:
    odd = narrowed(
        Not(EqualTo(("topic",), "orders")),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("offset",), "7"),
        EqualTo(("value",), b"x"),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001  (One without a zone is the point.)
    )
    assert odd == Narrowing()
