"""The columns of messages as Spark sees them, and those of them that a reader was asked for."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "priority": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
    "expires_at": "timestamp",
}


def ddl(*, includes_headers: bool = True) -> str:
    """The schema of messages, as text."""
    columns = [f"{name} {kind}" for name, kind in _TYPES.items() if includes_headers or name != "headers"]
    return ", ".join(columns)


@dataclass(frozen=True)
class Columns:
    """The columns that Spark wants, in its order: all, unless the user gave a schema with fewer."""

    schema: StructType

    @classmethod
    def of(cls, schema: StructType) -> "Columns":
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
