"""What earlier attempts of a task have written: all of it, and nothing that others have."""

from pathlib import Path

import pyarrow as pa
import pytest

import quivermq
from quivermq.frame import Producer, codec_named
from quivermq.model.lanes import Lane
from quivermq.model.messages import FirstFrame
from quivermq.model.operations import LaneBounds
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.sink.rows import encode_rows
from quivermq.spark.sink.sending import read_back

MINE, OTHER = 7, 8
FIRST = [FirstFrame(0, "normal", 0)]


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def put(path: Path, *sent: tuple[int, bytes]) -> None:
    with quivermq.open(path) as mq:
        for producer_id, value in sent:
            producer = Producer(producer_id, 0, 0)
            frame = encode_rows(rows(value), now_us=1, codec=codec_named("none"), producer=producer)
            mq.queue("out").put_frame(bytes(frame), partition=0)


def test_the_same_rows_of_somebody_else_are_not_mine(tmp_path: Path) -> None:
    put(tmp_path, (MINE, b"a"), (OTHER, b"b"))
    written = read_back(DirectoryReader(str(tmp_path)), "out", MINE, FIRST)
    assert written.subtract(rows(b"a", b"b")).column("value").to_pylist() == [b"b"]


class Overtaken(DirectoryReader):
    """A place where retention comes after so many looks; what it removed is read from somewhere else."""

    def __init__(self, path: str, looks: int) -> None:
        super().__init__(path)
        self._looks = looks

    def lanes(self, topic: str) -> dict[Lane, LaneBounds]:
        self._looks -= 1
        found = super().lanes(topic)
        return found if self._looks >= 0 else {lane: each._replace(start=1) for lane, each in found.items()}


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_retention_that_comes_at_any_moment_is_told(tmp_path: Path, looks: int) -> None:
    put(tmp_path, (MINE, b"a"), (MINE + 1, b"b"))
    with pytest.raises(quivermq.NotFound, match="retention has removed some of it"):
        read_back(Overtaken(str(tmp_path), looks), "out", MINE, FIRST)
    assert read_back(Overtaken(str(tmp_path), 3), "out", MINE, FIRST).count == 1
