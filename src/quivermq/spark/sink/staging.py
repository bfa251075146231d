"""Frames that wait in files for their batch to be committed, when only the driver can have the queue open.

    spark/<write>/<batch>/<task>-<second>-<random>.frames   frames, back to back, by an executor
                 /<batch>.json                              the manifest: what the batch consists of
                 /<batch>.applied                           so many frames of it are in the topics
                 /applied                                   the last batch that is in the topics

The second is when the file was begun, in unix time: it tells how old a file is that nobody came back for.
Nothing of it looks like a log, so nobody else takes notice of it.
"""

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from quivermq.clock import SteadyClock, SystemClock
from quivermq.disk import Disk
from quivermq.errors import NotFound
from quivermq.frame import Producer
from quivermq.model.lanes import Lane, Priority
from quivermq.model.names import check_topic_name
from quivermq.model.topic_settings import TopicSettings
from quivermq.reading.reader import MessageReader
from quivermq.sealed import open_seal, sealed
from quivermq.settings import StorageSettings
from quivermq.spark.sink.frames import FrameTarget, TopicFrames, by_topic
from quivermq.spark.sink.options import SinkOptions, TaskPart, Throttle
from quivermq.spark.sink.rows import rows_of
from quivermq.topic.rules import TopicRules

STAGING = "spark"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}", re.ASCII)
# A topic remembers this many batches of a producer, and only those may be applied again.
_FRAMES_PER_PRODUCER = 64


class StagedFrame(NamedTuple):
    """Where a frame is to go, and where it lies in its file."""

    topic: str
    partition: int
    priority: Priority
    position: int
    length: int
    messages: int

    @property
    def lane(self) -> Lane:
        return Lane(self.topic, self.partition, self.priority)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """What one task has staged: its name, below the directory of its batch, and its frames."""

    name: str
    frames: list[StagedFrame]


def directory_of(root: Path, write: str) -> Path:
    """Where the files of a write are. Its id may be anything, and becomes a name here."""
    is_name = _NAME.fullmatch(write)
    return root / STAGING / (write if is_name else blake2b(write.encode(), digest_size=16).hexdigest())


def stage(
    root: Path, batches: Iterator[pa.RecordBatch], part: TaskPart, options: SinkOptions, disk: Disk
) -> StagedFile:
    """Write the rows of a task to a file of its own below the staging root, durably."""
    directory = directory_of(root, part.write) / str(part.batch)
    disk.make_directory(directory)
    name = f"{part.task}-{SystemClock().now_us() // 1_000_000}-{secrets.token_hex(8)}.frames"
    file = disk.create(directory / name)
    try:
        frames: list[StagedFrame] = []
        for topic, target, frame, messages in _frames(batches, part, options):
            frames.append(StagedFrame(topic, *target, file.size(), len(frame), messages))
            file.append([frame])
        file.sync()
    finally:
        file.close()
    disk.sync_directory(directory)
    return StagedFile(name, frames)


_Encoded = tuple[str, FrameTarget, bytes, int]


def _frames(batches: Iterator[pa.RecordBatch], part: TaskPart, options: SinkOptions) -> Iterator[_Encoded]:
    topics: dict[str, _Topic] = {}
    for batch in batches:
        for name, rows in by_topic(rows_of(batch), options.topic):
            if name not in topics:
                topics[name] = _Topic(name, part, options)
            yield from starmap(topics[name].encoded, topics[name].frames.add(rows))
    for topic in topics.values():
        yield from starmap(topic.encoded, topic.frames.finish())


def _settings(reader: MessageReader, topic: str) -> TopicSettings:
    check_topic_name(topic)
    try:
        return reader.settings(topic)
    except NotFound:
        # It is made when the batch is committed.
        return TopicSettings.make({}, StorageSettings())


class _Topic:
    """The frames of a task for one topic, as they are staged."""

    def __init__(self, name: str, part: TaskPart, options: SinkOptions) -> None:
        settings = _settings(options.reader, name)
        limits = settings.storage(StorageSettings())
        usual = min(options.batch_messages, limits.frame_messages_max)
        self.frames = TopicFrames(
            part, options, settings, Throttle(options.rate_limit).frame_messages(usual)
        )
        self._name = name
        self._part = part
        self._rules = TopicRules(settings, limits, SteadyClock(SystemClock()))
        self._counts: Counter[FrameTarget] = Counter()
        self._sequences: Counter[tuple[FrameTarget, int]] = Counter()

    def encoded(self, target: FrameTarget, rows: pa.RecordBatch) -> _Encoded:
        number = self._counts[target] // _FRAMES_PER_PRODUCER
        self._counts[target] += 1
        sequence = self._sequences[target, number]
        self._sequences[target, number] += len(rows)
        frame = self.frames.encode(rows, Producer(self._part.producer_id(self._name, number), 0, sequence))
        # Here, where it fails the task: once the batch is committed it could only be stuck.
        self._rules.check_frame(frame, target.partition)
        return self._name, target, frame, len(rows)


def packed_manifest(files: list[StagedFile]) -> bytes:
    """A manifest as it is stored."""
    return sealed({"version": 1, "files": [[file.name, file.frames] for file in files]}, indent=None)


def unpacked_manifest(data: bytes) -> list[StagedFile]:
    """The files of a manifest. Raises ValueError for one that was damaged."""
    document = json.loads(data)
    open_seal(document, ("version", "files"))
    files = document["files"]
    return [StagedFile(name, [StagedFrame(*frame) for frame in frames]) for name, frames in files]
