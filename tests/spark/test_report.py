"""A report made by a real Spark, from a directory and from a broker."""

from pathlib import Path

from pyspark.sql import SparkSession
from support.broker import serving
from support.command_inside import quiver

import quivermq
from quivermq.spark import report


def test_a_report_of_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", partitions=2)
        orders = mq.queue("orders", "billing")
        orders.put_many([quivermq.Message(value=b"x" * 100, key=b"<k>") for _ in range(100)])
        taken = orders.get_many(50)
        orders.ack(taken[:40])
        taken[40].reject("no <stock>")
        mq.queue("others").put(b"x")
    to = tmp_path / "report.html"
    summary = report(str(tmp_path / "data"), to=to, spark=spark)
    assert (summary.topics, summary.groups, summary.messages) == (3, 1, 102)
    assert (summary.dead_letters, summary.unreadable, summary.to) == (1, 0, str(to))
    text = to.read_text()
    assert "&lt;k&gt;" in text
    assert "no &lt;stock&gt;" in text
    assert text.count("<svg ") == 8
    assert report(str(tmp_path / "data"), to=to, topics="others", spark=spark).messages == 1


def test_a_report_of_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served:
        orders = served.engine.queue("orders", "billing")
        orders.put_many([b"x"] * 20)
        orders.ack(orders.get_many(5))
        to = tmp_path / "report.html"
        summary = report(server=served.url, to=to, spark=spark)
        assert (summary.messages, summary.groups) == (20, 1)
        text = to.read_text()
        assert "make the report from the data directory" in text
        assert "billing in orders" in text


def test_a_dry_run_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
    to = tmp_path / "report.html"
    summary = report(str(tmp_path / "data"), to=to, dry_run=True, spark=spark)
    assert (summary.topics, summary.is_dry_run, to.exists()) == (1, True, False)
    assert summary.bytes > 0


def test_the_command_writes_the_page(spark: SparkSession, tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
    to = tmp_path / "page.html"
    done = quiver("pipeline", "report", "--data", tmp_path / "data", "--to", to, "--since", "2020-01-01")
    assert done.code == 0, done.err
    assert done.text.startswith(f"wrote {to}: 1 topic, 0 groups, 1 message")
    assert to.read_text().startswith("<!doctype html>")
    later = quiver(
        "pipeline", "report", "--data", tmp_path / "data", "--to", to, "--until", "2020-01-01", "--json"
    )
    assert '"messages": 0' in later.text
    assert quiver("pipeline", "report", "--data", tmp_path / "data", "--since", "yesterday").code == 2
