"""The data source `quiver`: what `spark.read.format("quiver")` and the like come to.

Found by Spark through the module `pyspark_quiver`; its parts are imported when they are needed, because
Spark imports this in processes that need none of them.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from quivermq.errors import InvalidRequest, QuiverError
from quivermq.model.names import is_pattern
from quivermq.spark.options import PLACE_NAMES, SourceOptions

if TYPE_CHECKING:
    from quivermq.spark.source.snapshot import Snapshot


_MESSAGES = "messages"


class QuiverDataSource(DataSource):
    """Topics of a data directory or of a broker, and the queue's own state as tables."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = SourceOptions.parse(options)
        # Decided here where every use of a DataFrame is to read the same: this is what Spark carries from
        # its loading to each of them. A stream and a writer do not care.
        self._pinned = _pinned(self._parsed)

    @classmethod
    def name(cls) -> str:
        return "quiver"

    def schema(self) -> StructType:
        schema = _schema_of(self._parsed)
        if not self._parsed.makes_table:
            return schema

        self._parsed.reader()  # Whoever makes a table that nobody can read is told so now.
        return noted(schema, self._parsed)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _to_read(self._parsed, schema)
        if options.table != _MESSAGES:
            from quivermq.spark.tables import table_reader

            return table_reader(options, schema)
        from quivermq.spark.source.readers import QuiverBatchReader

        pinned = self._pinned if options == self._parsed else _pinned(options)
        if isinstance(pinned, QuiverError):
            raise pinned
        return QuiverBatchReader(options, schema, pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name.)
        options = _to_read(self._parsed, schema)
        if options.table != _MESSAGES:
            raise InvalidRequest(f"the table {options.table} is no stream: read it as a batch")
        from quivermq.spark.source.readers import QuiverStreamReader

        return QuiverStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from quivermq.spark.sink.writers import batch_writer

        return batch_writer(to_insert(recalled(schema, self._parsed)), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from quivermq.spark.sink.writers import stream_writer

        return stream_writer(self._parsed, schema, overwrite)


def _schema_of(options: SourceOptions) -> StructType:
    if options.table != _MESSAGES:
        from quivermq.spark.tables import table_schema

        return table_schema(options.table)
    from quivermq.spark.source.readers import message_schema

    return message_schema(includes_headers=options.flag("includeHeaders", default=True))


def _to_read(options: SourceOptions, schema: StructType) -> SourceOptions:
    """What a reader goes by. Raises InvalidRequest for an option of a writer."""

    options = recalled(schema, options)
    if options.text("topic") is not None:
        raise InvalidRequest("the option `topic` is for writing: to read, say `subscribe`")
    return options


def _pinned(options: SourceOptions) -> "Snapshot | QuiverError | None":
    """What a batch always reads, or what keeps it from that; None where each use looks for itself."""
    if options.table != _MESSAGES or options.text("topic") is not None:
        return None
    from quivermq.spark.source.snapshot import Snapshot, is_pinned

    if not is_pinned(options):
        return None

    try:
        reader = options.message_reader()
        try:
            return Snapshot.take(options, reader)
        finally:
            reader.close()
    except QuiverError as error:
        return error


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
