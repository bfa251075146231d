"""What is gone while it is read: told, or skipped with a warning; never read twice."""

import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import quivermq
from quivermq.errors import OffsetOutOfRange, TopicNotFound
from quivermq.frame import Frame
from quivermq.model.lanes import Lane
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.rows import GuardedFrames

LANE = Lane("orders", 0, "normal")


class Overtaken(DirectoryReader):
    """A place where something happens before the message of offset 2 is read, each time."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(str(path))
        self._error = error

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        for frame in super().frames(lane, start, end):
            if frame.header.base_offset == 2:
                raise self._error
            yield frame


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path) as mq:
        for number in range(6):
            mq.queue("orders").put(b"%d" % number)
    return tmp_path


RETENTION = OffsetOutOfRange(2, start=4, end=6)
LOST_END = OffsetOutOfRange(2, start=1, end=2)
DELETED = TopicNotFound("there is no topic orders")


@pytest.mark.parametrize(
    ("error", "left", "told"),
    [
        pytest.param(RETENTION, [0, 1, 4, 5], "offsets [2, 4) of orders", id="goes on behind it"),
        pytest.param(LOST_END, [0, 1], "offsets [2, 6) of orders", id="and ends where nothing is"),
        pytest.param(DELETED, [0, 1], "there is no topic orders", id="and with its topic"),
    ],
)
def test_what_is_gone(
    path: Path, caplog: pytest.LogCaptureFixture, error: Exception, left: list[int], told: str
) -> None:
    with caplog.at_level(logging.WARNING):
        frames = islice(
            GuardedFrames(Overtaken(path, error), fail_on_data_loss=False).frames(LANE, 0, 6), 20
        )
        assert [frame.header.base_offset for frame in frames] == left
    assert told in caplog.text
    with pytest.raises(type(error), match="orders"):
        list(GuardedFrames(Overtaken(path, error), fail_on_data_loss=True).frames(LANE, 0, 6))
