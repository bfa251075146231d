"""Writing DataFrames to topics, from the executors, exactly once."""

from typing import TYPE_CHECKING
from uuid import uuid4

from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from quivermq.spark.options import SourceOptions
    from quivermq.spark.sink.writers import QuiverBatchWriter, QuiverStreamWriter

_OVERWRITE = "a log only grows: write with mode append; to begin anew, delete the topic first"


def batch_writer(options: "SourceOptions", schema: "StructType", overwrite: bool) -> "QuiverBatchWriter":
    """The writer of a plain write. Raises InvalidRequest for what cannot be written."""
    from quivermq.spark.sink.options import SinkOptions
    from quivermq.spark.sink.writers import QuiverBatchWriter, TopicSink

    parsed = SinkOptions.of(options)
    _check(schema, overwrite, has_topic=parsed.topic is not None)
    return QuiverBatchWriter(TopicSink(parsed, parsed.write_id or str(uuid4())))


def stream_writer(options: "SourceOptions", schema: "StructType", overwrite: bool) -> "QuiverStreamWriter":
    """The writer of a stream. Raises InvalidRequest for what cannot be written."""
    from quivermq.spark.sink.options import SinkOptions
    from quivermq.spark.sink.writers import QuiverStreamWriter, TopicSink

    parsed = SinkOptions.of(options)
    if parsed.write_id is not None:
        raise InvalidRequest("a stream has an id of its own: leave the option writeId out")
    _check(schema, overwrite, has_topic=parsed.topic is not None)
    return QuiverStreamWriter(TopicSink(parsed, None))


def _check(schema: "StructType", overwrite: bool, *, has_topic: bool) -> None:
    from quivermq.spark.sink.shape import check_columns

    if overwrite:
        raise InvalidRequest(_OVERWRITE)
    check_columns({field.name: field.dataType.simpleString() for field in schema}, has_topic=has_topic)
