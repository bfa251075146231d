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
        self._snapshot = self._taken()

    @classmethod
    def name(cls) -> str:
        return "quiver"

    def schema(self) -> StructType | str:
        if self._parsed.table != _MESSAGES:
            from quivermq.spark.tables import table_schema

            return table_schema(self._parsed.table)
        from quivermq.spark.source.columns import ddl

        return ddl(includes_headers=self._parsed.flag("includeHeaders", default=True))

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._parsed.table != _MESSAGES:
            from quivermq.spark.tables import table_reader

            return table_reader(self._parsed, schema)
        from quivermq.spark.source.reading import BatchReader

        if isinstance(self._snapshot, QuiverError):
            raise self._snapshot
        assert self._snapshot is not None, "a snapshot is taken of whatever is subscribed to"
        return BatchReader(self._parsed, schema, self._snapshot)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name.)
        if self._parsed.table != _MESSAGES:
            raise InvalidRequest(f"the table {self._parsed.table} is no stream: read it as a batch")
        from quivermq.spark.source.streaming import StreamReader

        return StreamReader(self._parsed, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from quivermq.spark.sink import batch_writer

        return batch_writer(self._parsed, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from quivermq.spark.sink import stream_writer

        return stream_writer(self._parsed, schema, overwrite)

    def _taken(self) -> "Snapshot | QuiverError | None":
        """What a batch would read, or what keeps it from that; None for whoever does not read messages."""
        if self._parsed.table != _MESSAGES or self._parsed.text("topic") is not None:
            return None
        from quivermq.spark.source.snapshot import Snapshot

        try:
            place = self._parsed.whole_place()
            try:
                return Snapshot.take(self._parsed, place)
            finally:
                place.close()
        except QuiverError as error:
            return error
