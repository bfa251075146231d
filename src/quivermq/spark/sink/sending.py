"""A task that sends its rows: frames for a queue that everybody may open, each once, whatever happens.

The frames of a task carry an id that every attempt of it has. An attempt first takes the next epoch: from
then on the queue refuses what an earlier attempt, which may still run, sends. Then it looks for what that
one has written, and leaves it out. So the outcome is the same as that of one attempt that succeeded.
"""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from quivermq.errors import Conflict, NotFound, OffsetOutOfRange
from quivermq.frame import Frame, Producer
from quivermq.frame.arrow import TIME, arrow_batch
from quivermq.frame.rewriting import left_rows
from quivermq.model.lanes import Lane, lane_number
from quivermq.model.messages import FirstFrame, ProducerState
from quivermq.reading.reader import MessageReader
from quivermq.spark.sink.frames import FrameTarget, TopicFrames, by_topic
from quivermq.spark.sink.options import SinkOptions, TaskPart, Throttle
from quivermq.spark.sink.rows import lanes_of, rows_of

if TYPE_CHECKING:
    from quivermq.queue.connection import Connection

# One is under way, one is ready: more would only take memory.
_PENDING_MAX = 2


class Outbox:
    """One thread that does what it is given, one after the other. Used in a `with` statement."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quiver-sink")
        self._pending: deque[Future[None]] = deque()
        self._has_failed = False

    def add(self, act: Callable[[], object]) -> None:
        """Have something done, unless something before it goes wrong. Raises what did."""
        while len(self._pending) >= _PENDING_MAX:
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(self._do, act))

    def finish(self) -> None:
        """Return once everything is done. Raises what went wrong."""
        while self._pending:
            self._pending.popleft().result()

    def _do(self, act: Callable[[], object]) -> None:
        if self._has_failed:
            return
        try:
            act()
        except BaseException:
            self._has_failed = True
            raise

    def __enter__(self) -> "Outbox":
        return self

    def __exit__(self, *_: object) -> None:
        # After an error what waits is not done any more; what is under way comes to its end.
        self._thread.shutdown(cancel_futures=True)


_READ = ("key", "value", "headers", "timestamp", "expires_at")
_DIGEST_BYTES = 16
_Pairs = list[dict[str, Any]] | None


class RowPlace(NamedTuple):
    """What a row may ask for; None where it takes what it gets."""

    partition: int | None
    timestamp: int | None
    expires_at: int | None

    def takes(self, other: "RowPlace") -> bool:
        """Whether a message there is what the row wants."""
        return all(mine is None or mine == its for mine, its in zip(self, other, strict=True))


class WrittenRows:
    """The messages of one producer in one topic."""

    def __init__(self) -> None:
        self._places: defaultdict[bytes, list[RowPlace]] = defaultdict(list)
        self.count = 0
        self.removed = 0
        """How many more there were, which compaction has taken out: of these nothing is known."""

    def add(self, frame: Frame, partition: int, priority: str) -> None:
        """Take in the messages of a frame."""
        batch = left_rows(arrow_batch(frame, _READ))
        self.removed += len(frame) - len(batch)
        lane = lane_number(priority)
        for key, value, pairs, *moments in zip(*(_list(batch, name) for name in _READ), strict=True):
            self._places[_digest(lane, key, value, pairs)].append(RowPlace(partition, *moments))
        self.count += len(batch)

    def subtract(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not here; each message stands for one row, and is gone then.

        A row that does not care where it goes may take the message of one that does and is the same
        otherwise: that one is then written, and the outcome is what both wanted.
        """
        contents = (_list(rows, name) for name in ("key", "value", "headers"))
        digests = map(_digest, lanes_of(rows).tolist(), *contents)
        wishes = map(RowPlace, *(_list(rows, name) for name in ("partition", "timestamp", "expires_at")))
        is_new = [not self._take(*row) for row in zip(digests, wishes, strict=True)]
        return rows if all(is_new) else rows.filter(pa.array(is_new))

    def _take(self, digest: bytes, wish: RowPlace) -> bool:
        places = self._places.get(digest, [])
        for index, place in enumerate(places):
            if wish.takes(place):
                del places[index]
                self.count -= 1
                return True
        return False


