"""What only a session of classic Spark has: over Spark Connect, a client has no Spark context."""

from typing import TYPE_CHECKING

from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_CONNECT = "pyspark.sql.connect"


def is_classic(spark: "SparkSession") -> bool:
    """Whether the session is in the process of its driver, and not a client of one."""
    return not type(spark).__module__.startswith(_CONNECT)


def context_of(spark: "SparkSession", job: str) -> "SparkContext":
    """The Spark context of a session. Raises InvalidRequest over Spark Connect, which has none."""
    if not is_classic(spark):
        raise InvalidRequest(
            f"{job} works with RDDs, which Spark Connect does not have: give a session of classic Spark, as"
            " quivermq.spark.session(master) starts one"
        )
    return spark.sparkContext


def cores_of(spark: "SparkSession") -> int:
    """About how many tasks run at the same time; over Spark Connect, as many as a shuffle has parts."""
    if is_classic(spark):
        return spark.sparkContext.defaultParallelism
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
