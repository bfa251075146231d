"""What a task stages for the driver to commit."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quivermq
from quivermq.disk import SystemDisk
from quivermq.frame import Frame
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.sink.attempt import Part
from quivermq.spark.sink.commit import commit_batch
from quivermq.spark.sink.options import SinkOptions
from quivermq.spark.sink.staging import (
    StagedFile,
    directory_of,
    packed_manifest,
    stage,
    unpacked_manifest,
)

PART = Part("query", 5, 1)


def staged(path: Path, values: list[bytes], **rest: Any) -> StagedFile:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    options = SinkOptions(DirectoryPlace(str(path)), **{"topic": "out", "batch_messages": 4, **rest})
    return stage(iter([rows]), PART, options, SystemDisk())


def test_frames_lie_back_to_back_and_a_manifest_says_where(tmp_path: Path) -> None:
    file = staged(tmp_path, [b"%d" % n for n in range(10)])
    content = (directory_of(tmp_path, "query") / "5" / file.name).read_bytes()
    frames = [Frame.parse(content[f.position : f.position + f.length]) for f in file.frames]
    assert [frame.values() for frame in frames] == [
        [b"0", b"1", b"2", b"3"],
        [b"4", b"5", b"6", b"7"],
        [b"8", b"9"],
    ]
    assert sum(frame.length for frame in file.frames) == len(content)
    assert [frame.header.base_sequence for frame in frames] == [0, 4, 8]
    assert unpacked_manifest(packed_manifest([file])) == [file]


def test_each_attempt_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert staged(tmp_path, [b"x"]).name != staged(tmp_path, [b"x"]).name


def test_a_topic_is_written_as_it_is_set(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("out", partitions=3, codec="zstd", message_bytes_max=1000)
    file = staged(tmp_path, [b"x" * 900] * 12)
    assert {frame.partition for frame in file.frames} == {0, 1, 2}
    assert all(frame.length < 900 for frame in file.frames)
    # Before the batch is committed, when a task can still fail for it.
    with pytest.raises(quivermq.MessageTooLarge, match="message_bytes_max"):
        staged(tmp_path, [bytes(1001)])
    with pytest.raises(quivermq.InvalidName):
        staged(tmp_path, [b"x"], topic="a/b")


@pytest.mark.parametrize("write", ["../../out", "a/b", ".", "x" * 200, "job 5"])
def test_an_id_never_leads_out_of_the_directory(tmp_path: Path, write: str) -> None:
    assert directory_of(tmp_path, write).resolve().parent == tmp_path / "spark"


def test_a_directory_that_is_open_is_told_with_its_process(tmp_path: Path) -> None:
    file = staged(tmp_path, [b"x"])
    with quivermq.open(tmp_path), pytest.raises(quivermq.Unavailable, match=r"process \d+.*`server`"):
        commit_batch(tmp_path, "query", 5, [file], disk=SystemDisk())
    commit_batch(tmp_path, "query", 5, [file], disk=SystemDisk())
    with quivermq.open(tmp_path) as mq:
        assert [message.value for message in mq.queue("out").read()] == [b"x"]
