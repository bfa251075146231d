"""Where Spark finds the data source `quiver` by itself: it looks through all modules called `pyspark_*`.

Spark imports this for every session that uses any Python data source, so it imports as little as it can.
"""

from quivermq.spark.datasource import QuiverDataSource as DefaultSource

__all__ = ["DefaultSource"]
