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
from pyspark.sql.types import StructType

from quivermq.errors import InvalidRequest, QuiverError
from quivermq.spark.options import Options

if TYPE_CHECKING:
    from quivermq.spark.source.snapshot import Snapshot

_MESSAGES = "messages"


class QuiverDataSource(DataSource):
    """Topics of a data directory or of a broker, and the queue's own state as tables."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = Options.parse(options)
        # Decided here, because this is what Spark carries from the loading of a DataFrame to each of its
        # uses: two counts of the same one must not differ. A stream and a writer do not care.
        self._snapshot = _taken(self._parsed)

    @classmethod
    def name(cls) -> str:
        return "quiver"

    def schema(self) -> StructType:
        schema = _schema_of(self._parsed)
        if not self._parsed.makes_table:
            return schema
        from quivermq.spark.source.table_options import noted

        self._parsed.place()  # Whoever makes a table that nobody can read is told so now.
        return noted(schema, self._parsed)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _to_read(self._parsed, schema)
        if options.table != _MESSAGES:
            from quivermq.spark.tables import table_reader

            return table_reader(options, schema)
        from quivermq.spark.source.reading import BatchReader

        snapshot = self._snapshot if options == self._parsed else _taken(options)
        if isinstance(snapshot, QuiverError):
            raise snapshot
        assert snapshot is not None, "a snapshot is taken of whatever is subscribed to"
        return BatchReader(options, schema, snapshot)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name.)
        options = _to_read(self._parsed, schema)
        if options.table != _MESSAGES:
            raise InvalidRequest(f"the table {options.table} is no stream: read it as a batch")
        from quivermq.spark.source.streaming import StreamReader

        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from quivermq.spark.sink import batch_writer

        return batch_writer(self._parsed, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from quivermq.spark.sink import stream_writer

        return stream_writer(self._parsed, schema, overwrite)


def _schema_of(options: Options) -> StructType:
    if options.table != _MESSAGES:
        from quivermq.spark.tables import table_schema

        return table_schema(options.table)
    from quivermq.spark.source.columns import message_schema

    return message_schema(includes_headers=options.flag("includeHeaders", default=True))


def _to_read(options: Options, schema: StructType) -> Options:
    """What a reader goes by. Raises InvalidRequest for an option of a writer."""
    from quivermq.spark.source.table_options import recalled

    options = recalled(schema, options)
    if options.text("topic") is not None:
        raise InvalidRequest("the option `topic` is for writing: to read, say `subscribe`")
    return options


def _taken(options: Options) -> "Snapshot | QuiverError | None":
    """What a batch would read, or what keeps it from that; None for whoever does not read messages."""
    if options.table != _MESSAGES or options.text("topic") is not None:
        return None
    from quivermq.spark.source.snapshot import Snapshot

    try:
        place = options.whole_place()
        try:
            return Snapshot.take(options, place)
        finally:
            place.close()
    except QuiverError as error:
        return error