def _list(rows: pa.RecordBatch, name: str) -> list[Any]:
    """The values of a column, times as numbers; nothing in each row where there is no such column."""
    if name not in rows.schema.names:
        return [None] * len(rows)
    column = rows.column(name)
    found: list[Any] = (column.view(pa.int64()) if column.type == TIME else column).to_pylist()
    return found


def _digest(lane: int, key: bytes | None, value: bytes, headers: _Pairs) -> bytes:
    """Of everything by which two messages of a topic differ but for times and partitions."""
    pairs = [part for pair in headers or () for part in (pair["key"].encode(), pair["value"])]
    parts = [value, *([] if key is None else [key]), *pairs]
    # The lengths come first, so that no two lists of parts read alike.
    lengths = f"{lane} {key is not None} {' '.join(str(len(part)) for part in parts)}\n"
    hashed = blake2b(lengths.encode(), digest_size=_DIGEST_BYTES)
    for part in parts:
        hashed.update(part)
    return hashed.digest()


# Between the clocks of the driver and of the broker.
_SKEW_US = 10 * 60 * 1_000_000

WAY_OUT = (
    "so nobody can tell which rows of this batch are in the topic. To go on, look there, then start the"
    " query with a new checkpoint (a plain write with another writeId) and give it only what is missing"
)


def check_remembered(state: ProducerState, begun_us: int, *, is_repeated: bool) -> None:
    """Raise NotFound when the topic may have forgotten what this attempt is to go on with.

    `begun_us` is when the first attempt was begun, or before that.
    """
    if is_repeated and state.epoch == 0 and state.known_since_us > begun_us - _SKEW_US:
        raise NotFound(
            "an earlier attempt of this task may have written something, and so many producers came since"
            f" that the topic has forgotten it, {WAY_OUT}. Write in fewer tasks, as with .coalesce(…)"
        )


def read_back(reader: MessageReader, topic: str, producer_id: int, firsts: list[FirstFrame]) -> WrittenRows:
    """The messages that earlier attempts have written, all of which came before this one began.

    Raises NotFound where some of them may be gone.
    """
    written = WrittenRows()
    if not firsts:
        return written
    _check_live(reader, topic, firsts)
    lanes = reader.lanes(topic)
    for partition, priority, first in firsts:
        lane = Lane(topic, partition, priority)
        try:
            for frame in _whole(reader, lane, first, lanes[lane].end):
                if frame.header.producer_id == producer_id:
                    written.add(frame, partition, priority)
        except OffsetOutOfRange as error:
            raise _gone(lane, first) from error
    # If retention came in between, some of it was read from the archive, and looked as if of nobody.
    _check_live(reader, topic, firsts)
    return written


def check_compacted(unknown: int, written: WrittenRows, topic: str) -> None:
    """Raise Conflict when rows would be written that compaction may have taken out.

    `unknown` is how many rows were not found. If they are as many as were taken out, it is these, and
    nothing is missing. If not, some may be old values of their keys, which must not become the latest.
    """
    if unknown != written.removed:
        raise Conflict(
            f"compaction has taken {written.removed} messages out of what an earlier attempt of this batch"
            f" wrote to {topic}, and {unknown} rows are not found, {WAY_OUT}. Compact a topic while no"
            " query that writes to it stands still in the middle of a batch"
        )


def _check_live(reader: MessageReader, topic: str, firsts: list[FirstFrame]) -> None:
    """Raise NotFound unless everything is in the live log: an archive does not tell who sent it."""
    lanes = reader.lanes(topic)
    for partition, priority, first in firsts:
        lane = Lane(topic, partition, priority)
        if first < lanes[lane].start:
            raise _gone(lane, first)


