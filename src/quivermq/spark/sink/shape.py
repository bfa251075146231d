"""Which columns a DataFrame may have to be written, and what becomes of each."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quivermq.errors import InvalidRequest
from quivermq.frame.arrow import HEADERS, TIME

_CONTENT = ("binary", "string")
# By name, the types that Spark calls so.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": _CONTENT,
    "key": _CONTENT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "priority": ("string",),
    "timestamp": ("timestamp",),
    "expires_at": ("timestamp",),
}
# A row that was read has an offset, and its partition is where it was: neither says where it is to go. Nor
# is it the same message again, which its id for deduplication would say, or came or waited when that did.
_OFFSET = "offset"
_OF_THE_OLD_PLACE = (_OFFSET, "partition", "dedup_id", "append_time", "scheduled_id")

_ARROW_TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int64(),
    "priority": pa.string(),
    "timestamp": TIME,
    "expires_at": TIME,
}


def check_columns(types: Mapping[str, str], *, has_topic: bool) -> None:
    """Raise InvalidRequest for a DataFrame that cannot be written; `types` are Spark's names of types."""
    if _OFFSET in types:
        types = {name: kind for name, kind in types.items() if name not in _OF_THE_OLD_PLACE}
    unknown = [name for name in types if name not in COLUMNS]
    if unknown:
        dropped = ", ".join(f'"{name}"' for name in unknown)
        raise InvalidRequest(
            f"{', '.join(unknown)} cannot be written: the columns of a message are"
            f" {', '.join(COLUMNS)}. Leave it out with .drop({dropped}), or put it into value, as with"
            " to_json(struct(…))"
        )
    if "value" not in types:
        raise InvalidRequest(
            "there is no column value: say what is to be written, as with"
            " .selectExpr('to_json(struct(*)) AS value')"
        )
    if "topic" not in types and not has_topic:
        raise InvalidRequest(
            "nothing says which topic to write to: give the option `topic`, or a column topic"
        )
    for name, kind in types.items():
        if name == "headers":
            _check_headers(kind)
        elif kind not in COLUMNS[name]:
            raise InvalidRequest(f"{name} is {' or '.join(COLUMNS[name][:2])}, not {kind}: cast it")


def _check_headers(kind: str) -> None:
    """The fields in any order, the value as text or bytes."""
    fields = kind.removeprefix("array<struct<").removesuffix(">>").split(",")
    if sorted(fields) not in (["key:string", "value:binary"], ["key:string", "value:string"]):
        raise InvalidRequest(f"headers are {COLUMNS['headers'][0]}, not {kind}: cast them")


def rows_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with the types that messages have. Raises InvalidRequest where one is no message."""
    if _OFFSET in batch.schema.names:
        batch = _without_the_old_place(batch)
    arrays: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        wanted = _ARROW_TYPES[name]
        if name == "headers":
            arrays[name] = _headers(column)
        elif column.type == wanted:
            arrays[name] = column
        else:
            arrays[name] = column.cast(wanted)
    if arrays["value"].null_count:
        raise InvalidRequest(
            "a value is null, and a message has one: leave such rows out, or write an empty value,"
            " as with coalesce(value, '')"
        )
    return pa.RecordBatch.from_pydict(arrays)


def _without_the_old_place(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without what they were elsewhere; those of an INSERT were nowhere, and may say where to go."""
    names = set(batch.schema.names)
    dropped = set(_OF_THE_OLD_PLACE)
    if batch.column(_OFFSET).null_count == batch.num_rows:
        dropped.discard("partition")
        for name in sorted(dropped & names - {_OFFSET}):
            if batch.column(name).null_count < batch.num_rows:
                raise InvalidRequest(f"{name} cannot be written: leave it out")
    return batch.drop_columns(sorted(dropped & names))


def _headers(column: Any) -> pa.Array:
    pairs = column.flatten()
    names, values = (pc.struct_field(pairs, name) for name in ("key", "value"))
    if names.null_count or values.null_count:
        raise InvalidRequest("a header has a name and a value: neither may be null")
    if column.type == HEADERS:
        return column
    children = [names.cast(pa.string()), values.cast(pa.binary())]
    struct = pa.StructArray.from_arrays(children, fields=list(HEADERS.value_type))
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), struct, HEADERS)
