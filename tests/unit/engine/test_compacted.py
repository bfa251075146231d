"""What groups make of a topic of which messages were taken out."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import archive_queue

import quivermq
from quivermq import Message, Settings, StorageSettings
from quivermq.engine import engine_of
from quivermq.frame import Frame, stamp_of
from quivermq.frame.rewriting import rewritten

OS = Settings(storage=StorageSettings(durability="os"))


def filled(mq: Any, **settings: Any) -> Any:
    """Ten messages of two keys, then one in the segment that is being written to."""
    mq.create_topic("state", segment_messages=10, cleanup="compact", **settings)
    queue = mq.queue("state")
    queue.put_many([Message(b"v%d" % i, key=b"k%d" % (i % 2)) for i in range(10)])
    queue.put(b"last", key=b"k0")
    return queue


def keep_only(mq: Any, *kept: int) -> None:
    """What the job does to the first segment."""

    def keep(_: Frame, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([offset in kept for offset in batch.column("offset").to_pylist()])

    log = engine_of(mq).catalog.get("state").topic.partitions[0].logs[1]
    assert log is not None
    old = [frame for frame in log.frames(0) if frame.header.base_offset < 10]
    new = b"".join(map(bytes, rewritten(old, keep)))
    mq.replace_segment("state", 0, 0, new, expected=stamp_of(frame.header for frame in old))


def counter(mq: Any, name: str) -> float:
    return float(sum(s["value"] for s in engine_of(mq).collect_metrics() if s["name"] == name))


def test_a_group_in_the_middle_goes_on(tmp_path: Path) -> None:
    with quivermq.open(tmp_path, OS) as mq:
        queue = filled(mq)
        assert queue.pop().value == b"v0"
        assert queue.peek()[0].value == b"v1"
        keep_only(mq, 9)
        # Also what was read ahead is not handed out any more.
        assert [m.value for m in queue.get_many(10)] == [b"v9", b"last"]
        assert queue.stats().pending == 0
        assert counter(mq, "quiver_messages_expired_total") == 0


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_what_is_in_flight_can_be_settled(tmp_path: Path, ordering: str) -> None:
    with quivermq.open(tmp_path, OS) as mq:
        queue = filled(mq, ordering=ordering)
        held = queue.get_many(2)
        keep_only(mq, 9)
        held[0].ack()
        held[1].nack(delay=0)
        # In order, v9 comes once v1 is out of its way, which the first look finds out.
        got = [*queue.get_many(10), *queue.get_many(10)]
        assert sorted(m.value for m in got) == [b"last", b"v9"]
        stats = queue.stats()
        assert (stats.in_flight, stats.retrying, stats.pending) == (2, 0, 0)


def test_of_what_was_taken_out_nothing_waits_after_a_restart(tmp_path: Path) -> None:
    with quivermq.open(tmp_path, OS) as mq:
        queue = filled(mq, ordering="key", lease_ms=3_600_000)
        assert [m.value for m in queue.get_many(10)] == [b"v0", b"v1"]
        keep_only(mq, 9)
    with quivermq.open(tmp_path, OS) as mq:
        # v0 and v1 are in flight still, but nobody has to wait for them.
        assert [m.value for m in mq.queue("state").get_many(10)] == [b"v9", b"last"]


def test_a_lease_that_runs_out_over_it_leaves_nothing(tmp_path: Path) -> None:
    with quivermq.open(tmp_path, OS) as mq:
        queue = filled(mq, attempts_max=1, dead_letter_expired=True)
        held = queue.get_many(10)
        keep_only(mq, 9)
        queue.nack(held)
        assert [letter.value for letter in queue.dead_letters()] == [b"v9"]
        assert [m.value for m in queue.get_many(10)] == [b"last"]


def test_ids_and_producers_are_known_after_it(tmp_path: Path) -> None:
    from quivermq.frame import Producer, encode

    batch = bytes(encode([b"a", b"b"], keys=[b"k", b"k"], timestamp=1, producer=Producer(7, 0, 0)))
    with quivermq.open(tmp_path, OS) as mq:
        mq.create_topic("state", segment_messages=10, cleanup="compact")
        queue = mq.queue("state")
        first = queue.put_frame(batch, partition=0)
        queue.put_many([Message(b"v%d" % i, key=b"k", dedup_id=f"id {i}") for i in range(8)])
        queue.put(b"last", key=b"k")
        keep_only(mq)
        assert [m.value for m in queue.read()] == [b"last"]
    # Even when everything has to be found in the frames again.
    for file in (tmp_path / "topics" / "state" / "seen").iterdir():
        file.unlink()
    with quivermq.open(tmp_path, OS) as mq:
        queue = mq.queue("state")
        again = queue.put_frame(batch, partition=0)
        assert (again.offset, again.duplicate) == (first.offset, True)
        put = queue.put(b"v3", key=b"k", dedup_id="id 3")
        assert (put.offset, put.duplicate) == (5, True)


@pytest.mark.parametrize("kept", [(3, 6, 9), (0, 1, 9), (4, 5)])
def test_a_group_passes_over_it_in_the_archive_too(tmp_path: Path, kept: tuple[int, ...]) -> None:
    """The archive has no rows for it, so that offsets have holes there."""
    with quivermq.open(tmp_path, OS) as mq:
        queue = filled(mq)
        held = queue.get_many(11)
        keep_only(mq, *kept)
        archive_queue(tmp_path, tmp_path / "archive", "state", end=10)
        mq.use_archive("archive")
        queue.ack(held)
        assert mq.compact(archived=True).messages == 10
        late = mq.queue("state", "late")
        taken = late.get_many(20)
        assert [message.offset for message in taken] == [*kept, 10]
        late.nack(taken, delay=0)
        assert [message.offset for message in late.get_many(20)] == [*kept, 10]
        # One that was held, and is gone, is not waited for.
        queue.seek(offset=2)
        assert [message.offset for message in queue.get_many(20)] == [*(n for n in kept if n > 1), 10]


@pytest.mark.parametrize("kept", [(0, 1), ()])
def test_a_group_passes_a_hole_before_which_nothing_is_left(tmp_path: Path, kept: tuple[int, ...]) -> None:
    with quivermq.open(tmp_path, OS) as mq:
        queue = filled(mq, retention_force=True)
        keep_only(mq, *kept)
        archive_queue(tmp_path, tmp_path / "archive", "state", end=5)
        mq.use_archive("archive")
        queue.put(b"v11", key=b"k1")
        engine_of(mq).catalog.get("state").topic.partitions[0].log(1).retain(finished=10)
        late = mq.queue("state", "late")
        assert [message.offset for _ in range(3) for message in late.get_many(2)] == [*kept, 10, 11]
