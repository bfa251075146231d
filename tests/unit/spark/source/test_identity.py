"""When the message before an offset came in: the same from a directory and from its broker."""

from collections.abc import Iterator
from pathlib import Path

from support.broker import serving

import quivermq
from quivermq.frame import Frame
from quivermq.frame.compaction import compacted_run
from quivermq.model.lanes import Lane
from quivermq.reading.broker import BrokerReader
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.source.frontier import appended_us

LANE = Lane("orders", 0, "normal")


def test_a_directory_and_its_broker_tell_the_same(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        for _ in range(3):
            served.engine.queue("orders").put_many([b"x", b"y"])
        places = DirectoryReader(str(tmp_path)), BrokerReader(served.url)
        here, there = ([appended_us(place, LANE, offset) for offset in range(8)] for place in places)
        places[1].close()
    assert here == there
    # Two messages a frame; nothing before the first, and nothing behind the last.
    assert here[0] is here[7] is None
    assert here[1] == here[2] != here[3] == here[4] != here[5] == here[6]
    assert None not in here[1:7]


class Emptied(DirectoryReader):
    """A lane of which a compaction has left nothing."""

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        return iter(compacted_run((0, 10), append_time=5, timestamp=5))


def test_what_was_taken_out_tells_nothing() -> None:
    assert appended_us(Emptied("/nowhere"), LANE, 4) is None


class Shown(DirectoryReader):
    """A place that leaves out what was removed, and goes on with what comes next."""

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        return super().frames(lane, start + 1, end + 1)


def test_another_message_tells_nothing_of_one_that_was_removed(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        for _ in range(2):
            mq.queue("orders").put(b"x")
    assert appended_us(Shown(str(tmp_path)), LANE, 1) is None
    assert appended_us(DirectoryReader(str(tmp_path)), LANE, 1) is not None


def test_a_topic_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    assert appended_us(DirectoryReader(str(tmp_path)), LANE, 4) is None
