"""Topics as tables, for one statement of SQL."""

from typing import TYPE_CHECKING

from quivermq.errors import TopicNotFound
from quivermq.spark.failures import translated
from quivermq.spark.jobs.one_file import AS_STORED
from quivermq.spark.jobs.sql_names import check_is_query, named_tables, quoted, with_quotes
from quivermq.spark.jobs.where import AnyPath, where_of
from quivermq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The queue's own state. A topic that is called so as well is not to be seen in SQL.
STATE_PREFIX = "quiver_"
STATE_TABLES = ("groups", "deliveries", "dead_letters", "segments")


def sql(
    statement: str,
    *,
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    binary: bool = False,
    spark: "SparkSession | None" = None,
) -> "DataFrame":
    """The rows of a statement in which every topic is a table of its name.

    A name such as `orders.dlq` is written in backticks; right behind FROM and JOIN it needs none.
    `quiver_groups`, `quiver_deliveries`, `quiver_dead_letters` and `quiver_segments` are the state of the
    queue. Keys and values are text, byte for byte what was stored; with `binary` they are bytes. Raises
    InvalidRequest for a statement that is wrong or no query, TopicNotFound for a table that is none.
    """
    check_is_query(statement)
    where = where_of(path, server, key)
    place = where.place()
    try:
        topics = place.topics()
    finally:
        place.close()
    # Of its own, so that no view of the caller's is replaced.
    spark = (spark or session()).newSession()
    states = {STATE_PREFIX + name: name for name in STATE_TABLES}
    names = {*topics, *states}
    with translated():
        for name in named_tables(statement, names):
            # A statement that names a topic twice must see the same of it in both places.
            messages = {"subscribe": name, "endingOffsets": "now"}
            options = {"table": states[name]} if name in states else messages
            frame = where.read(spark, **options)
            (frame if binary else _as_text(frame)).createOrReplaceTempView(quoted(name))
        return _rows_of(spark, with_quotes(statement, names))


def _rows_of(spark: "SparkSession", statement: str) -> "DataFrame":
    from pyspark.errors import AnalysisException

    try:
        return spark.sql(statement)
    except AnalysisException as error:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            name = (error.getMessageParameters() or {})["relationName"].strip("`")
            raise TopicNotFound(f"there is no topic {name}: topics() lists those there are") from None
        raise


def _as_text(frame: "DataFrame") -> "DataFrame":
    """Keys and values as Spark's strings, which are the same bytes, and are marked as such."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    kinds = dict(frame.dtypes)
    taken = [name for name in ("key", "value") if kinds.get(name) == "binary"]
    texts = {name: F.col(name).cast("string").alias(name, metadata=AS_STORED) for name in taken}
    return frame.withColumns(texts) if texts else frame
