"""The writers that Spark calls: `write` in the executors, `commit` and `abort` on the driver."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from quivermq.disk import SystemDisk
from quivermq.spark.sink.attempt import TaskPart, current_part, is_repeated
from quivermq.spark.sink.broker import write_to_broker
from quivermq.spark.sink.commit import commit_batch, discard_batch
from quivermq.spark.sink.options import SinkOptions
from quivermq.spark.sink.pace import RateLimit
from quivermq.spark.sink.staging import StagedFile, stage


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

    def write_part(self, batches: Iterator[pa.RecordBatch]) -> TaskDone:
        """In an executor: write the rows of a task, or stage them where only one process may write."""
        part, options = current_part(self._write_id), self._options
        if options.directory is not None:
            return TaskDone(part, stage(batches, part, options, SystemDisk()))
        write_to_broker(batches, part, options, is_repeated=is_repeated())
        return TaskDone(part)

    def commit_parts(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
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
                pace=RateLimit(self._options.rate_limit),
                is_repeatable=self._is_repeatable,
            )

    def abort_parts(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        """On the driver: take away what was staged for nothing."""
        done = [message for message in messages if isinstance(message, TaskDone)]
        if (path := self._options.directory) is not None and done:
            write = done[0].part.write
            discard_batch(path, write, batch, disk=SystemDisk(), is_repeatable=self._is_repeatable)

    @property
    def _is_repeatable(self) -> bool:
        """Whether the next driver may come with the same id."""
        return self._write_id is None or self._options.write_id is not None


class QuiverBatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write_part(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit_parts(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort_parts(messages, 0)


class QuiverStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write_part(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._sink.commit_parts(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._sink.abort_parts(messages, batchId)
