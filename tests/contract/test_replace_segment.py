"""Frames in the place of others: the same with an embedded queue and with a broker."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from contract.wrong import mistakes
from support.broker import serving

import quivermq
from quivermq import Message, Replaced
from quivermq.frame import Frame, encode, stamp_of
from quivermq.frame.compaction import REMOVED
from quivermq.frame.rewriting import rewritten
from quivermq.log import LogFollower
from quivermq.settings import StorageSettings


@pytest.fixture
def data(ways: Any) -> Path:
    path: Path = ways.directory("state")
    return path


def filled(mq: Any, **settings: Any) -> Any:
    mq.create_topic("state", **{"segment_messages": 10, "cleanup": "compact", **settings})
    queue = mq.queue("state")
    for start in range(0, 25, 5):
        queue.put_many([Message(b"value %d" % i, key=b"k") for i in range(start, start + 5)])
    return queue


def segment(data: Path, base: int, priority: str = "normal") -> list[Frame]:
    log = LogFollower(data / "topics" / "state" / "p0" / priority, StorageSettings())
    return [frame for frame in log.frames(base) if frame.header.base_offset < base + 10]


def without(frames: list[Frame], *kept: int) -> bytes:
    def keep(_: Frame, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([offset in kept for offset in batch.column("offset").to_pylist()])

    return b"".join(map(bytes, rewritten(frames, keep)))


def stamp(frames: list[Frame]) -> str:
    return stamp_of(frame.header for frame in frames)


def values(messages: Any) -> list[bytes]:
    return [message.value for message in messages]


def test_what_was_taken_out_nobody_sees(mq: Any, data: Path) -> None:
    queue = filled(mq)
    old = segment(data, 0)
    new = without(old, 7)
    done = mq.replace_segment("state", 0, 0, new, expected=stamp(old))
    assert done == Replaced(sum(f.header.frame_bytes for f in old), len(new))
    left = [b"value 7", *(b"value %d" % i for i in range(10, 25))]
    assert values(queue.read()) == left
    assert values(queue.read(start=3, limit=2)) == left[:2]
    assert values(queue.peek(3)) == left[:3]
    assert values(queue.get_many(100)) == left
    assert queue.stats().dead_letters == 0


def test_sending_it_again_does_no_harm(mq: Any, data: Path) -> None:
    queue = filled(mq)
    old = segment(data, 0)
    for _ in range(2):
        done = mq.replace_segment("state", 0, 0, without(old, 7), expected=stamp(old))
    assert done.bytes_before == done.bytes_after
    with pytest.raises(quivermq.Conflict, match="not what they were"):
        mq.replace_segment("state", 0, 0, without(old, 8), expected=stamp(old))
    assert values(queue.read(limit=1)) == [b"value 7"]


def test_another_priority(mq: Any, data: Path) -> None:
    queue = filled(mq)
    for i in range(11):
        queue.put(b"low %d" % i, key=b"k", priority="low")
    old = segment(data, 0, "low")
    mq.replace_segment("state", 0, 0, without(old), expected=stamp(old), priority="low")
    assert values(queue.read(priority="low")) == [b"low 10"]
    assert len(queue.read()) == 25


def test_an_expired_message_is_not_one_that_was_taken_out(mq: Any, data: Path) -> None:
    mq.create_topic("state", segment_messages=2, cleanup="compact", dead_letter_expired=True)
    queue = mq.queue("state")
    queue.put_many([Message(b"gone", key=b"k", ttl=1000), Message(b"stays", key=b"l", ttl=1000)])
    queue.put(b"more")
    old = segment(data, 0)[:1]
    mq.replace_segment("state", 0, 0, without(old, 1), expected=stamp(old))
    assert values(queue.get_many(10)) == [b"stays", b"more"]
    assert queue.dead_letters() == []


def test_a_message_that_failed_and_was_taken_out_is_done_with(mq: Any, data: Path) -> None:
    queue = filled(mq)
    held = queue.get_many(10)
    held[0].nack(delay=0)
    old = segment(data, 0)
    mq.replace_segment("state", 0, 0, without(old, 9), expected=stamp(old))
    held[1].ack()
    held[2].reject("no use")
    held[9].reject("still here")
    assert values(queue.dead_letters()) == [b"value 9"]
    assert values(queue.get_many(100)) == [b"value %d" % i for i in range(10, 25)]
    assert queue.stats().in_flight == 6 + 15


def test_what_is_wrong_is_told(mq: Any, data: Path) -> None:
    filled(mq)
    mq.create_topic("plain", segment_messages=10)
    mq.queue("plain").put_many([Message(b"v", key=b"k")] * 11)
    old = segment(data, 0)
    new, right = without(old), stamp(old)
    wrong = [
        (lambda mq: mq.replace_segment("plain", 0, 0, new, expected=right), quivermq.InvalidRequest),
        (lambda mq: mq.replace_segment("nowhere", 0, 0, new, expected=right), quivermq.TopicNotFound),
        (lambda mq: mq.replace_segment("state", 0, 3, new, expected=right), quivermq.NotFound),
        (lambda mq: mq.replace_segment("state", 0, 20, new, expected=right), quivermq.Conflict),
        (lambda mq: mq.replace_segment("state", 0, 0, new, expected="1-00000000"), quivermq.Conflict),
        (lambda mq: mq.replace_segment("state", 0, 0, b"", expected=right), quivermq.InvalidRequest),
        (lambda mq: mq.replace_segment("state", 0, 0, new[:-1], expected=right), quivermq.InvalidFrame),
        (
            lambda mq: mq.replace_segment("state", 0, 0, new, expected=right, priority="high"),
            quivermq.NotFound,
        ),
        (
            lambda mq: mq.replace_segment("state", 0, 0, new, expected=right, priority="top"),
            quivermq.InvalidRequest,
        ),
    ]
    assert mistakes(wrong, mq) == []
    assert len(mq.queue("state").read()) == 25


def test_nobody_but_compaction_says_that_a_message_was_taken_out(mq: Any) -> None:
    frame = bytes(encode([b"a"], timestamp=1, expires_at=[REMOVED]))
    with pytest.raises(quivermq.InvalidFrame, match="only compaction"):
        mq.queue("state").put_frame(frame)


def test_consumers_of_a_broker_pass_over_it(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        filled(mq)
        old = segment(tmp_path, 0)
        mq.replace_segment("state", 0, 0, without(old, 3), expected=stamp(old))
        with mq.consumer("state", group="readers") as consumer:
            found: list[Any] = []
            while len(found) < 16:
                found += consumer.poll(timeout=5)
        assert [m.offset for m in found] == [3, *range(10, 25)]
