"""What a batch reads, and what it refuses to, over a real queue and without Spark."""

import json
from pathlib import Path

import pytest

import quivermq
from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.options import Options
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
    (pinned,) = Snapshot.take(Options.parse(given), DirectoryPlace(path)).parts
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
        Snapshot.take(Options.parse(moments), DirectoryPlace(path))
