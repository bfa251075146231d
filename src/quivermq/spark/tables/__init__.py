"""The queue's own state as tables: `groups`, `deliveries`, `dead_letters`, `segments`."""

import re
from collections.abc import Callable
from contextlib import closing

from pyspark.sql.types import StructType

from quivermq.errors import InvalidRequest
from quivermq.spark.options import SourceOptions
from quivermq.spark.place import Place
from quivermq.spark.tables.reader import TableReader
from quivermq.spark.tables.schemas import arrow_schema, table_schema
from quivermq.spark.topic_filter import topic_filter

__all__ = ["TableReader", "table_reader", "table_schema"]

_OF_MESSAGES = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "assign",
    "minPartitions",
)


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
    for option in _OF_MESSAGES:
        if options.text(option) is not None:
            raise InvalidRequest(
                f"the option `{option}` is for messages: the table {options.table} has no offsets"
            )
    with closing(options.place()) as place:
        return TableReader(options.table, place, _is_wanted(options, place), schema.names)


def _is_wanted(options: SourceOptions, place: Place) -> Callable[[str], bool]:
    pattern = options.text("subscribePattern")
    if pattern is None:
        return topic_filter(options.text("subscribe"), place.origins(), with_dead_letters=False)
    if options.text("subscribe") is not None:
        raise InvalidRequest("there is `subscribe` or `subscribePattern`, not both")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(f"the option `subscribePattern` is no regular expression: {error}") from None
    return lambda topic: compiled.fullmatch(topic) is not None
