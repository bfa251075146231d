"""One Spark session for all tests of a run: starting one takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.spark_classes import QUICK_START
from support.spark_lives import Lives

from quivermq.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores, as `quivermq.spark.session` makes it."""
    spark = session(
        "local[2]",
        app="tests",
        **{"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": QUICK_START},
    )
    yield spark
    spark.stop()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    """Programs with a Spark of their own, which may be killed."""
    with Lives(tmp_path / "lives") as lives:
        yield lives
