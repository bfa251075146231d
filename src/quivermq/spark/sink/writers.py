"""The writers that Spark calls: `write` in the executors, `commit` and `abort` on the driver."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from quivermq.disk import SystemDisk
from quivermq.errors import InvalidRequest
from quivermq.spark.options import SourceOptions
from quivermq.spark.sink.broker import write_to_broker
from quivermq.spark.sink.commit import commit_batch, discard_batch
from quivermq.spark.sink.options import SinkOptions, TaskPart, Throttle, current_part, is_repeated
from quivermq.spark.sink.rows import check_columns
from quivermq.spark.sink.staging import StagedFile, stage

_Messages = list[WriterCommitMessage | None]


def batch_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> "QuiverBatchWriter":
    """The writer of a plain write. Raises InvalidRequest for what cannot be written."""
    parsed = _checked(options, schema, overwrite)
    return QuiverBatchWriter(TopicSink(parsed, parsed.write_id or str(uuid4())))


def stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> "QuiverStreamWriter":
    """The writer of a stream. Raises InvalidRequest for what cannot be written."""
    if options.text("writeId") is not None:
        raise InvalidRequest("a stream has an id of its own: leave the option writeId out")
    return QuiverStreamWriter(TopicSink(_checked(options, schema, overwrite), None))


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


class TopicSink:
    """What both kinds of writes have in common. `write_id` is None for a stream."""

    def __init__(self, options: SinkOptions, write_id: str | None) -> None:
        self._options = options
        self._write_id = write_id
        # Whether the next driver may come with the same id.
        self._is_repeatable = write_id is None or options.write_id is not None

    def write_part(self, batches: Iterator[pa.RecordBatch]) -> TaskDone:
        """In an executor: write the rows of a task, or stage them where only one process may write."""
        part, options = current_part(self._write_id), self._options
        if options.directory is not None:
            return TaskDone(part, stage(batches, part, options, SystemDisk()))
        write_to_broker(batches, part, options, is_repeated=is_repeated())
        return TaskDone(part)

    def commit_parts(self, messages: _Messages, batch: int) -> None:
        """On the driver: bring what was staged into the topics. A broker has everything already."""
        done = [message for message in messages if isinstance(message, TaskDone)]
        if self._options.directory is not None and done:
            commit_batch(
                self._options.directory,
                done[0].part.write,
                batch,
                [message.staged for message in done if message.staged is not None],
                disk=SystemDisk(),
                durability=self._options.durability,
                pace=Throttle(self._options.rate_limit),
                is_repeatable=self._is_repeatable,
            )

    def abort_parts(self, messages: _Messages, batch: int) -> None:
        """On the driver: take away what was staged for nothing."""
        done = [message for message in messages if isinstance(message, TaskDone)]
        if (path := self._options.directory) is not None and done:
            write = done[0].part.write
            discard_batch(path, write, batch, disk=SystemDisk(), is_repeatable=self._is_repeatable)


class QuiverBatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write_part(iterator)

    def commit(self, messages: _Messages) -> None:
        self._sink.commit_parts(messages, 0)

    def abort(self, messages: _Messages) -> None:
        self._sink.abort_parts(messages, 0)


class QuiverStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write_part(iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        self._sink.commit_parts(messages, batchId)

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        self._sink.abort_parts(messages, batchId)
