import threading
from typing import Any

import pytest

from quivermq.spark.jobs.state import Standing, lag_of, wait_for


def told(batch: int, rows: int, read: int = 0, latest: int = 0) -> dict[str, Any]:
    def offsets(offset: int) -> dict[str, Any]:
        return {"orders": {"created_us": 5, "partitions": {"0": {"normal": offset, "high": 1}}}}

    source = {"endOffset": offsets(read), "latestOffset": offsets(latest)}
    return {"batchId": batch, "numInputRows": rows, "processedRowsPerSecond": 7.5, "sources": [source]}


class Query:
    """Is at its end after so many looks."""

    def __init__(self, batches: list[dict[str, Any]], failure: Exception | None = None) -> None:
        self.batches, self.failure, self.looks, self.is_stopped = batches, failure, 0, False

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name.
        self.looks += 1
        return self.looks <= len(self.batches)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name.
        return self.batches[: self.looks]

    def exception(self) -> Exception | None:
        return self.failure if self.looks >= len(self.batches) else None

    def stop(self) -> None:
        self.is_stopped = True


def test_rows_count_once_however_often_they_are_told() -> None:
    query: Any = Query([told(0, 5), told(0, 5), told(1, 3, 4, 10), told(1, 0)])
    standings = wait_for({"a": query})
    assert standings["a"].rows == 8
    assert query.is_stopped


def test_over_spark_connect_each_source_tells_its_rows() -> None:
    progress = told(0, 5)
    progress["numInputRows"] = None
    progress["sources"] = [{**progress["sources"][0], "numInputRows": rows} for rows in (4, 3)]
    standing = Standing()
    standing.learn(progress)
    assert standing.rows == 7


def test_the_lag_is_what_was_not_read() -> None:
    standing = Standing()
    standing.learn(told(0, 5, read=4, latest=10))
    assert (standing.lag, standing.rows_per_second) == (6, 7.5)
    assert lag_of({"endOffset": None, "latestOffset": None}) is None
    assert lag_of({"endOffset": "7", "latestOffset": "{}"}) is None
    text = '{"a": {"created_us": 1, "partitions": {"0": {"normal": 3}}}}'
    assert lag_of({"endOffset": text, "latestOffset": text}) == 0


def test_a_failure_is_raised_and_the_others_are_stopped() -> None:
    good, bad = Query([told(0, 1)] * 50), Query([told(0, 1)], ValueError("no"))
    queries: Any = {"good": good, "bad": bad}
    with pytest.raises(ValueError, match="no"):
        wait_for(queries)
    assert good.is_stopped
    assert bad.is_stopped


def test_somebody_may_stop_it() -> None:
    stop, query = threading.Event(), Query([told(0, 2)] * 1000)
    queries: Any = {"a": query}
    assert wait_for(queries, lambda _: stop.set(), stop)["a"].rows == 2
    assert query.is_stopped


def test_what_is_written_is_what_came_out_and_not_what_went_in() -> None:
    standing = Standing()
    for batch, observed in enumerate(({"rows": 3}, None, {"rows": None}, {"rows": 2})):
        progress = {**told(batch, 10), "observedMetrics": {"quiver_written": observed} if observed else {}}
        standing.learn(progress)
        # A batch that is told again counts once.
        standing.learn(progress)
    assert (standing.rows, standing.written) == (40, 5)
