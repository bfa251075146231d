from pathlib import Path
from typing import Any

import pytest

import quivermq
from quivermq.errors import InvalidRequest
from quivermq.spark import archive, audit, report
from quivermq.spark.classic import cores_of, is_classic
from quivermq.spark.progress import watched


def client() -> Any:
    """What a client of Spark Connect has: settings, and no context."""

    class Settings:
        def get(self, name: str) -> str:
            assert name == "spark.sql.shuffle.partitions"
            return "7"

    class SparkSession:
        conf = Settings()

    SparkSession.__module__ = "pyspark.sql.connect.session"
    return SparkSession()


def test_a_client_of_spark_connect_has_no_context() -> None:
    assert not is_classic(client())
    assert cores_of(client()) == 7
    with watched(client(), lambda *_: None, "nothing is told there"):
        pass


@pytest.mark.parametrize("job", [archive, audit, report])
def test_jobs_that_need_a_context_say_so(tmp_path: Path, job: Any) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
    more = {"to": tmp_path / "page.html"} if job is report else {"age": 0} if job is archive else {}
    with pytest.raises(InvalidRequest, match=rf"^{job.__name__} works with RDDs"):
        job(path=tmp_path / "data", spark=client(), **more)
