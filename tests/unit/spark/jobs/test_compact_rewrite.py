"""What executors do to a segment, without Spark: keys, survivors, and pieces that a broker can take."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker import serving

import quivermq
from quivermq import Message, Producer, Settings, StorageSettings
from quivermq.archive.writing import Rows
from quivermq.frame import encode
from quivermq.model.lanes import Lane
from quivermq.reading.batches import record_batches
from quivermq.reading.broker import BrokerReader
from quivermq.reading.reader import MessageReader, SegmentPart, reader_of
from quivermq.spark.jobs import compact_work
from quivermq.spark.jobs.compact_work import (
    STAMP,
    Work,
    apply,
    keys_of,
    rewrite,
    segments_of,
    send,
    stage,
    staged,
    stamp,
)

OS = Settings(storage=StorageSettings(durability="os"))
LANE = Lane("state", 0, "normal")


def filled(path: Path, count: int = 120, **settings: Any) -> list[Message]:
    rng = random.Random(3)
    messages = [
        Message(rng.randbytes(rng.randint(0, 50)), key=rng.choice([None, b"a", b"b", b"c", b"%d" % i]))
        for i in range(count)
    ]
    with quivermq.open(path, OS) as mq:
        mq.create_topic("state", cleanup="compact", segment_messages=50, **settings)
        queue, sent = mq.queue("state"), 0
        while sent < count:
            size = rng.randint(1, 12)
            queue.put_many(messages[sent : sent + size])
            sent += size
    return messages


def survivors_of(place: MessageReader, parts: list[SegmentPart]) -> set[int]:
    """What Spark makes of the keys, in plain Python."""
    latest: dict[bytes, int] = {}
    for number, part in enumerate(parts):
        for batch in keys_of(place, number, (part, 0)):
            for row in batch.to_pylist():
                if row["lane"] != STAMP:
                    latest[row["key"]] = max(latest.get(row["key"], -1), row["offset"])
    return set(latest.values())


def test_the_latest_of_each_key(tmp_path: Path) -> None:
    messages = filled(tmp_path)
    place = reader_of(str(tmp_path))
    parts = place.segments("state")
    assert [part.is_sealed for part in parts] == [True] * (len(parts) - 1) + [False]
    last = {m.key: offset for offset, m in enumerate(messages) if m.key is not None}
    assert survivors_of(place, parts) == set(last.values())
    rows = [row for batch in keys_of(place, 0, (parts[0], 7)) for row in batch.to_pylist()]
    [stamped] = [row for row in rows if row["lane"] == STAMP]
    assert (stamped["offset"], stamped["key"][:3]) == (0, b"0: ")
    inside = messages[: parts[0].end]
    for row in rows:
        if row["lane"] == 7:
            offsets = [offset for offset, m in enumerate(inside) if m.key == row["key"]]
            assert (row["first"], row["offset"]) == (offsets[0], offsets[-1])
            assert row["is_tombstone"] == (not inside[offsets[-1]].value)


def test_survivors_find_their_segments() -> None:
    bounds = {0: [(0, 10, 0), (10, 20, 1)], 1: [(5, 9, 2)]}
    rows = pa.record_batch(
        {
            "lane": pa.array([0, 1, 0, 0, 1, STAMP, 5], pa.int32()),
            "offset": pa.array([19, 5, 3, 20, 9, 2, 1], pa.int64()),
            "key": pa.array([b"k"] * 5 + [b"stamp", b"k"], pa.binary()),
        }
    )
    found = [tuple(row.values()) for batch in segments_of(bounds)([rows]) for row in batch.to_pylist()]
    assert sorted(found, key=str) == sorted(
        [(0, 3, None), (1, 19, None), (2, 5, None), (2, None, b"stamp")], key=str
    )


@pytest.mark.parametrize("limit", [1, 300, 10**9])
def test_pieces_of_every_size_lead_to_the_same(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = filled(tmp_path / "data")
    monkeypatch.setattr(compact_work, "_UPLOAD_BYTES", limit)
    place = reader_of(str(tmp_path / "data"))
    parts = place.segments("state")
    survivors = pa.array(sorted(survivors_of(place, parts)), pa.int64())
    counts = []
    with quivermq.open(tmp_path / "data", OS) as mq:
        for number, part in enumerate(part for part in parts if part.is_sealed):
            done = rewrite(list(place.frames(*part[:3])), survivors)
            (tmp_path / "stage").mkdir(exist_ok=True)
            stage(place, tmp_path / "stage", number, part, done.pieces)
            assert list(staged(place.disk, tmp_path / "stage", number)) == done.pieces
            counts.append(len(done.pieces))
            apply(mq, part, done.pieces)
            again = rewrite(list(place.frames(*part[:3])), survivors)
            assert again.pieces == []
            assert (again.bytes_before, again.messages_before) == (done.bytes_after, done.messages_after)
        left = {m.offset: m for m in mq.queue("state").read(limit=1000)}
    kept = set(survivors.to_pylist()) | {o for o, m in enumerate(messages) if m.key is None}
    assert set(left) == kept | set(range(parts[-1].start, len(messages)))
    assert all(left[o].value == messages[o].value for o in left)
    assert max(counts) == 1 if limit == 10**9 else max(counts) > 1
    # Whoever reads in bulk sees the same: Spark, and the archive.
    found = [o for b in record_batches(place, LANE, 0, len(messages), ["offset"]) for o in b[0].to_pylist()]
    assert found == sorted(left)
    rows = Rows(Lane("t", 0, "normal"), 0, len(messages), None)
    for frame in place.frames(LANE, 0, len(messages)):
        rows.add(frame)
    table = rows.take()
    assert table is not None
    assert table.column("offset").to_pylist() == sorted(left)


def test_a_broker_with_lower_limits_gets_frames_that_do_not_grow(tmp_path: Path) -> None:
    """Nobody tells what its limits are; and what it could not read any more would be lost."""
    limit = 64 * 1024
    limits = StorageSettings(
        durability="os",
        message_bytes_max=1024,
        batch_bytes=1024,
        frame_bytes_max=limit,
        frame_raw_bytes_max=limit,
    )
    with serving(tmp_path, settings=Settings(storage=limits)) as broker:
        mq = broker.engine
        mq.create_topic("state", cleanup="compact", segment_messages=6000)
        # Nearly as large as may be, so that marks for all of them are too much.
        queue = mq.queue("state")
        for start in (0, 3000):
            values = [b"%d" % number for number in range(start, start + 3000)]
            keys = [b"%d" % (number % 5999) for number in range(start, start + 3000)]
            frame = encode(values, keys=keys, timestamp=1, producer=Producer(7, 0, start))
            queue.put_frame(bytes(frame), partition=0)
        queue.put(b"last", key=b"last")
        place = BrokerReader(broker.url)
        try:
            parts = place.segments("state")
            frames = list(place.frames(*parts[0][:3]))
            assert all(f.header.raw_bytes + 8 * 3000 > limit > f.header.raw_bytes for f in frames)
            stamps = [stamp(0, (frame.header for frame in frames))]
            state, done = compact_work._run(
                Work(place, parts, 0.0, partial(send, place)),
                0,
                pa.array(range(1, 6000), pa.int64()),
                stamps,
            )
        finally:
            place.close()
        assert (state, done is not None and done.messages_after) == ("kept", 6000)
        assert len(queue.read(limit=10_000)) == 6001
