"""kill -9 of a broker while a segment of it is replaced, and of whoever archives beside it."""

import threading
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from support.archives import archive_queue
from support.fault_record import MakeTrial

from quivermq.archive import Archive
from quivermq.chaos.cases.kills import check_files
from quivermq.chaos.processes import BrokerProcess, broker
from quivermq.chaos.trial import Trial, opened_to_look
from quivermq.disk import SystemDisk
from quivermq.errors import Closing, Conflict, Unreachable
from quivermq.frame import Frame, stamp_of
from quivermq.frame.rewriting import rewritten
from quivermq.log import LogFollower
from quivermq.model.lanes import Lane
from quivermq.model.messages import Message
from quivermq.settings import StorageSettings
from quivermq.topic.stored import load_topic

TOPIC = "state"
MESSAGES, PER_SEGMENT = 60, 10

pytestmark = pytest.mark.fault("interrupted", "broker")


def fill(mq: Any) -> None:
    mq.create_topic(TOPIC, segment_messages=PER_SEGMENT, cleanup="compact")
    for start in range(0, MESSAGES, 5):
        messages = [Message(b"value %d" % n, key=b"k%d" % (n % 7)) for n in range(start, start + 5)]
        mq.queue(TOPIC).put_many(messages)


def log_of(path: Path) -> LogFollower:
    return LogFollower(path / "topics" / TOPIC / "p0" / "normal", StorageSettings())


def compact(process: BrokerProcess, wanted: set[int]) -> None:
    """Keep only the wanted offsets of every segment that is full, one segment after the other."""
    mq = process.connect()

    def keep(_: Frame, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([offset in wanted for offset in batch.column("offset").to_pylist()])

    with suppress(Unreachable, Closing):
        for base in range(0, MESSAGES - PER_SEGMENT, PER_SEGMENT):
            frames = log_of(process.path).frames(base)
            old = [frame for frame in frames if frame.header.base_offset < base + PER_SEGMENT]
            new = b"".join(map(bytes, rewritten(old, keep)))
            # What an earlier life did may have been done, though nobody was told.
            with suppress(Conflict):
                mq.replace_segment(TOPIC, 0, base, new, expected=stamp_of(frame.header for frame in old))


def check_kept(trial: Trial, states: list[set[int]]) -> None:
    """Each segment is as some life found it or left it, as a whole; everything is in order."""
    with opened_to_look(trial.data) as engine:
        found = engine.queue(TOPIC).read(0, 0, 1000)
        assert [(r.offset, r.value) for r in found] == [(r.offset, b"value %d" % r.offset) for r in found]
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert states[-1] <= set(offsets)
        for base in range(0, MESSAGES, PER_SEGMENT):
            everything = set(range(base, base + PER_SEGMENT))
            assert everything & set(offsets) in [everything & state for state in states]
        assert engine.verify().is_sound
    check_files(trial.data)


def test_compaction(make_trial: MakeTrial) -> None:
    trial = make_trial(12, in_memory=True)
    rng, states = Random(trial.seed), [set(range(MESSAGES))]
    with trial.process_pool() as pool, broker(pool, trial.data) as process:
        fill(process.connect())
        for _ in range(trial.cycles):
            states.append(states[-1] - set(rng.sample(range(MESSAGES - PER_SEGMENT), 3)))
            client = threading.Thread(target=compact, args=(process, states[-1]))
            client.start()
            client.join(rng.uniform(0, 0.06))
            process.kill()
            client.join()
            trial.tried += 1
            check_kept(trial, states)
            process.start()


def test_archiving_beside_a_broker(make_trial: MakeTrial) -> None:
    """The broker dies while it is archived, and later serves archived and live offsets as one range."""
    trial = make_trial(3)
    archive, rng = trial.directory / "archive", Random(trial.seed)
    with trial.process_pool() as pool, broker(pool, trial.data) as process:
        fill(process.connect())
        process.connect().alter_topic(TOPIC, cleanup="delete")
        for end in [min(20 + 10 * cycle, MESSAGES) for cycle in range(trial.cycles)]:
            job = threading.Thread(
                target=archive_queue, args=(trial.data, archive, TOPIC), kwargs={"end": end}
            )
            job.start()
            job.join(rng.uniform(0, 0.05))
            process.kill()
            job.join()
            process.start()
            trial.tried += 1
            assert archived(trial.data, archive) == [b"value %d" % n for n in range(end)]
        mq = process.connect()
        mq.use_archive(archive)
        mq.compact(archived=True)
        assert [r.value for r in mq.queue(TOPIC).read(0, 0, 1000)] == [
            b"value %d" % n for n in range(MESSAGES)
        ]
        process.stop()


def archived(data: Path, directory: Path) -> list[bytes]:
    stored = load_topic(SystemDisk(), data / "topics" / TOPIC)
    assert stored is not None
    found = Archive(directory).topic(TOPIC, stored.created_us)
    assert found is not None
    lane = Lane(TOPIC, 0, "normal")
    return [record.value for record in found.records(lane, 0, found.lane(lane).end)]
