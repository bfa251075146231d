"""The writers that Spark calls: `write` in the executors, `commit` and `abort` on the driver."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from quivermq.errors import InvalidRequest
from quivermq.spark.options import SourceOptions
from quivermq.spark.sink.commit import commit_batch, discard_batch, open_queue
from quivermq.spark.sink.options import SinkOptions, TaskPart, Throttle, current_part, is_repeated
from quivermq.spark.sink.rows import check_columns
from quivermq.spark.sink.sending import send
from quivermq.spark.sink.staging import StagedFile, stage

_Messages = list[WriterCommitMessage | None]


def batch_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> "QuiverBatchWriter":
    """The writer of a plain write. Raises InvalidRequest for what cannot be written."""
    parsed = _checked(options, schema, overwrite)
    return QuiverBatchWriter(_sink(parsed, parsed.write_id or str(uuid4())))


def stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> "QuiverStreamWriter":
    """The writer of a stream. Raises InvalidRequest for what cannot be written."""
    if options.text("writeId") is not None:
        raise InvalidRequest("a stream has an id of its own: leave the option writeId out")
    return QuiverStreamWriter(_sink(_checked(options, schema, overwrite), None))


def _checked(options: SourceOptions, schema: StructType, overwrite: bool) -> SinkOptions:
    parsed = SinkOptions.of(options)
    if overwrite:
        raise InvalidRequest(
            "a log only grows: write with mode append; to begin anew, delete the topic first"
        )
    types = {field.name: field.dataType.simpleString() for field in schema}
    check_columns(types, has_topic=parsed.topic is not None)
    return parsed


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task did. On the driver nobody else knows which query it was."""

    part: TaskPart
    staged: StagedFile | None = None


class Sink(Protocol):
    """Takes the rows of both kinds of writes. Can be pickled."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskDone:
        """In an executor: take the rows of a task."""
        ...

    def commit(self, messages: _Messages, batch: int) -> None:
        """On the driver: all tasks of a batch are done."""
        ...

    def abort(self, messages: _Messages, batch: int) -> None:
        """On the driver: a batch came to nothing."""
        ...


def _sink(options: SinkOptions, write_id: str | None) -> Sink:
    """`write_id` is None for a stream."""
    root = options.reader.staging_root()
    return SendingSink(options, write_id) if root is None else StagingSink(root, options, write_id)


@dataclass(frozen=True, slots=True)
class SendingSink:
    """Executors send their rows to the queue, which then has everything."""

    options: SinkOptions
    write_id: str | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskDone:
        part = current_part(self.write_id)
        send(batches, part, self.options, is_repeated=is_repeated())
        return TaskDone(part)

    def commit(self, messages: _Messages, batch: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: _Messages, batch: int) -> None:
        """What was sent stays: a repeated task recognises it."""


@dataclass(frozen=True, slots=True)
class StagingSink:
    """Executors stage their rows, and the driver brings them into the topics: only one may write there."""

    root: Path
    options: SinkOptions
    write_id: str | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskDone:
        part = current_part(self.write_id)
        return TaskDone(part, stage(self.root, batches, part, self.options, self.options.reader.disk))

    def commit(self, messages: _Messages, batch: int) -> None:
        if done := [message for message in messages if isinstance(message, TaskDone)]:
            commit_batch(
                self.root,
                done[0].part.write,
                batch,
                [message.staged for message in done if message.staged is not None],
                disk=self.options.reader.disk,
                open_queue=partial(open_queue, self.options.reader),
                durability=self.options.durability,
                pace=Throttle(self.options.rate_limit),
                is_repeatable=self._is_repeatable,
            )

    def abort(self, messages: _Messages, batch: int) -> None:
        if done := [message for message in messages if isinstance(message, TaskDone)]:
            write = done[0].part.write
            disk = self.options.reader.disk
            discard_batch(self.root, write, batch, disk=disk, is_repeatable=self._is_repeatable)

    @property
    def _is_repeatable(self) -> bool:
        """Whether the next driver may come with the same id."""
        return self.write_id is None or self.options.write_id is not None


class QuiverBatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: _Messages) -> None:
        self._sink.commit(messages, 0)

    def abort(self, messages: _Messages) -> None:
        self._sink.abort(messages, 0)


class QuiverStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        self._sink.commit(messages, batchId)

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        self._sink.abort(messages, batchId)
