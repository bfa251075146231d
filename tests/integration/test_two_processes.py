"""One process writes, another looks on; who may write, and what a fork inherits."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doomed_writer import doomed_writer, number_in
from support.logs import values
from support.remote import RemoteLog

from quivermq.errors import DirectoryLocked, OffsetOutOfRange
from quivermq.log import DataDirectory, LogFollower, follow
from quivermq.model.messages import Record
from quivermq.settings import StorageSettings

pytestmark = pytest.mark.fault("locked", "engine")

SMALL: dict[str, Any] = {"durability": "os", "segment_bytes": 16_384, "index_interval_bytes": 512}


def next_promise(line: str) -> int:
    """The end of the messages that a line of the writer tells of."""
    offset, _, count = map(int, line.split()[1:])
    return offset + count


def test_a_follower_sees_all_that_was_acknowledged_while_the_log_grows_and_rolls(tmp_path: Path) -> None:
    with doomed_writer(tmp_path, 0, **SMALL) as (_, told):
        assert told.readline() == "open 0\n"
        follower = follow(tmp_path, "log", StorageSettings(**SMALL))
        seen = 0
        while len(follower.segments) < 5:
            promised = next_promise(told.readline())
            for record in follower.records(seen):
                assert (record.offset, number_in(record.value)) == (seen, (0, seen))
                seen += 1
            assert promised <= seen <= follower.end


def test_mapped_frames_are_those_that_are_read(tmp_path: Path) -> None:
    with doomed_writer(tmp_path, 0, **SMALL) as (_, told):
        told.readline()
        follower = follow(tmp_path, "log", StorageSettings(**SMALL))
        kept, seen = [], 0
        while len(follower.segments) < 3:
            promised = next_promise(told.readline())
            for frame in follower.frames(seen, mapped=True):
                kept.append(frame)
                seen = frame.header.end_offset
            assert promised <= seen
        numbers = [number_in(record.value) for frame in kept for record in frame.records()]
    assert numbers == [(0, number) for number in range(seen)]


def records_that_are_left(follower: LogFollower, start: int) -> Iterator[Record]:
    """Every record from `start` on, but for those that retention took before they were read."""
    while True:
        try:
            yield from follower.records(start)
        except OffsetOutOfRange as error:
            follower.refresh()
            if error.offset >= follower.start:
                pytest.fail(f"offset {error.offset} is there, and was refused")
            start = follower.start
        else:
            return


def test_retention_under_a_follower_takes_messages_and_spoils_none(tmp_path: Path) -> None:
    settings = {**SMALL, "segments_max": 2}
    with doomed_writer(tmp_path, 0, **settings) as (_, told):
        told.readline()
        follower = follow(tmp_path, "log", StorageSettings(**settings))
        seen = 0
        while follower.start < 10_000:
            promised = next_promise(told.readline())
            for record in records_that_are_left(follower, seen):
                assert record.offset >= seen, "an offset came twice"
                assert number_in(record.value) == (0, record.offset)
                seen = record.offset + 1
            assert promised <= seen


def test_a_follower_in_the_middle_of_a_segment_that_goes_is_told(tmp_path: Path) -> None:
    settings = {"durability": "os", "segment_messages": 2, "segments_max": 1}
    with RemoteLog(tmp_path, **settings) as remote:
        remote.append(*"abcdef")
        follower = follow(tmp_path, "log")
        reading = follower.records()
        mapped = list(follower.frames(mapped=True))
        assert next(reading).value == b"a"
        removed_segments, *_ = remote.call("retain")
        assert removed_segments == 2
        # What is left of the segment it has open may still come; what follows is refused, not skipped.
        with pytest.raises(OffsetOutOfRange) as caught:
            list(reading)
        assert caught.value.offset <= 2
        assert values(follower) == [b"e", b"f"]
        # A mapping keeps what it maps.
        assert [record.value for frame in mapped for record in frame.records()] == [
            *(b"a", b"b", b"c", b"d", b"e", b"f")
        ]


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with RemoteLog(tmp_path) as remote:
        with pytest.raises(DirectoryLocked) as caught:
            DataDirectory(tmp_path)
        assert caught.value.pid == remote.pid
        assert remote.append("still here") == [0]


def test_the_lock_is_free_after_a_kill(tmp_path: Path) -> None:
    remote = RemoteLog(tmp_path)
    remote.append("a")
    remote.kill()
    with DataDirectory(tmp_path) as directory:
        assert values(directory.log("log")) == [b"a"]
        assert directory.log("log").append(b"b") == 1


# The child tells, then waits for a word or the end of all words; the parent appends, tells, and waits.
FORKING = """
import json, os, signal, sys
from quivermq import Closing, DataDirectory

def tell(*words):
    os.write(1, (json.dumps(words) + "\\n").encode())

directory = DataDirectory(sys.argv[1])
log = directory.log("log")
if sys.argv[2] == "dropped":
    del directory
log.append(b"before")
if os.fork() == 0:
    try:
        log.append(b"from the child")
    except Closing as error:
        tell("child", os.getpid(), error.code)
    if sys.stdin.readline():
        tell("alive", os.getpid(), "")
    os._exit(0)
tell("parent", os.getpid(), log.append(b"after"))
signal.pause()
"""


@pytest.mark.parametrize("directory_is", ["kept", "dropped"])
def test_a_fork_leaves_the_log_and_its_lock_to_the_parent(tmp_path: Path, directory_is: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKING, str(tmp_path), directory_is],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = {who: (pid, what) for who, pid, what in map(json.loads, [*_lines(process.stdout, 2)])}
        child, refusal = told["child"]
        assert refusal == "closing"
        assert told["parent"] == (process.pid, 1)
        with pytest.raises(DirectoryLocked) as caught:
            DataDirectory(tmp_path)
        assert caught.value.pid == process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with DataDirectory(tmp_path) as directory:
            assert values(directory.log("log")) == [b"before", b"after"]
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == ["alive", child, ""]


def _lines(stream: Any, count: int) -> Iterator[str]:
    for _ in range(count):
        yield stream.readline()
