"""Only the latest message of each key stays: against a model, in a directory and beside a live broker."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.archives import archive_queue
from support.broker import serving
from support.command_inside import quiver
from support.spark_deaths import Death
from support.spark_doors import Doors
from support.spark_lives import Lives, Work

import quivermq
from quivermq import Message, Settings, StorageSettings
from quivermq.model.messages import StoredMessage
from quivermq.spark.jobs.compact import CompactedTopic, compact

TOPIC = "state"
OS = Settings(storage=StorageSettings(durability="os"))
LANES = [(partition, priority) for partition in (0, 1) for priority in ("high", "normal", "low")]


def create(mq: Any, topic: str = TOPIC, **settings: Any) -> Any:
    mq.create_topic(topic, **{"partitions": 2, "segment_messages": 40, "cleanup": "compact", **settings})
    return mq.queue(topic)


def fill(queue: Any, count: int, rng: random.Random, keys: int = 12) -> None:
    """Frames of all sizes, some with ids; keys that come again, tombstones, messages without a key."""
    for _ in range(count // 10):
        messages = [
            Message(
                b"" if rng.random() < 0.15 else rng.randbytes(rng.randint(1, 60)),
                key=None if rng.random() < 0.1 else b"key %d" % rng.randint(1, keys),
                headers={"h": rng.randbytes(4)} if rng.random() < 0.2 else None,
                priority=rng.choice(["normal", "normal", "low"]),
                dedup_id=rng.randbytes(8).hex() if rng.random() < 0.05 else None,
                partition=rng.randint(0, 1),
            )
            for _ in range(rng.randint(1, 20))
        ]
        queue.put_many(messages)


def everything(queue: Any) -> dict[tuple[int, str], list[StoredMessage]]:
    return {lane: queue.read(lane[0], limit=10_000, priority=lane[1]) for lane in LANES}


def active_bases(path: Path) -> dict[tuple[int, str], int]:
    """Where the segment begins that is being written to: told by the names of the files."""
    found = {}
    for partition, priority in LANES:
        names = (path / "topics" / TOPIC / f"p{partition}" / priority).glob("*.log")
        found[partition, priority] = max((int(name.stem) for name in names), default=0)
    return found


def compacted_model(
    messages: list[StoredMessage], active: int, *, without_tombstones: bool = False
) -> list[StoredMessage]:
    """What has to be left of a lane."""
    latest = {message.key: message.offset for message in messages}
    first = {message.key: message.offset for message in reversed(messages)}
    return [
        m
        for m in messages
        if m.offset >= active
        or m.key is None
        or (
            latest[m.key] == m.offset
            and not (without_tombstones and not m.value and first[m.key] == m.offset)
        )
    ]


def view(messages: list[StoredMessage]) -> dict[bytes | None, bytes]:
    """What somebody knows who has read all of it and keeps the last value of each key."""
    known = {message.key: message.value for message in messages if message.key is not None}
    return {key: value for key, value in known.items() if value}


@pytest.fixture
def rng() -> random.Random:
    return random.Random(11)


def test_a_directory_against_a_model(spark: SparkSession, tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "data"
    with quivermq.open(path, OS) as mq:
        queue = create(mq)
        create(mq, "other", cleanup="delete").put_many([Message(b"x", key=b"k")] * 100)
        fill(queue, 600, rng)
        before = everything(queue)
    active = active_bases(path)
    planned = compact(str(path), spark=spark, dry_run=True)
    done = compact(str(path), spark=spark)
    assert [topic.topic for topic in done.topics] == [TOPIC]
    assert planned.topics == done.topics
    expected = {lane: compacted_model(found, active[lane]) for lane, found in before.items()}
    with quivermq.open(path, OS) as mq:
        after = everything(mq.queue(TOPIC))
        assert after == expected
        assert {lane: view(found) for lane, found in after.items()} == {
            lane: view(found) for lane, found in before.items()
        }
        # Nobody's offset changed, and consumers get exactly what is left.
        got = mq.queue(TOPIC, "late").get_many(10_000)
        assert sorted(m.offset for m in got) == sorted(m.offset for f in expected.values() for m in f)
        assert len(mq.queue("other").read(limit=1000)) + len(mq.queue("other").read(1, limit=1000)) == 100
    topic = done.topics[0]
    gone = sum(map(len, before.values())) - sum(map(len, after.values()))
    assert topic.messages_before - topic.messages_after == gone > 300
    assert topic.bytes_after < topic.bytes_before / 2
    assert 0 < topic.replaced <= topic.segments
    assert quivermq.verify(path).is_sound
    # What is done is done.
    again = compact(str(path), spark=spark).topics[0]
    assert (again.replaced, again.messages_before) == (0, topic.messages_after)
    assert again.bytes_before == again.bytes_after == topic.bytes_after
    # Old tombstones go once nothing of their key is before them.
    compact(str(path), spark=spark, tombstone_age_ms=0)
    with quivermq.open(path, OS) as mq:
        last = everything(mq.queue(TOPIC))
    assert last == {
        lane: compacted_model(found, active[lane], without_tombstones=True)
        for lane, found in expected.items()
    }
    assert sum(map(len, last.values())) < sum(map(len, expected.values()))
    assert not (path / "pipelines" / "compact" / TOPIC).exists()


def test_a_tombstone_stays_while_the_archive_may_have_its_key(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with quivermq.open(path, OS) as mq:
        queue = create(mq, partitions=1, segment_messages=2)
        for key, value in [(b"gone", b"v"), (b"a", b"1"), (b"gone", b""), (b"b", b"2"), (b"c", b"3")]:
            queue.put(value, key=key)
        archive_queue(path, path / "archive", TOPIC, end=2)
        mq.use_archive("archive")
        assert mq.compact(archived=True).messages == 2
    compact(str(path), spark=spark, tombstone_age_ms=0)
    with quivermq.open(path, OS) as mq:
        assert view(mq.queue(TOPIC).read(start=0)) == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_a_live_broker_goes_on_serving(spark: SparkSession, tmp_path: Path, rng: random.Random) -> None:
    with serving(tmp_path / "data", settings=OS) as broker, quivermq.connect(broker.url) as mq:
        queue = create(mq)
        fill(queue, 400, rng)
        # A group in the middle of the topic, with messages in flight and one that waits for its retry.
        middle = mq.queue(TOPIC, "middle")
        held = middle.get_many(60)
        middle.ack(held[:20])
        held[20].nack(delay=0)
        seen_before = {(m.partition, m.priority, m.offset) for m in held}
        before = everything(queue)
        active = active_bases(tmp_path / "data")
        fed: list[quivermq.Put] = []

        def progress(description: str, done: float, total: float | None = None) -> None:
            # While the job runs, messages come in.
            fed.append(queue.put(b"new %d" % len(fed), key=b"key 1", partition=0))

        progress("before", 0)
        done = compact(server=broker.url, spark=spark, progress=progress)
        assert done.topics[0].busy == 0
        assert done.topics[0].replaced > 0
        after = everything(queue)
        # Of what was there, at least what is superseded by now may be gone, and what was then has to be.
        later = active_bases(tmp_path / "data")
        for lane, found in before.items():
            end = found[-1].offset + 1 if found else 0
            added = [m for m in after[lane] if m.offset >= end]
            left = {m.offset for m in after[lane] if m.offset < end}
            assert {m.offset for m in compacted_model([*found, *added], later[lane])} - left <= {
                m.offset for m in added
            }
            assert left <= {m.offset for m in compacted_model(found, active[lane])}
            assert view(after[lane]) == view([*found, *added])
            assert [m for m in after[lane] if m.offset < end] == [m for m in found if m.offset in left]
        assert sum(len(found) for found in after.values()) < sum(len(found) for found in before.values())
        # In flight is in flight: it can be settled, whatever became of it.
        middle.ack(held[21:50])
        held[50].reject("bad")
        rest = []
        while batch := middle.get_many(500):
            rest += batch
            middle.ack(batch)
        places = {(m.partition, m.priority, m.offset) for m in rest}
        visible = {(*lane, m.offset) for lane, found in after.items() for m in found}
        assert places <= visible
        again = (held[20].partition, held[20].priority, held[20].offset)
        assert {place for place in visible if place not in seen_before} <= places
        assert (again in places) == (again in visible)
        letters = queue.dead_letters()
        there = (held[50].partition, held[50].priority, held[50].offset) in visible
        assert [letter.value for letter in letters] == ([held[50].value] if there else [])
        assert mq.verify().is_sound


def test_segments_that_are_hardly_dirty_are_left_alone(
    spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    path = tmp_path / "data"
    with quivermq.open(path, OS) as mq:
        queue = create(mq, partitions=1)
        queue.put_many([Message(b"v%d" % i, key=b"k%d" % i) for i in range(40)])
        queue.put_many([Message(b"w%d" % i, key=b"k%d" % (i % 10)) for i in range(40)])
        queue.put_many([Message(b"last", key=b"k0")])
    [topic] = compact(str(path), spark=spark, min_dirty_ratio=0.5).topics
    # Of the first segment a quarter would go, of the second three quarters.
    assert (topic.segments, topic.replaced, topic.messages_before, topic.messages_after) == (2, 1, 80, 49)
    with quivermq.open(path, OS) as mq:
        assert len(mq.queue(TOPIC).read(limit=1000)) == 50


def test_the_command(spark: SparkSession, tmp_path: Path) -> None:
    with quivermq.open(tmp_path, OS) as mq:
        create(mq, partitions=1).put_many([Message(b"v%d" % i, key=b"k") for i in range(40)])
        mq.queue(TOPIC).put(b"last", key=b"k")
    words = ("pipeline", "compact", "--data", tmp_path)
    ran = quiver(*words, "--dry-run")
    assert ran.code == 0, ran.err
    assert TOPIC in ran.text
    [told] = json.loads(quiver(*words, TOPIC, "--tombstone-age", "1h", "--json").out)["topics"]
    assert (told["messages_before"], told["messages_after"], told["replaced"]) == (40, 0, 1)
    with quivermq.open(tmp_path, OS) as mq:
        assert [m.value for m in mq.queue(TOPIC).read()] == [b"last"]
    assert quiver(*words, "nowhere").code == quivermq.TopicNotFound.exit_code
    assert quiver(*words, "--tombstone-age", "soon").code == quivermq.InvalidRequest.exit_code


def test_topics_are_chosen_and_mistakes_told(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with quivermq.open(path, OS) as mq:
        create(mq, "a.state")
        create(mq, "b.state")
        create(mq, "b.log", cleanup="delete")
        # Somebody has it open, though here it is this very process.
        with pytest.raises(quivermq.DirectoryLocked, match="--server"):
            compact(str(path), spark=spark)
    assert compact(str(path), topics="b.*", spark=spark).topics == (CompactedTopic("b.state"),)
    assert [t.topic for t in compact(str(path), spark=spark).topics] == ["a.state", "b.state"]
    wrong: list[dict[str, Any]] = [
        {"topics": ["b.log"]},
        {"topics": []},
        {"tombstone_age_ms": -1},
        {"min_dirty_ratio": 1.5},
        {"server": "http://127.0.0.1:1"},
    ]
    for arguments in wrong:
        with pytest.raises(quivermq.InvalidRequest):
            compact(str(path), spark=spark, **arguments)
    with pytest.raises(quivermq.TopicNotFound):
        compact(str(path), topics="c", spark=spark)
    with pytest.raises(quivermq.NotFound):
        compact(str(tmp_path / "nowhere"), spark=spark)
    assert not (tmp_path / "nowhere").exists()


REPLACE = r"PUT /v1/topics/state/partitions/\d/segments/\d+"


def job(*place: str | Path) -> Work:
    return "quiver", {"words": ["pipeline", "compact", *map(str, place)]}


def test_a_job_that_was_killed_is_done_by_the_next_one(
    lives: Lives, spark: SparkSession, connect_server: str, tmp_path: Path, rng: random.Random
) -> None:
    path = tmp_path / "data"
    with quivermq.open(path, OS) as mq:
        queue = create(mq)
        fill(queue, 300, rng)
        before = everything(queue)
    active = active_bases(path)
    # The second segment has just been put in place.
    second = Death("rename", "after", f"*/topics/{TOPIC}/*.log", 2)
    lives.die(job("--data", path), at=second, server=connect_server)
    # The others wait in the directory of the job.
    assert any((path / "pipelines" / "compact" / TOPIC).iterdir())
    with quivermq.open(path, OS) as mq:
        between = everything(mq.queue(TOPIC))
    expected = {lane: compacted_model(found, active[lane]) for lane, found in before.items()}
    assert (
        sum(map(len, expected.values())) < sum(map(len, between.values())) < sum(map(len, before.values()))
    )
    assert {lane: view(found) for lane, found in between.items()} == {
        lane: view(found) for lane, found in before.items()
    }
    compact(str(path), spark=spark)
    with quivermq.open(path, OS) as mq:
        assert everything(mq.queue(TOPIC)) == expected
    assert not (path / "pipelines" / "compact" / TOPIC).exists()


def test_a_job_that_was_killed_beside_a_broker(
    lives: Lives, spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    with (
        serving(tmp_path / "data", settings=OS) as broker,
        Doors(broker.engine, lives.kill) as doors,
        quivermq.connect(broker.url) as mq,
    ):
        queue = create(mq)
        fill(queue, 300, rng)
        before = everything(queue)
        active = active_bases(tmp_path / "data")
        # The segment is replaced, and nobody is told.
        door = doors.open(REPLACE, "after", 2)
        lives.die(job("--server", door.url), at=door)
        # What its executors still had in hand may go on for a moment: then the next run finds it changed.
        while any(t.busy or t.replaced for t in compact(server=broker.url, spark=spark).topics):
            pass
        expected = {lane: compacted_model(found, active[lane]) for lane, found in before.items()}
        assert everything(queue) == expected
        assert mq.verify().is_sound
