"""The queue's own state as tables: `groups`, `deliveries`, `dead_letters`, `segments`."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quivermq.delivery.dead_letters import holds_dead_letters
from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.frame import Header
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.model.dead_letters import DLQ_HEADER_NAMES, DLQ_HEADER_PREFIX
from quivermq.model.lanes import PRIORITIES, Lane
from quivermq.reading.batches import SCHEMA as MESSAGES
from quivermq.reading.batches import record_batches
from quivermq.reading.reader import DeliveryRow, GroupRow, MessageReader, QueueReader, SegmentRow
from quivermq.spark.options import RANGE_NAMES, SourceOptions
from quivermq.spark.subscription import checked_expression, topic_filter

# Most columns are numbers of 64 bits.
_TYPES = (
    dict.fromkeys(("topic", "priority", "group", "state", "holder", "path"), pa.string())
    | dict.fromkeys(("partition", "attempt", "members"), pa.int32())
    | dict.fromkeys(("deadline", "due", "first_delivered_at", "last_delivered_at"), TIME)
    | dict.fromkeys(("first_timestamp", "last_timestamp"), TIME)
    | {"sealed": pa.bool_()}
)


def _schema_of(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, _TYPES.get(name, pa.int64())) for name in names])


DEAD_LETTERS = pa.schema(
    [
        *MESSAGES,
        ("origin_topic", pa.string()),
        ("origin_partition", pa.int32()),
        ("origin_priority", pa.string()),
        ("origin_offset", pa.int64()),
        ("origin_timestamp", TIME),
        ("attempts", pa.int32()),
        ("reason", pa.string()),
        ("error", pa.string()),
        ("group", pa.string()),
        ("died_at", TIME),
    ]
)

SCHEMAS = {
    "groups": _schema_of(GroupRow._fields),
    "deliveries": _schema_of(DeliveryRow._fields),
    "dead_letters": DEAD_LETTERS,
    "segments": _schema_of(SegmentRow._fields),
}


def arrow_schema(table: str) -> pa.Schema:
    """The columns of a table. Raises InvalidRequest for one that there is not."""
    try:
        return SCHEMAS[table]
    except KeyError:
        raise InvalidRequest(
            f"there is no table {table!r}: option `table` is one of messages, {', '.join(SCHEMAS)}"
        ) from None


def table_schema(table: str) -> StructType:
    """The same for Spark. Raises InvalidRequest."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(table))


_DLQ_HEADERS = [DLQ_HEADER_PREFIX + name for name in DLQ_HEADER_NAMES]
_PRIORITIES = pa.array(PRIORITIES)
# As the queue itself reads them: fewer digits than would not fit.
_NUMBER = r"^-?[0-9]{1,18}$"
# The years 1 to 9999.
_FIRST_US = -62_135_596_800_000_000
_END_US = 253_402_300_800_000_000


