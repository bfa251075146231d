"""The rows of a task by where they go, gathered until they are enough for a frame."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quivermq.clock import SystemClock
from quivermq.errors import InvalidRequest
from quivermq.frame import Producer
from quivermq.model.lanes import PRIORITIES, Priority
from quivermq.model.topic_settings import TopicSettings
from quivermq.spark.sink.options import SinkOptions, TaskPart
from quivermq.spark.sink.rows import ANY_PARTITION, Numbers, encode_rows, lanes_of, partitions_of

FRAME_BYTES = 4 * 1024 * 1024
# Of all lanes together; a task has many where there are many partitions.
_GATHERED_BYTES_MAX = 64 * 1024 * 1024


class FrameTarget(NamedTuple):
    """A lane of a topic; the partition is ANY_PARTITION while it does not matter."""

    partition: int
    priority: Priority


def by_topic(rows: pa.RecordBatch, only: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, or all for the only one. Raises InvalidRequest for a row that has none."""
    if only is not None:
        yield only, rows.drop_columns(["topic"]) if "topic" in rows.schema.names else rows
        return
    topics = rows.column("topic")
    if topics.null_count:
        raise InvalidRequest("a row has no topic: fill the column topic, or give the option `topic`")
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    for code, part in _sorted_parts(rows.drop_columns(["topic"]), codes):
        yield encoded.dictionary[code].as_py(), part


def by_lane(rows: pa.RecordBatch, partitions: int) -> Iterator[tuple[FrameTarget, pa.RecordBatch]]:
    """The rows of one topic by where they go, in their order. Raises InvalidRequest."""
    # One more, for those that may go anywhere.
    codes = lanes_of(rows) * (partitions + 1) + partitions_of(rows, partitions) + 1
    names = [name for name in rows.schema.names if name not in ("partition", "priority")]
    for code, part in _sorted_parts(rows.select(names), codes):
        lane, partition = divmod(code, partitions + 1)
        yield FrameTarget(partition - 1, PRIORITIES[lane]), part


def _sorted_parts(rows: pa.RecordBatch, codes: Numbers) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each code, in their order. Those of one code only are not copied."""
    if not len(codes):
        return
    if (codes == codes[0]).all():
        yield int(codes[0]), rows
        return
    order = np.argsort(codes, kind="stable")
    taken, codes = rows.take(pa.array(order)), codes[order]
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, end in pairwise(edges):
        yield int(codes[start]), taken.slice(start, end - start)


class RowGathering:
    """What is gathered of one topic."""

    def __init__(self, frame_messages: int, frame_bytes: int = FRAME_BYTES) -> None:
        self._messages = frame_messages
        self._bytes = frame_bytes
        self._parts: dict[FrameTarget, _Part] = {}
        self._gathered_bytes = 0

    def add(
        self, target: FrameTarget, rows: pa.RecordBatch
    ) -> Iterator[tuple[FrameTarget, pa.RecordBatch]]:
        """Take rows in, and hand out what is enough for a frame."""
        for piece in _pieces(rows, self._messages, self._bytes):
            part, size = self._parts.setdefault(target, _Part()), piece.nbytes
            if part.rows and (part.rows + len(piece) > self._messages or part.bytes + size > self._bytes):
                yield from self._taken(target)
                part = self._parts.setdefault(target, _Part())
            part.add(piece, size)
            self._gathered_bytes += size
            if part.rows >= self._messages:
                yield from self._taken(target)
        while self._gathered_bytes > _GATHERED_BYTES_MAX:
            yield from self._taken(max(self._parts, key=lambda one: self._parts[one].bytes))

    def finish(self) -> Iterator[tuple[FrameTarget, pa.RecordBatch]]:
        """Hand out what is left."""
        for target in list(self._parts):
            yield from self._taken(target)

    def _taken(self, target: FrameTarget) -> Iterator[tuple[FrameTarget, pa.RecordBatch]]:
        part = self._parts.pop(target)
        self._gathered_bytes -= part.bytes
        yield target, part.pieces[0] if len(part.pieces) == 1 else pa.concat_batches(part.pieces)


class _Part:
    __slots__ = ("bytes", "pieces", "rows")

    def __init__(self) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, piece: pa.RecordBatch, size_bytes: int) -> None:
        self.pieces.append(piece)
        self.rows += len(piece)
        self.bytes += size_bytes


def _pieces(rows: pa.RecordBatch, messages_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The rows in pieces that fit into a frame each; one row is never cut."""
    for start in range(0, len(rows), messages_max):
        yield from _halved(rows.slice(start, messages_max), bytes_max)


def _halved(rows: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if len(rows) == 1 or rows.nbytes <= bytes_max:
        yield rows
        return
    middle = len(rows) // 2
    yield from _halved(rows.slice(0, middle), bytes_max)
    yield from _halved(rows.slice(middle), bytes_max)


Gathered = tuple[FrameTarget, pa.RecordBatch]


class TopicFrames:
    """The rows of a task that go to one topic, becoming frames."""

    def __init__(
        self, part: TaskPart, options: SinkOptions, settings: TopicSettings, frame_messages: int
    ) -> None:
        self._partitions = settings.partitions
        self._codec = options.compression(settings)
        self._gathering = RowGathering(frame_messages)
        # So that the tasks of a batch do not all begin with the same partition.
        self._turn = part.task
        self._clock = SystemClock()

    def add(self, rows: pa.RecordBatch) -> Iterator[Gathered]:
        """Take rows in, and hand out what is enough for a frame, each for a certain partition."""
        for target, part in by_lane(rows, self._partitions):
            yield from map(self._placed, self._gathering.add(target, part))

    def finish(self) -> Iterator[Gathered]:
        """Hand out what is left."""
        return map(self._placed, self._gathering.finish())

    def encode(self, rows: pa.RecordBatch, producer: Producer) -> bytes:
        now_us = self._clock.now_us()
        return bytes(encode_rows(rows, now_us=now_us, codec=self._codec, producer=producer))

    def _placed(self, gathered: Gathered) -> Gathered:
        target, rows = gathered
        if target.partition == ANY_PARTITION:
            target = target._replace(partition=self._turn % self._partitions)
            self._turn += 1
        return target, rows
