"""Jobs over Spark Connect, where a client has no Spark context: they are the same as in classic Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import quivermq
from quivermq.errors import Conflict
from quivermq.spark import archive, audit, replay, report, run, session, sql
from quivermq.spark.execution import cores_of, is_classic, results_of, translated

MESSAGES = 20


@pytest.fixture
def remote(connect_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A client of a server that runs in the Java of the other tests."""
    from pyspark.sql.connect.session import SparkSession as Client

    # What a Python has that is a client from its first moment on.
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    client: Any = Client.builder.remote(connect_server).create()
    yield client
    client.stop()


def test_jobs_work_for_a_client(remote: SparkSession, tmp_path: Path) -> None:
    data, page = tmp_path / "data", tmp_path / "page.html"
    with quivermq.open(data) as mq:
        mq.create_topic("orders", partitions=2)
        orders = mq.queue("orders")
        for number in range(MESSAGES):
            orders.put(b"%d" % number, dedup_id=f"id-{number}")
        for message in orders.get_many(2):
            message.reject("broken")
    told: list[tuple[str, float, float | None]] = []

    def tell(description: str, done: float, total: float | None = None) -> None:
        told.append((description, done, total))

    assert not is_classic(remote)
    assert cores_of(remote) == 2
    checked = audit(data, spark=remote, progress=tell)
    assert checked.findings == ()
    # Those of the journals as well.
    assert checked.messages > MESSAGES + 2
    counted = report(data, to=page, spark=remote, progress=tell)
    assert (counted.messages, counted.dead_letters, counted.unreadable) == (MESSAGES + 2, 2, 0)
    assert "<html" in page.read_text()
    archived = archive(data, age=0, spark=remote, progress=tell)
    assert (archived.messages, archived.problems) == (MESSAGES + 2, ())
    assert audit(data, spark=remote, progress=tell).is_sound
    assert replay(["orders"], "copy", path=data, spark=remote, progress=tell).read == MESSAGES
    with quivermq.open(data) as mq:
        assert len(mq.queue("copy").read(limit=100)) == MESSAGES
    # Spark tells from time to time, so of a job that is quick enough it may never tell.
    assert all(total is not None and 0 <= done <= total for _, done, total in told)


PIPELINE = """\
[pipeline]
name = "large"
data = "data"

[[source]]
name = "orders"
topics = ["orders"]
format = "json"
schema = "id bigint"
malformed = "orders.malformed"

[[step]]
name = "large"
sql = "SELECT id, id * 2 AS twice FROM orders WHERE id >= 5"

[[sink]]
from = "large"
topic = "large"
key = "id"
"""


def test_sql_and_pipelines_work_for_a_client(remote: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put_many([b'{"id": %d}' % number for number in range(8)] + [b"no json"])
    counted = sql("SELECT count(*) FROM orders", path=tmp_path / "data", spark=remote)
    assert counted.collect() == [(9,)]
    done = run(tmp_path / "pipeline.toml", spark=remote)
    assert sorted((sink.read, sink.written) for sink in done.sinks) == [(9, 1), (9, 3)]
    with quivermq.open(tmp_path / "data") as mq:
        assert sorted(message.key or b"" for message in mq.queue("large").read()) == [b"5", b"6", b"7"]
        assert [message.value for message in mq.queue("orders.malformed").read()] == [b"no json"]


@pytest.mark.parametrize("which", ["spark", "remote"])
def test_results_are_in_order_and_errors_are_ours(which: str, request: pytest.FixtureRequest) -> None:
    given: SparkSession = request.getfixturevalue(which)

    def twice(item: int) -> Iterator[int]:
        if item < 0:
            raise Conflict("it is negative")
        yield from (item, item)

    assert results_of(given, [3, 1, 2], twice) == [3, 3, 1, 1, 2, 2]
    assert results_of(given, [], twice) == []
    with pytest.raises(Conflict, match=r"^it is negative$"), translated():
        results_of(given, [1, -1], twice)


def test_a_client_that_runs_is_taken(remote: SparkSession) -> None:
    assert session() is remote
    assert session("sc://127.0.0.1") is remote
    with pytest.raises(Conflict, match="a client of Spark Connect is running in this process"):
        session("local[2]")
