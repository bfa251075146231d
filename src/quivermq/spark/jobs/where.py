"""Where the queue of a job is: its first arguments, on their way to the data source."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quivermq.errors import InvalidRequest
from quivermq.spark.place import Place, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


AnyPath = str | os.PathLike[str]


def where_of(path: AnyPath | None, server: str | None, key: str | None) -> "Where":
    """What a caller says of the place. Raises InvalidRequest unless it is exactly one."""
    return Where(None if path is None else os.fspath(path), server, key)


@dataclass(frozen=True, slots=True)
class Where:
    """A data directory, or a broker and a key for it. Exactly one of the two is there."""

    path: str | None = None
    server: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.server is None):
            raise InvalidRequest(
                "say where the queue is: path= for a data directory, or server= for a broker"
            )

    def __str__(self) -> str:
        return str(self.path or self.server)

    def options(self) -> dict[str, str]:
        """As options of the data source."""
        given = {"path": self.path, "server": self.server, "key": self.key}
        return {name: str(value) for name, value in given.items() if value is not None}

    def place(self) -> Place:
        """For reading without Spark."""
        return place_of(self.path, self.server, self.key)

    def read(self, spark: "SparkSession", **options: str) -> "DataFrame":
        """What the data source gives with these further options."""
        return spark.read.format("quiver").options(**self.options(), **options).load()

    def queue(self) -> Any:
        """The queue itself, to be changed: embedded where nobody else has it open, or over the network.

        Both have the same methods and are closed by `with`. Raises DirectoryLocked, Unreachable.
        """
        import quivermq

        if self.path is not None:
            return quivermq.open(self.path)
        assert self.server is not None
        return quivermq.connect(self.server, key=self.key)
