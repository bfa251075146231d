from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.archives import archive_queue
from support.broker import serving

import quivermq
from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.reading import QueueReader, reader_of
from quivermq.reading.rows import Bound
from quivermq.settings import Settings, StorageSettings
from quivermq.spark.jobs.replay import find_ranges, named_topics

NOBODY = None


@pytest.fixture
def where(tmp_path: Path) -> QueueReader:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", partitions=2)
        for number in range(6):
            mq.queue("orders").put(b"x", partition=number % 2)
        mq.queue("orders").put(b"x", partition=1, priority="high")
    return reader_of(tmp_path)


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
    where: QueueReader, start: Bound, end: Bound, starts: tuple[int, ...], ends: tuple[int, ...]
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
def test_bounds_that_make_no_sense_are_refused(where: QueueReader, start: Bound, end: Bound) -> None:
    with pytest.raises(InvalidRequest):
        find_ranges(NOBODY, where, ["orders"], start, end)  # type: ignore[arg-type]


def test_topics_are_found_by_name_and_pattern() -> None:
    there = ["a", "b.c", "b.d", "b.d.dlq"]
    assert named_topics(there, ["b.*", "a", "b.c"]) == ["b.c", "b.d", "a"]
    for wanted in ("x", "y.*"):
        with pytest.raises(TopicNotFound, match="there is no topic"):
            named_topics(there, [wanted])


def test_partitions_that_came_later_are_not_meant(where: QueueReader) -> None:
    ranges = find_ranges(NOBODY, where, ["orders"], None, None)  # type: ignore[arg-type]
    assert ranges.condition == "(topic = 'orders' AND partition < 2)"
    with quivermq.open(str(where)) as mq:
        mq.create_topic("more")
    both = find_ranges(NOBODY, where, ["*"], None, None)  # type: ignore[arg-type]
    assert both.condition == "(topic = 'more' AND partition < 1) OR (topic = 'orders' AND partition < 2)"


def archived(data: Path) -> None:
    """A queue of 60 messages of which 40 are in the archive alone."""
    settings = Settings(storage=StorageSettings(durability="os", segment_messages=10))
    with quivermq.open(data, settings) as mq:
        queue = mq.queue("orders")
        for first in range(0, 60, 5):
            queue.put_many(
                [quivermq.Message(b"%d" % n, timestamp=float(n)) for n in range(first, first + 5)]
            )
        archive_queue(data, data / "archive", "orders", end=45)
        mq.use_archive("archive")
        while queue.pop() is not None:
            pass
        assert mq.compact(archived=True).messages == 40


def test_what_is_archived_is_meant_as_well(tmp_path: Path) -> None:
    archived(tmp_path)
    ranges = find_ranges(NOBODY, reader_of(tmp_path), ["orders"], None, 50)  # type: ignore[arg-type]
    assert (ranges.starts["orders"]["0"]["normal"], ranges.messages) == (0, 50)


def test_the_archive_of_a_broker_is_meant_as_well(tmp_path: Path) -> None:
    archived(tmp_path)
    with serving(tmp_path) as broker:
        where = reader_of(server=broker.url)

        def start_of(start: Bound, archive: str | None = None) -> int:
            ranges = find_ranges(NOBODY, where, ["orders"], start, None, archive)  # type: ignore[arg-type]
            return ranges.starts["orders"]["0"]["normal"]

        assert [start_of(start) for start in (None, 0, 39, 40)] == [0, 0, 39, 40]
        assert start_of(None, str(tmp_path / "archive")) == 0
        assert start_of(None, "false") == 40
