"""What a batch reads, and what it refuses to, over a real queue and without Spark."""

import json
from pathlib import Path

import pytest

import quivermq
from quivermq.errors import Conflict, InvalidRequest, OffsetOutOfRange, TopicNotFound
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.rows import TimeRange
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.snapshot import Snapshot


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A log of the offsets [2, 5)."""
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", segment_messages=1, segments_max=3)
        for number in range(5):
            mq.queue("orders").put(b"x", timestamp=number)
        mq.compact()
    return str(tmp_path / "data")


def taken(path: str, start: int | None, end: int | None, *, fails: bool = True) -> tuple[int, int]:
    """What is read of the one lane there is."""
    given = {"subscribe": "orders", "failondataloss": str(fails)}
    for option, offset in (("startingoffsets", start), ("endingoffsets", end)):
        if offset is not None:
            given[option] = json.dumps({"orders": {"0": offset}})
    (pinned,) = Snapshot.take(SourceOptions.parse(given), DirectoryReader(path)).parts
    return pinned.start, pinned.end


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, (2, 5)),
        (3, None, (3, 5)),
        (3, 4, (3, 4)),
        (4, 4, (4, 4)),
        (5, None, (5, 5)),
        (-2, -1, (2, 5)),
        # Whoever asks for the earliest asks for what there is.
        (None, 1, (2, 2)),
    ],
)
def test_ranges(path: str, start: int | None, end: int | None, expected: tuple[int, int]) -> None:
    assert taken(path, start, end) == expected


@pytest.mark.parametrize(
    ("start", "end", "text", "left"),
    [
        (5000, None, "`startingOffsets` has offset 5000 for orders.* ends at 5: .*failOnDataLoss", (5, 5)),
        (None, 6, "`endingOffsets` has offset 6 for orders.* ends at 5: .*failOnDataLoss", (2, 5)),
        (3, 6000, "`endingOffsets` has offset 6000", (3, 5)),
        (1, 4, r"offsets \[1, 4\) of orders.* are not all there", (2, 4)),
    ],
)
def test_offsets_that_are_not_there(
    path: str, start: int | None, end: int | None, text: str, left: tuple[int, int]
) -> None:
    with pytest.raises(OffsetOutOfRange, match=text):
        taken(path, start, end)
    read = taken(path, start, end, fails=False)
    assert read == left


def test_an_end_before_the_start(path: str) -> None:
    with pytest.raises(InvalidRequest, match="from offset 4 to 3: `endingOffsets` must not lie before"):
        taken(path, 4, 3)
    assert taken(path, 4, 3, fails=False) == (4, 4)
    moments = {"subscribe": "orders", "startingtimestamp": "4000", "endingtimestamp": "3000"}
    with pytest.raises(InvalidRequest, match="`endingTimestamp` is before"):
        Snapshot.take(SourceOptions.parse(moments), DirectoryReader(path))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"startingoffsets": "latest"}, "`startingOffsets` cannot be latest"),
        ({"endingoffsets": "earliest"}, "`endingOffsets` cannot be earliest"),
        ({"startingoffsets": '{"orders": {"1": 0}}'}, "`startingOffsets` names partition 1"),
        ({"endingoffsets": '{"orders": {"1": 0}}'}, "`endingOffsets` names partition 1"),
        ({"subscribe": "", "assign": '{"orders": [0, 1]}'}, "`assign` names partition 1 of orders"),
    ],
)
def test_what_no_batch_can_read_is_refused(path: str, given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        Snapshot.take(SourceOptions.parse({"subscribe": "orders", **given}), DirectoryReader(path))


def test_a_topic_that_was_named_has_to_be_there(path: str) -> None:
    with pytest.raises(TopicNotFound, match="there is no topic odrers"):
        Snapshot.take(SourceOptions.parse({"subscribe": "orders,odrers"}), DirectoryReader(path))


def test_until_a_moment_everything_is_looked_at_and_cut(path: str) -> None:
    given = {"subscribe": "orders", "startingtimestamp": "0", "endingtimestamp": "1970-01-01T00:00:03Z"}
    (part,) = Snapshot.take(SourceOptions.parse(given), DirectoryReader(path)).parts
    # A message that came later may be older.
    assert (part.end, part.times) == (5, TimeRange(0, 3_000_000))


def test_what_was_pinned_is_not_read_from_a_topic_that_was_made_again(path: str) -> None:
    snapshot = Snapshot.take(SourceOptions.parse({"subscribe": "orders"}), DirectoryReader(path))
    with quivermq.open(path) as mq:
        mq.delete_topic("orders")
        mq.queue("orders").put(b"other")
    with pytest.raises(Conflict, match="orders was deleted and made again: load the DataFrame anew"):
        list(snapshot.ranges(DirectoryReader(path), fails=True))


def test_what_was_pinned_by_a_word_may_lose_its_beginning(path: str) -> None:
    by_word, by_offset = (
        Snapshot.take(SourceOptions.parse({"subscribe": "orders", **given}), DirectoryReader(path))
        for given in ({}, {"startingoffsets": '{"orders": {"0": 2}}'})
    )
    with quivermq.open(path) as mq:
        mq.queue("orders").put(b"x", timestamp=5)
        mq.compact()
    (left,) = by_word.ranges(DirectoryReader(path), fails=True)
    assert (left.start, left.end) == (3, 5)
    with pytest.raises(OffsetOutOfRange):
        list(by_offset.ranges(DirectoryReader(path), fails=True))
    (left,) = by_offset.ranges(DirectoryReader(path), fails=False)
    assert (left.start, left.end) == (3, 5)
