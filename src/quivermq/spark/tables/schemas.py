"""The columns of the tables, for Spark and for Arrow."""

import pyarrow as pa
from pyspark.sql.types import StructType

from quivermq.errors import InvalidRequest
from quivermq.frame.arrow import TIME
from quivermq.spark.batches import SCHEMA as MESSAGES

_LANE = (("topic", pa.string()), ("partition", pa.int32()), ("priority", pa.string()))

GROUPS = pa.schema(
    [
        *_LANE,
        ("group", pa.string()),
        ("cursor", pa.int64()),
        ("position", pa.int64()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("lag", pa.int64()),
        ("in_flight", pa.int64()),
        ("retrying", pa.int64()),
        ("waiting_for_key", pa.int64()),
        ("state", pa.string()),
        ("members", pa.int32()),
    ]
)

DELIVERIES = pa.schema(
    [
        *_LANE,
        ("group", pa.string()),
        ("offset", pa.int64()),
        ("attempt", pa.int32()),
        ("state", pa.string()),
        ("deadline", TIME),
        ("due", TIME),
        ("holder", pa.string()),
        ("first_delivered_at", TIME),
        ("last_delivered_at", TIME),
    ]
)

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

SEGMENTS = pa.schema(
    [
        *_LANE,
        ("base_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("bytes", pa.int64()),
        ("frames", pa.int64()),
        ("messages", pa.int64()),
        ("first_timestamp", TIME),
        ("last_timestamp", TIME),
        ("sealed", pa.bool_()),
        ("path", pa.string()),
    ]
)

SCHEMAS = {
    "groups": GROUPS,
    "deliveries": DELIVERIES,
    "dead_letters": DEAD_LETTERS,
    "segments": SEGMENTS,
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
