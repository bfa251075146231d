"""The columns of messages as Spark sees them, and those of them that a reader was asked for."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

_DATA_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "priority": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
    "expires_at": TimestampType(),
    "dedup_id": StringType(),
    "append_time": TimestampType(),
    "scheduled_id": StringType(),
}
_TYPES = {name: kind.simpleString() for name, kind in _DATA_TYPES.items()}


def message_schema(*, includes_headers: bool = True) -> StructType:
    """The schema of messages."""
    names = [name for name in _DATA_TYPES if includes_headers or name != "headers"]
    return StructType([StructField(name, _DATA_TYPES[name]) for name in names])


@dataclass(frozen=True)
class MessageColumns:
    """The columns that Spark wants, in its order: all, unless the user gave a schema with fewer."""

    schema: StructType

    @classmethod
    def of(cls, schema: StructType) -> "MessageColumns":
        """Raises InvalidRequest for a column that messages do not have, or have as another type."""
        for field in schema.fields:
            if field.name not in _TYPES:
                raise InvalidRequest(
                    f"messages have no column {field.name}: choose from {', '.join(_TYPES)}"
                )
            if field.dataType.simpleString() != _TYPES[field.name]:
                raise InvalidRequest(
                    f"the column {field.name} is {_TYPES[field.name]}, not {field.dataType.simpleString()}"
                )
        return cls(schema)

    @property
    def names(self) -> list[str]:
        return self.schema.fieldNames()

    @cached_property
    def _arrow(self) -> "pa.Schema":
        return to_arrow_schema(self.schema, timezone="UTC")

    def shaped(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The same columns under the schema that Spark compares them with."""
        return type(batch).from_arrays(batch.columns, schema=self._arrow)
