"""What a task stages for the driver to commit."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.manual_clock import ManualClock

import quivermq
from quivermq.clock import SystemClock
from quivermq.disk import SystemDisk
from quivermq.frame import Frame
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.sink.commit import commit_batch, open_queue, remove_abandoned, turn
from quivermq.spark.sink.options import SinkOptions, TaskPart
from quivermq.spark.sink.staging import (
    StagedFile,
    directory_of,
    packed_manifest,
    stage,
    unpacked_manifest,
)

PART = TaskPart("query", 5, 1)
DAY_US = 24 * 3600 * 1_000_000


def staged(path: Path, values: list[bytes], **rest: Any) -> StagedFile:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    options = SinkOptions(DirectoryReader(str(path)), **{"topic": "out", "batch_messages": 4, **rest})
    return stage(path, iter([rows]), PART, options, SystemDisk())


def commit(path: Path, write: str, batch: int, files: list[StagedFile], **rest: Any) -> None:
    opened = partial(open_queue, DirectoryReader(str(path)))
    commit_batch(path, write, batch, files, **{"disk": SystemDisk(), "open_queue": opened, **rest})


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


def test_a_topic_says_how_hard_its_codec_tries_and_from_which_size_on(tmp_path: Path) -> None:
    words = [b"%d of %d" % (n % 97, n * 31 % 1009) for n in range(4000)]

    def length(**settings: Any) -> int:
        with quivermq.open(tmp_path) as mq:
            mq.create_topic("out", exist_ok=True, codec="zstd")
            mq.alter_topic("out", **{"compression_level": None, "compression_bytes_min": 0, **settings})
        file = staged(tmp_path, words, batch_messages=4000)
        return sum(frame.length for frame in file.frames)

    usual, plain = length(), sum(map(len, words))
    assert usual < plain
    assert length(compression_level=19) < usual
    assert length(compression_bytes_min=10_000_000) > plain


@pytest.mark.parametrize("write", ["../../out", "a/b", ".", "x" * 200, "job 5"])
def test_an_id_never_leads_out_of_the_directory(tmp_path: Path, write: str) -> None:
    assert directory_of(tmp_path, write).resolve().parent == tmp_path / "spark"


def test_a_directory_that_is_open_is_told_with_its_process(tmp_path: Path) -> None:
    file, at_once = staged(tmp_path, [b"x"]), partial(open_queue, DirectoryReader(str(tmp_path)), wait_s=0)
    with quivermq.open(tmp_path), pytest.raises(quivermq.Unavailable, match=r"process \d+.*`server`"):
        commit(tmp_path, "query", 5, [file], open_queue=at_once)
    commit(tmp_path, "query", 5, [file])
    with quivermq.open(tmp_path) as mq:
        assert [message.value for message in mq.queue("out").read()] == [b"x"]


def test_writes_to_one_directory_wait_for_each_other(tmp_path: Path) -> None:
    """As the sinks of one pipeline do, each from a process of its own."""
    file, other = staged(tmp_path, [b"x"]), TaskPart("other", 0, 0)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"y"], pa.binary())})
    options = SinkOptions(DirectoryReader(str(tmp_path)), topic="out")
    file_of_other = stage(tmp_path, iter([rows]), other, options, SystemDisk())
    is_inside, may_go_on = threading.Event(), threading.Event()

    @contextmanager
    def slowly() -> Iterator[quivermq.Connection]:
        with open_queue(options.reader) as queue:
            is_inside.set()
            assert may_go_on.wait(30)
            yield queue

    def opened() -> quivermq.Connection:
        # Not even for a moment while the other one has it.
        return open_queue(options.reader, wait_s=0)

    with ThreadPoolExecutor() as threads:
        first = threads.submit(commit, tmp_path, "query", 5, [file], open_queue=slowly)
        assert is_inside.wait(30)
        second = threads.submit(commit, tmp_path, "other", 0, [file_of_other], open_queue=opened)
        with pytest.raises(TimeoutError):
            second.result(0.1)
        may_go_on.set()
        first.result(30)
        second.result(30)
    with quivermq.open(tmp_path) as mq:
        assert [message.value for message in mq.queue("out").read()] == [b"x", b"y"]


def test_who_never_gets_its_turn_is_told(tmp_path: Path) -> None:
    with turn(SystemDisk(), tmp_path), pytest.raises(quivermq.Unavailable, match=r"process \d+"):  # noqa: SIM117
        with turn(SystemDisk(), tmp_path, wait_s=0):
            pass
    with turn(SystemDisk(), tmp_path, wait_s=0):
        pass


def test_what_killed_writes_have_staged_goes_after_some_days(tmp_path: Path) -> None:
    staged(tmp_path, [b"x"])
    assert (tmp_path / "spark" / "query" / "5").is_dir()
    mine = TaskPart("mine", 0, 0)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"y"], pa.binary())})
    options = SinkOptions(DirectoryReader(str(tmp_path)), topic="out")
    clock = ManualClock(SystemClock().now_us())
    for _ in range(2):
        file = stage(tmp_path, iter([rows]), mine, options, SystemDisk())
        commit(tmp_path, "mine", 0, [file], clock=clock, is_repeatable=False)
        left = [path.name for path in (tmp_path / "spark").iterdir()]
        assert left == (["query"] if clock.now_us() < SystemClock().now_us() + DAY_US else [])
        clock.advance(8 * DAY_US / 1e6)


def test_what_is_committed_stays_however_old_it_is(tmp_path: Path) -> None:
    file = staged(tmp_path, [b"x"])
    (tmp_path / "spark" / "query" / "5.json").write_bytes(packed_manifest([file]))
    remove_abandoned(SystemDisk(), tmp_path, SystemClock().now_us() + 100 * DAY_US)
    commit(tmp_path, "query", 5, [])
    with quivermq.open(tmp_path) as mq:
        assert [message.value for message in mq.queue("out").read()] == [b"x"]


def test_files_that_are_gone_are_told_before_the_batch_counts_as_committed(tmp_path: Path) -> None:
    file = staged(tmp_path, [b"x"])
    remove_abandoned(SystemDisk(), tmp_path, SystemClock().now_us() + 100 * DAY_US)
    with pytest.raises(quivermq.Conflict, match="write again"):
        commit(tmp_path, "query", 5, [file])
    commit(tmp_path, "query", 5, [staged(tmp_path, [b"x"])])
