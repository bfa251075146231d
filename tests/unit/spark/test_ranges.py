from datetime import UTC, datetime
from pathlib import Path

import pytest

import quivermq
from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.spark.jobs.ranges import Bound, find_ranges, named_topics
from quivermq.spark.jobs.where import Where

NOBODY = None


@pytest.fixture
def where(tmp_path: Path) -> Where:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", partitions=2)
        for number in range(6):
            mq.queue("orders").put(b"x", partition=number % 2)
        mq.queue("orders").put(b"x", partition=1, priority="high")
    return Where(path=str(tmp_path))


@pytest.mark.parametrize(
    ("start", "end", "starts", "ends"),
    [
        (None, None, (0, 0, 0), (3, 3, 1)),
        (1, 2, (1, 1, 1), (2, 2, 1)),
        (None, 2, (0, 0, 0), (2, 2, 1)),
        (9, None, (3, 3, 1), (3, 3, 1)),
        (0, 0, (0, 0, 0), (0, 0, 0)),
    ],
)
def test_offsets_are_cut_to_what_is_there(
    where: Where, start: Bound, end: Bound, starts: tuple[int, ...], ends: tuple[int, ...]
) -> None:
    ranges = find_ranges(NOBODY, where, ["orders"], start, end)  # type: ignore[arg-type]
    assert ranges.starts == {
        "orders": {
            "0": {"high": 0, "normal": starts[0], "low": 0},
            "1": {"high": starts[2], "normal": starts[1], "low": 0},
        }
    }
    assert ranges.ends["orders"]["0"] == {"high": 0, "normal": ends[0], "low": 0}
    assert ranges.ends["orders"]["1"] == {"high": ends[2], "normal": ends[1], "low": 0}
    assert ranges.messages == sum(ends) - sum(starts)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (5, 2),
        (-1, None),
        (True, None),
        (datetime(2026, 1, 1), None),  # noqa: DTZ001 - That is what is refused.
        (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_bounds_that_make_no_sense_are_refused(where: Where, start: Bound, end: Bound) -> None:
    with pytest.raises(InvalidRequest):
        find_ranges(NOBODY, where, ["orders"], start, end)  # type: ignore[arg-type]


def test_topics_are_found_by_name_and_pattern() -> None:
    there = ["a", "b.c", "b.d", "b.d.dlq"]
    assert named_topics(there, ["b.*", "a", "b.c"]) == ["b.c", "b.d", "a"]
    for wanted in ("x", "y.*"):
        with pytest.raises(TopicNotFound, match="there is no topic"):
            named_topics(there, [wanted])
