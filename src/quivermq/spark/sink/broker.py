"""A task that writes to a broker: frames over HTTP, each of them once, whatever happens to the task.

The frames of a task carry an id that every attempt of it has. An attempt first takes the next epoch: from
then on the broker refuses what an earlier attempt, which may still run, sends. Then it looks for what that
one has written, and leaves it out. So the outcome is the same as that of one attempt that succeeded.
"""

import logging
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from quivermq.client.blocking.connection import Connection
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.retry import Retry
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import Conflict
from quivermq.frame import Producer
from quivermq.spark.broker_place import BrokerPlace
from quivermq.spark.sink.attempt import TaskPart
from quivermq.spark.sink.encode import encode_rows
from quivermq.spark.sink.gathering import FrameTarget, RowGathering, by_lane, by_topic
from quivermq.spark.sink.options import SinkOptions
from quivermq.spark.sink.outbox import Outbox
from quivermq.spark.sink.pace import RateLimit
from quivermq.spark.sink.reading_back import check_compacted, check_remembered, read_back
from quivermq.spark.sink.routing import ANY_PARTITION
from quivermq.spark.sink.shape import rows_of

logger = logging.getLogger(__name__)

# A broker that is started anew, or whose backlog is full, is waited for some minutes.
_RETRY = Retry(retries=40, is_patient=True)


def write_to_broker(
    batches: Iterator[pa.RecordBatch], part: TaskPart, options: SinkOptions, *, is_repeated: bool = False
) -> int:
    """Write the rows of a task, and return how many messages that were.

    `is_repeated` says that an earlier attempt is known of; there may also be one that nobody knows of.
    """
    place = options.place
    assert isinstance(place, BrokerPlace)
    pace = RateLimit(options.task_rate)
    writers: dict[str, TopicWriter] = {}
    count = 0
    try:
        with Outbox() as outbox:
            for batch in batches:
                for topic, rows in by_topic(rows_of(batch), options.topic):
                    if topic not in writers:
                        writers[topic] = TopicWriter(
                            place, topic, part, options, outbox, pace, is_repeated=is_repeated
                        )
                    writers[topic].add(rows)
                count += len(batch)
            for writer in writers.values():
                writer.finish()
            outbox.finish()
    finally:
        place.close()
    return count


class TopicWriter:
    """The part of a task that goes to one topic."""

    def __init__(
        self,
        place: BrokerPlace,
        topic: str,
        part: TaskPart,
        options: SinkOptions,
        outbox: Outbox,
        pace: RateLimit,
        *,
        is_repeated: bool = False,
    ) -> None:
        self._topic = topic
        self._id = part.producer_id(topic)
        self._durability = options.durability
        self._outbox = outbox
        self._pace = pace
        self._gathering = RowGathering(pace.frame_messages(options.batch_messages))
        self._connection: Connection = place.connection
        self._clock = self._connection.calls.clock
        self._publishing = Publishing(TopicCalls(_RETRY), topic)
        state = self._connection.shell.run(TopicCalls(_RETRY).begin_producer(topic, self._id))
        check_remembered(state, options.begun_us, is_repeated=is_repeated)
        self._epoch = state.epoch
        settings = place.settings(topic)
        self._partitions = settings.partitions
        self._codec = options.compression(settings)
        self._sequences: Counter[FrameTarget] = Counter()
        # So that the tasks of a batch do not all begin with the same partition.
        self._turn = part.task
        self._written = read_back(place, topic, self._id, state.batches)
        # Rows that were not found, where compaction has taken out some.
        self._unknown = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows in, and send what is enough for a frame."""
        if self._written.count:
            rows = self._written.subtract(rows)
        if self._written.removed:
            self._unknown += len(rows)
            return
        for target, part in by_lane(rows, self._partitions):
            for ready in self._gathering.add(target, part):
                self._send(*ready)

    def finish(self) -> None:
        """Send what is left. Raises Conflict when nobody can tell what that is."""
        if self._written.removed:
            check_compacted(self._unknown, self._written, self._topic)
        for ready in self._gathering.finish():
            self._send(*ready)
        if self._written.count:
            logger.warning(
                "an earlier attempt wrote %d messages to %s that this one does not have: they stay there,"
                " because the query gives other rows each time",
                self._written.count,
                self._topic,
            )

    def _send(self, target: FrameTarget, rows: pa.RecordBatch) -> None:
        if target.partition == ANY_PARTITION:
            target = target._replace(partition=self._turn % self._partitions)
            self._turn += 1
        producer = Producer(self._id, self._epoch, self._sequences[target])
        self._sequences[target] += len(rows)
        frame = encode_rows(rows, now_us=self._clock.now_us(), codec=self._codec, producer=producer)
        self._pace.wait(len(rows))
        self._outbox.add(lambda: self._put(bytes(frame), target))

    def _put(self, frame: bytes, target: FrameTarget) -> None:
        """Send a frame until it is stored, always the same: a repeated one is recognised."""
        flow = self._publishing.put_frame(
            frame, target.partition, target.priority, self._durability, is_repeatable=True
        )
        try:
            self._connection.shell.run(flow)
        except Conflict as error:
            raise Conflict(f"another attempt of this task has taken over {self._topic}: {error}") from error
