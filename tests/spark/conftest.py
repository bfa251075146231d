"""One Spark session for all tests of a run: starting one takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.spark_classes import FEW_ROWS, quick_start
from support.spark_lives import Lives

from quivermq.spark import session

CONF = {
    **FEW_ROWS,
    # A server of Spark Connect that is started in here is for this machine alone, at any port.
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores, as `quivermq.spark.session` makes it."""
    spark = session("local[2]", app="tests", **CONF, **{"spark.driver.extraJavaOptions": quick_start()})
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def connect_server(spark: SparkSession) -> str:
    """The address of a server of Spark Connect, which runs in the Java of the session and ends with it."""
    java: Any = spark.sparkContext._jvm
    service = getattr(getattr(java, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    return f"sc://127.0.0.1:{service.localPort()}"


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    """Programs with a Spark of their own, which may be killed."""
    with Lives(tmp_path / "lives") as lives:
        yield lives


@pytest.fixture
def is_campaign(request: pytest.FixtureRequest) -> bool:
    """Whether a program is to be killed at every step, and not only at those that stand for the others.

    The same steps are tried one by one, and much faster, on a faulty disk and without a Spark.
    """
    return request.config.getoption("--chaos-cycles") is not None