def _whole(reader: MessageReader, lane: Lane, start: int, end: int) -> Iterator[Frame]:
    """The frames of a range. Raises NotFound where an offset is in none: a dead letter that went back."""
    for frame in reader.frames(lane, start, end):
        if frame.header.base_offset > start:
            break
        yield frame
        start = frame.header.end_offset
    if start < end:
        raise NotFound(
            f"an earlier attempt of this batch wrote to {lane}, and messages were taken out there, at"
            f" offset {start}, {WAY_OUT}"
        )


def _gone(lane: Lane, first: int) -> NotFound:
    return NotFound(
        f"an earlier attempt of this batch wrote to {lane}, from offset {first} on, and retention has"
        f" removed some of it, {WAY_OUT}. Let the topic keep messages for longer than a query stands still"
    )


logger = logging.getLogger(__name__)


def send(
    batches: Iterator[pa.RecordBatch], part: TaskPart, options: SinkOptions, *, is_repeated: bool = False
) -> int:
    """Write the rows of a task, and return how many messages that were.

    `is_repeated` says that an earlier attempt is known of; there may also be one that nobody knows of.
    """
    pace = Throttle(options.task_rate)
    writers: dict[str, TopicWriter] = {}
    count = 0
    # A broker that is started anew, or whose backlog is full, is waited for some minutes.
    opened = options.reader.open_queue(is_patient=True)
    with closing(options.reader), opened as queue, Outbox() as outbox:
        for batch in batches:
            for topic, rows in by_topic(rows_of(batch), options.topic):
                if topic not in writers:
                    writers[topic] = TopicWriter(
                        queue, topic, part, options, outbox, pace, is_repeated=is_repeated
                    )
                writers[topic].add(rows)
            count += len(batch)
        for writer in writers.values():
            writer.finish()
        outbox.finish()
    return count


class TopicWriter:
    """The part of a task that goes to one topic."""

    def __init__(
        self,
        queue: "Connection",
        topic: str,
        part: TaskPart,
        options: SinkOptions,
        outbox: Outbox,
        pace: Throttle,
        *,
        is_repeated: bool = False,
    ) -> None:
        self._topic = topic
        self._id = part.producer_id(topic)
        self._durability = options.durability
        self._outbox = outbox
        self._pace = pace
        state = queue.begin_producer(topic, self._id)
        self._queue = queue.queue(topic)
        check_remembered(state, options.begun_us, is_repeated=is_repeated)
        self._epoch = state.epoch
        reader = options.reader
        self._frames = TopicFrames(
            part, options, reader.settings(topic), pace.frame_messages(options.batch_messages)
        )
        self._sequences: Counter[FrameTarget] = Counter()
        self._written = read_back(reader, topic, self._id, state.batches)
        # Rows that were not found, where compaction has taken out some.
        self._unknown = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows in, and send what is enough for a frame."""
        if self._written.count:
            rows = self._written.subtract(rows)
        if self._written.removed:
            self._unknown += len(rows)
            return
        for ready in self._frames.add(rows):
            self._send(*ready)

    def finish(self) -> None:
        """Send what is left. Raises Conflict when nobody can tell what that is."""
        if self._written.removed:
            check_compacted(self._unknown, self._written, self._topic)
        for ready in self._frames.finish():
            self._send(*ready)
        if self._written.count:
            logger.warning(
                "an earlier attempt wrote %d messages to %s that this one does not have: they stay there,"
                " because the query gives other rows each time",
                self._written.count,
                self._topic,
            )

    def _send(self, target: FrameTarget, rows: pa.RecordBatch) -> None:
        frame = self._frames.encode(rows, Producer(self._id, self._epoch, self._sequences[target]))
        self._sequences[target] += len(rows)
        self._pace.wait(len(rows))
        self._outbox.add(lambda: self._put(frame, target))

    def _put(self, frame: bytes, target: FrameTarget) -> None:
        """Send a frame until it is stored, always the same: a repeated one is recognised."""
        try:
            self._queue.put_frame(
                frame, partition=target.partition, priority=target.priority, durability=self._durability
            )
        except Conflict as error:
            raise Conflict(f"another attempt of this task has taken over {self._topic}: {error}") from error
