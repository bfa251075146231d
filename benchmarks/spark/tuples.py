"""The data source that one would write first: a reader that yields a tuple a message."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from quivermq import follow


class TupleSource(DataSource):
    """Values of one topic, partition by partition."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return "value binary"

    def reader(self, schema: Any) -> "TupleReader":  # noqa: ARG002 - Spark asks for it by name.
        return TupleReader(self.options["path"], self.options["topic"], int(self.options["limit"]))


class TupleReader(DataSourceReader):
    """Reads `limit` messages of each of the topic's partitions."""

    def __init__(self, path: str, topic: str, limit: int) -> None:
        self._path, self._topic, self._limit = path, topic, limit

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(4)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        log = follow(self._path, f"topics/{self._topic}/p{partition.value}/normal")
        for record in log.records(limit=self._limit):
            yield (record.value,)