def dead_letter_batches(
    reader: MessageReader, lane: Lane, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """The dead letters of a lane of a dead-letter topic; those that went back are not there.

    Those that were put there by hand come last: only of the others the headers are believed.
    """
    origin = reader.origin(lane.topic) or lane.topic
    by_hand = False

    def is_wanted(header: Header) -> bool:
        nonlocal by_hand
        by_hand |= not holds_dead_letters(header)
        return holds_dead_letters(header)

    for batch in record_batches(reader, lane, start, end, wanted=is_wanted):
        yield _given_up(batch, origin)
    if by_hand:
        for batch in record_batches(
            reader, lane, start, end, wanted=lambda header: not holds_dead_letters(header)
        ):
            yield _put_by_hand(batch, origin)


def _put_by_hand(batch: pa.RecordBatch, origin: str) -> pa.RecordBatch:
    """Messages that somebody put there, with the headers that they have."""
    names = ("partition", "priority", "offset", "timestamp")
    columns = {f"origin_{name}": batch.column(name) for name in names}
    columns |= dict.fromkeys(("reason", "error", "group"), pa.repeat("", batch.num_rows))
    columns["attempts"] = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
    return _dead_letters(batch, origin, columns | {"died_at": batch.column("timestamp")})


def _given_up(batch: pa.RecordBatch, origin: str) -> pa.RecordBatch:
    """Messages of a dead-letter topic that a group gave up; what their headers say of that as columns."""
    said, headers = _dlq_headers(batch.column("headers"))
    priority = _text(said["priority"])
    columns = {
        "headers": headers,
        "origin_partition": _number(said["partition"], pa.scalar(0)).cast(pa.int32(), safe=False),
        "origin_priority": pc.if_else(pc.is_in(priority, value_set=_PRIORITIES), priority, "normal"),
        "origin_offset": _number(said["offset"], batch.column("offset")),
        "origin_timestamp": _time(said["timestamp"], batch.column("timestamp")),
        "attempts": _number(said["attempts"], pa.scalar(0)).cast(pa.int32(), safe=False),
        "died_at": _time(said["time"], batch.column("timestamp")),
    }
    columns |= {name: _text(said[name]) for name in ("reason", "error", "group")}
    return _dead_letters(batch, origin, columns)


def _dead_letters(batch: pa.RecordBatch, origin: str, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Messages with the further columns of dead letters."""
    own = {name: batch.column(name) for name in MESSAGES.names}
    found = own | {"origin_topic": pa.repeat(origin, batch.num_rows)} | columns
    return pa.RecordBatch.from_arrays([found[name] for name in DEAD_LETTERS.names], schema=DEAD_LETTERS)


def _dlq_headers(headers: pa.ListArray) -> tuple[dict[str, pa.Array], pa.ListArray]:
    """What the headers of a dead letter say by name, null where nothing, and the message's own headers."""
    rows, parents = len(headers), pc.list_parent_indices(headers).to_numpy()
    pairs = pc.list_flatten(headers)
    names, values = pairs.field("key"), pairs.field("value")
    said = {}
    for name in DLQ_HEADER_NAMES:
        at = np.flatnonzero(pc.equal(names, DLQ_HEADER_PREFIX + name).to_numpy(zero_copy_only=False))
        place = np.full(rows, -1, np.int64)
        # Of a name that is given twice, the last one counts.
        place[parents[at]] = at
        said[name] = values.take(pa.array(place, mask=place < 0))
    is_own = pc.invert(pc.is_in(names, value_set=pa.array(_DLQ_HEADERS)))
    counts = np.bincount(parents[is_own.to_numpy(zero_copy_only=False)], minlength=rows)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    own = pa.ListArray.from_arrays(pa.array(offsets), pairs.filter(is_own))
    return said, own.cast(HEADERS)


def _text(said: pa.Array) -> pa.Array:
    """As text, empty where nothing is said. What is not UTF-8 was put there by hand."""
    try:
        return pc.fill_null(said.cast(pa.string()), "")
    except pa.ArrowInvalid:
        return pa.array([(each or b"").decode(errors="replace") for each in said.to_pylist()], pa.string())


def _number(said: pa.Array, fallback: pa.Array | pa.Scalar) -> pa.Array:
    text = _text(said)
    is_number = pc.match_substring_regex(text, _NUMBER)
    return pc.coalesce(pc.if_else(is_number, text, None).cast(pa.int64()), fallback.cast(pa.int64()))


def _time(said: pa.Array, fallback: pa.Array) -> pa.Array:
    own = fallback.cast(pa.int64())
    time_us = _number(said, own)
    # What lies outside was put there by hand, and neither Python nor Spark has a word for it.
    is_moment = pc.and_(pc.greater_equal(time_us, _FIRST_US), pc.less(time_us, _END_US))
    return pc.if_else(is_moment, time_us, own).cast(TIME)


_ROWS_MAX = 65_536


class TablePart(NamedTuple):
    """What one task reads: a topic, and of it a group or a lane."""

    topic: str
    group: str | None = None
    lane: Lane | None = None
    start: int = 0
    end: int = 0


class TablePartition(InputPartition):
    """The same for Spark; without a part, all that the plan does not have."""

    def __init__(self, part: TablePart | None) -> None:
        super().__init__(part)
        self.part = part


class TableReader(DataSourceReader):
    """Reads one table of a queue. `is_wanted` says of which topics."""

    def __init__(
        self,
        table: str,
        reader: QueueReader,
        is_wanted: Callable[[str], bool],
        columns: Sequence[str] | None = None,
    ) -> None:
        self._table = table
        self._reader = reader
        self._columns = list(arrow_schema(table).names if columns is None else columns)
        self._is_wanted = is_wanted
        # Listed once, so that a retry of the plan reads the same topics.
        self._parts = list(parts_of(table, reader, is_wanted))

    def partitions(self) -> list[InputPartition]:
        # Spark plans a view once, and uses it for long: the last task looks for what came to be since.
        return [*map(TablePartition, self._parts), TablePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePartition):
            return  # Spark reads nothing by reading once, without saying what.
        with closing(self._reader):
            parts = self._later() if partition.part is None else [partition.part]
            for part in parts:
                for batch in table_batches(self._table, self._reader, part):
                    yield batch.select(self._columns)

    def _later(self) -> Iterator[TablePart]:
        """What is there now and was not when the table was planned."""
        ends = {part.lane: part.end for part in self._parts if part.lane is not None}
        planned = set(self._parts)
        for part in parts_of(self._table, self._reader, self._is_wanted):
            start = max(part.start, ends.get(part.lane, 0)) if part.lane is not None else 0
            if part not in planned and start <= part.end:
                yield part._replace(start=start)


def parts_of(table: str, reader: QueueReader, is_wanted: Callable[[str], bool]) -> Iterator[TablePart]:
    """The tasks of a table."""
    topics = reader.origins()
    if table == "dead_letters":
        for topic, origin in topics.items():
            # Whoever asks for a topic asks for its dead letters.
            if origin is not None and (is_wanted(topic) or is_wanted(origin)):
                yield from _dead_letter_parts(reader, topic)
        return
    for topic in filter(is_wanted, topics):
        if table == "segments":
            yield TablePart(topic)
        else:
            yield from (TablePart(topic, group) for group in reader.groups(topic))


def _dead_letter_parts(reader: QueueReader, topic: str) -> Iterator[TablePart]:
    try:
        lanes = reader.lanes(topic)
    except TopicNotFound:
        return  # Somebody has just deleted it.
    for lane, bounds in lanes.items():
        if bounds.start < bounds.end:
            yield TablePart(topic, lane=lane, start=bounds.start, end=bounds.end)


def table_batches(table: str, reader: QueueReader, part: TablePart) -> Iterator[pa.RecordBatch]:
    """The rows of one task, with all columns of the table."""
    if part.lane is not None:
        yield from dead_letter_batches(reader, part.lane, part.start, part.end)
        return
    schema = arrow_schema(table)
    rows = _rows(table, reader, part)
    while chunk := list(islice(rows, _ROWS_MAX)):
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*chunk, strict=True), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows(table: str, reader: QueueReader, part: TablePart) -> Iterator[tuple[object, ...]]:
    if table == "segments":
        return reader.segment_rows(part.topic)
    assert part.group is not None, "the other tables are read by group"
    rows = reader.group_rows if table == "groups" else reader.delivery_rows
    return rows(part.topic, part.group)


def table_reader(options: SourceOptions, schema: StructType) -> TableReader:
    """What reads the table that the options name, as far as the schema asks for its columns.

    Raises InvalidRequest for a table or a column that there is not, and for an option of messages.
    """
    names = arrow_schema(options.table).names
    for name in schema.names:
        if name not in names:
            raise InvalidRequest(
                f"the table {options.table} has no column {name!r}: choose from {', '.join(names)}"
            )
    for option in RANGE_NAMES:
        if options.text(option) is not None:
            raise InvalidRequest(
                f"the option `{option}` is for messages: the table {options.table} has no offsets"
            )
    with closing(options.reader()) as reader:
        return TableReader(options.table, reader, _is_wanted(options, reader), schema.names)


def _is_wanted(options: SourceOptions, reader: QueueReader) -> Callable[[str], bool]:
    pattern = options.text("subscribePattern")
    if pattern is None:
        return topic_filter(options.text("subscribe"), reader.origins(), with_dead_letters=False)
    if options.text("subscribe") is not None:
        raise InvalidRequest("there is `subscribe` or `subscribePattern`, not both")
    compiled = re.compile(checked_expression(pattern))
    return lambda topic: compiled.fullmatch(topic) is not None
