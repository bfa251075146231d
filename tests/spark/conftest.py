"""One Spark session for all tests of a run: starting one takes longer than most of them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from quivermq.spark import session

# A test is over before the better compiler has earned its time.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores, as `quivermq.spark.session` makes it."""
    spark = session(
        "local[2]",
        app="tests",
        **{"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": _QUICK_START},
    )
    yield spark
    spark.stop()
