"""The options of a table in Spark's catalog, kept in the schema of the table.

Spark 4.3 tells a Python source the options of CREATE TABLE once, when it asks for the schema; whoever reads
the table later gets none of them. But Spark keeps the schema, with whatever is noted at a column.
"""

from pyspark.sql.types import StructField, StructType

from quivermq.errors import InvalidRequest
from quivermq.spark.options import PLACE_NAMES, SourceOptions
from quivermq.topic.names import is_pattern

_NOTE = "quiver.options"
# A schema ends up in every file that is written with it.
_SECRET = "key"


def noted(schema: StructType, options: SourceOptions) -> StructType:
    """The schema with the options, but for the broker's key."""
    kept = {name: text for name, text in options.given.items() if name != _SECRET}
    first, *others = schema.fields
    return StructType([StructField(first.name, first.dataType, first.nullable, {_NOTE: kept}), *others])


def recalled(schema: StructType, options: SourceOptions) -> SourceOptions:
    """The options of whoever reads, and where they do not say where the queue is, those of the table.

    A schema may have come from the table by other ways, so whoever names a place means that one alone.
    """
    if any(options.text(name) is not None for name in PLACE_NAMES):
        return options
    kept: dict[str, str] = next(
        (field.metadata[_NOTE] for field in schema.fields if _NOTE in field.metadata), {}
    )
    return SourceOptions({**kept, **options.given})


def to_insert(options: SourceOptions) -> SourceOptions:
    """The options of a table for INSERT INTO: the one topic that it reads is the one that is written to."""
    if options.table != "messages":
        raise InvalidRequest(f"the table {options.table} is the queue's own state: nobody can write to it")
    name = options.text("subscribe")
    if name is None or options.text("topic") is not None or "," in name or is_pattern(name):
        return options
    return SourceOptions({**options.given, "topic": name})
