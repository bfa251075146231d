"""The worked examples do what they say, and do it once."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import quivermq
from quivermq.spark import run

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, because they write beside themselves; its modules can be imported as those of a script."""
    copy = tmp_path / "examples" / "pipelines"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(str(copy))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("orders", "sessions")]:
        monkeypatch.delitem(sys.modules, name)
    return copy


def stored(data: Path, topic: str) -> list[dict[str, object]]:
    with quivermq.open(data) as mq:
        return [json.loads(message.value) for message in mq.queue(topic).read(limit=10_000)]


def test_the_first_pipeline(
    spark: SparkSession, examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(examples / "first_pipeline.py"), run_name="__main__")
    shown = capsys.readouterr().out
    build = tmp_path / "build" / "pipelines"
    rows = spark.read.parquet(str(build / "revenue")).collect()
    sent = stored(build / "data", "revenue")
    assert len(rows) == len(sent) == 5 * 24
    # Late ones make it begin before midnight. The last hour is still open; every order before it counts
    # once, but for the broken ones.
    whole = [order for order in _orders(build / "data") if str(order["ordered_at"]) < "2026-01-31T23"]
    assert sum(row.orders for row in rows) == len(whole)
    assert sum(row.revenue for row in rows) == pytest.approx(sum(float(str(o["amount"])) for o in whole))
    assert "revenue" in shown
    assert "file://" in shown
    assert "<html" in (build / "report.html").read_text()


def _orders(data: Path) -> list[dict[str, object]]:
    found = []
    with quivermq.open(data) as mq:
        for partition in range(2):
            found += mq.queue("orders").read(partition=partition, limit=100_000)
        broken = len(mq.queue("orders.malformed").read(limit=1000))
    orders = [json.loads(message.value) for message in found if message.value.endswith(b"}")]
    assert broken == len(found) - len(orders) == 20
    return orders


def test_visits(spark: SparkSession, examples: Path, tmp_path: Path) -> None:
    make = runpy.run_path(str(examples / "sessions" / "make_clicks.py"))
    data = tmp_path / "build" / "pipelines" / "data"
    count = make["fill"](str(data), 20)
    done = run(examples / "sessions" / "sessions.toml", spark=spark)
    assert [sink.read for sink in done.sinks] == [count, count, count]
    visits = stored(data, "visits")
    table = spark.read.parquet(str(tmp_path / "build" / "pipelines" / "visits")).collect()
    assert len(table) == len(visits) > 20
    assert {(row.visitor, row.clicks) for row in table} == {(v["visitor"], v["clicks"]) for v in visits}
    assert all(row.clicks > 1 and row.minutes >= 1 for row in table)
    # Nothing new came, so a second run finds nothing and sends nothing.
    assert [sink.read for sink in run(examples / "sessions" / "sessions.toml", spark=spark).sinks] == [
        0,
        0,
        0,
    ]
    assert len(stored(data, "visits")) == len(visits)
